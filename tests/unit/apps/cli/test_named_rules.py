"""Rules of others by name, a name for what is counted, and the few lines that a run prints."""

from __future__ import annotations

import json

import pytest

from flowveil.apps.cli import main
from flowveil.core.errors import ParameterError
from flowveil.core.named_rules import RULES
from flowveil.request.request import Request

ZONES = "zone,parent\n" + "".join(f"z{i},d{i // 3}\n" for i in range(9))
ZONES += "d0,all\nd1,all\nd2,all\nall,\n"


@pytest.fixture
def od(tmp_path):
    (tmp_path / "zones.csv").write_text(ZONES)
    pairs = [(i, j) for i in range(9) for j in range(9)]
    rows = [f"z{i},z{j},{i + j + 1},p{i}-{j}-{n}" for i, j in pairs for n in range(3)]
    path = tmp_path / "od.csv"
    path.write_text("\n".join(["from,to,n,perno", *rows]) + "\n")
    return path


def run(od, *more):
    out = od.parent / "release"
    words = ["anonymize", str(od), "--zones", str(od.parent / "zones.csv"), "--out", str(out)]
    main([*words, "--origin-tile", "from", "--destination-tile", "to", "--trips", "n", *more])
    return json.loads((out / "report.json").read_text("utf-8"))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_sets_k_and_unit(name):
    request = Request.from_flat({"rule": name})
    rule = RULES[name]
    assert (request.protection.k, request.protection.protect) == (rule.k, (rule.protect,))
    for name_, value in (("k", rule.k - 1), ("protect", ("population",))):
        with pytest.raises(ParameterError, match="leave out"):
            Request.from_flat({"rule": name, name_: value})
    assert Request.from_flat(request.given).given == request.given


def test_a_rule_is_kept_and_verified(od):
    report = run(od, "--rule", "ine", "--person", "perno")
    assert report["guarantee"]["people"] == 16
    words = ["verify", str(od.parent / "release"), "--against", str(od)]
    words += ["--zones", str(od.parent / "zones.csv"), "--rule"]
    main([*words, "ine"])
    with pytest.raises(SystemExit) as refused:
        main([*words, "mds"])
    assert refused.value.code == 3


def test_what_was_counted_has_a_name(od, capsys):
    report = run(od, "--counted", "workers", "--no-person")
    said = report["published"]["sentences"]
    assert said[0].endswith("holds at least 10 workers.")
    assert any("Workers were counted, not people" in line for line in said)
    page = (od.parent / "release" / "report.html").read_text("utf-8")
    assert "10 workers" in page
    assert "10 trips" not in page
    assert "workers. Trips lie" in capsys.readouterr().err or "workers" in str(said)
    main(["verify", str(od.parent / "release"), "--against", str(od), "--zones",
          str(od.parent / "zones.csv")])  # fmt: skip


@pytest.mark.parametrize("name", ["people", "Jobs", "two  words", "<b>", "working persons", "10"])
def test_a_name_of_what_was_counted_claims_no_people(od, name, capsys):
    with pytest.raises(SystemExit):
        run(od, "--counted", name, "--no-person")
    assert "--counted must be a word" in capsys.readouterr().err


def test_a_run_prints_what_is_published_protected_and_missing(od, capsys):
    run(od, "--no-person")
    brief = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in brief] == [
        *("Published", "Protected:", "Missing:", "Report:", "Verify:")
    ]
    assert brief[1].endswith("People are not protected.")
    report = run(od, "--no-person", "-v")
    told = capsys.readouterr().out.splitlines()
    assert told[1:-2] == report["published"]["sentences"]
