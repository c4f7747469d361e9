from __future__ import annotations

import gzip
import io
import json
import re
import shlex
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest

from flowveil.apps.cli import main
from flowveil.tabular.records import read_records, write_records
from reference.tabular_survey import QUASI_IDENTIFIERS, SENSITIVE, survey


@pytest.fixture
def source(tmp_path):
    write_records(survey(), tmp_path / "survey.csv")
    return str(tmp_path / "survey.csv")


def run(*arguments):
    """Through the program's own front door: exit codes are given there."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main(["tabular", *map(str, arguments)])
            code = 0
        except SystemExit as done:
            code = done.code
    return SimpleNamespace(exit_code=code, output=said.getvalue())


def columns():
    return [
        part
        for name in QUASI_IDENTIFIERS
        for part in ("--quasi", name, "--column", f"{name}.kind=ordered")
    ]


def test_mondrian(source, tmp_path):
    out = tmp_path / "release.parquet"
    result = run(
        "mondrian", source, "--out", out, "--k", 5, "--l", 2,
        *columns(), "--no-identifiers", "--sensitive", SENSITIVE,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    table = read_records(out)
    assert table.num_rows == 3146
    report = json.loads((tmp_path / "release.report.json").read_text())
    assert report["measures"]["smallest_class"] >= 5
    assert report["guarantee"] == {"k": 5, "l": 2}
    assert "5-anonymous" in report["statement"]
    assert "Not protected" in report["statement"]


def test_mondrian_exit_codes_and_nothing_written(source, tmp_path):
    out = tmp_path / "release.csv"
    base = ["mondrian", source, "--out", out, *columns()]
    asked = [*base, "--k", 5, "--sensitive", SENSITIVE]
    for arguments, code, message in (
        (asked, 2, "must be named"),
        ([*asked, "--no-identifiers", "--identifier", "Gender"], 2, "must be named"),
        ([*base, "--k", 5, "--no-identifiers"], 2, "without a role: IllegalPurchase"),
        ([*base, "--k", 5, "--identifier", "Name"], 2, "No column 'Name'"),
        ([*asked[:-4], "--k", 4000, "--sensitive", SENSITIVE, "--no-identifiers"], 3, "cannot be met"),
        ([*asked, "--no-identifiers", "--l", 3], 3, "cannot be met"),
        ([*asked, "--no-identifiers", "--column", "Gender"], 2, "COLUMN.NAME=VALUE"),
        ([*asked, "--no-identifiers", "--column", "Sex.kind=ordered"], 2, "Not among"),
        (["mondrian", tmp_path / "absent.csv", *asked[2:], "--no-identifiers"], 2, "does not exist"),
        (["mondrian", source, "--out", "x.txt", *asked[4:], "--no-identifiers"], 2, "must end in"),
        (["mondrian", source, "--out", f"{source}/no/x.csv", *asked[4:], "--no-identifiers"], 2, "is a file"),
    ):  # fmt: skip
        result = run(*arguments)
        assert result.exit_code == code, result.output
        assert message in result.output
    assert {p.name for p in tmp_path.iterdir()} == {"survey.csv"}


def test_mondrian_with_hierarchy_order_and_missing(tmp_path):
    (tmp_path / "in.csv").write_text(
        "name,job,level,age\n"
        + "".join(f"p{i},{'ab?'[i % 3]},{'lo' if i % 2 else 'hi'},{i}\n" for i in range(30))
    )
    (tmp_path / "jobs.csv").write_text("a,worker,*\nb,worker,*\n")
    out = tmp_path / "out.csv"
    result = run(
        "mondrian",
        tmp_path / "in.csv",
        "--out",
        out,
        "--k",
        4,
        "--identifier",
        "name",
        "--missing",
        "?",
        "--quasi",
        "job",
        "--column",
        f"job.hierarchy={tmp_path / 'jobs.csv'}",
        "--quasi",
        "level",
        "--column",
        "level.order=lo,hi",
        "--quasi",
        "age",
        "--strict",
    )
    assert result.exit_code == 0, result.output
    table = read_records(out)
    assert "name" not in table.column_names
    assert set(table["job"].to_pylist()) <= {"a", "b", "worker", "missing", "*"}
    assert "p7" not in out.read_text()


def test_ipf(source, tmp_path):
    out = tmp_path / "synthetic.csv"
    asked = ["ipf", source, "--out", out, "--epsilon"]
    result = run(*asked, "1", "--domains-from-data", "--priorn", "0.1")
    assert result.exit_code == 0, result.output
    assert "1-differentially private" in result.output
    report = json.loads((tmp_path / "synthetic.report.json").read_text())
    assert report["private"] is True
    assert report["noise"]["scale"] == pytest.approx(15)
    assert report["n_records"] == read_records(out).num_rows

    result = run(
        *asked,
        "none",
        "--seed",
        1,
        "--margin",
        "Gender*Education",
        "--margin",
        "Education*SocialClass",
    )
    assert result.exit_code == 0, result.output
    assert "NOT differentially private" in result.output
    assert read_records(out).column_names == ["Gender", "Education", "SocialClass"]

    domains = tmp_path / "domains.json"
    domains.write_text(json.dumps({"Gender": [1, 2], "MaritalStatus": [1, 2]}))
    margin = ["--margin", "Gender*MaritalStatus", "--domains", domains]
    result = run(*asked, "0.5", *margin, "--records", 100)
    assert result.exit_code == 0, result.output
    assert read_records(out).num_rows == 100


def test_ipf_refusals(source, tmp_path):
    out = tmp_path / "synthetic.csv"
    asked = ["ipf", source, "--out", out, "--epsilon"]
    (tmp_path / "bad.json").write_text("[1]")
    for arguments, message in (
        ([*asked, "1"], "not declared"),
        ([*asked, "1", "--domains-from-data", "--seed", 1], "seed is refused"),
        ([*asked, "lots"], "neither a number nor none"),
        ([*asked, "-1", "--domains-from-data"], "above 0"),
        ([*asked, "1", "--domains", tmp_path / "bad.json"], "one object"),
        ([*asked, "1", "--domains", tmp_path / "absent.json"], "not a readable JSON"),
        ([*asked, "none", "--max-cells", 100], "drop the margins"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert message in result.output
    assert not out.exists()


@pytest.mark.slow
def test_compare(source, tmp_path):
    out = tmp_path / "comparison"
    asked = [
        "compare",
        source,
        "--out",
        out,
        *columns(),
        "--no-identifiers",
        "--sensitive",
        SENSITIVE,
    ]
    result = run(*asked, "--k", "5,10", "--epsilon", "1", "--set", "priorn=0", "--set", "repeats=1")
    assert result.exit_code == 0, result.output
    assert "not for publication" in result.output
    assert (out / "synthesis.png").is_file()
    assert run(*asked, "--k", "five").exit_code == 2


def test_heavy_libraries_stay_unloaded():
    code = (
        "import sys, flowveil.apps.cli.tabular;"
        "print([m for m in ('opendp', 'matplotlib', 'scipy', 'sklearn', 'pandas') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def clinic(tmp_path):
    rows = [
        {"age": 20 + i % 30, "sex": "fm"[i % 2], "disease": f"d{i % 2}", "name": f"person {i}"}
        for i in range(90)
    ]
    (tmp_path / "t.ndjson").write_text("\n".join(map(json.dumps, rows)))
    lines = [";".join(rows[0]), *(";".join(map(str, row.values())) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.write(tmp_path / "t.csv", "t.csv")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    return tmp_path


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "ndjson", "zip"])
def test_records_are_read_by_the_reader_of_trips(clinic, kind):
    words = ["--quasi", "age,sex", "--identifier", "name", "--keep", "disease", "--k", "5"]
    main(["tabular", "mondrian", str(clinic / f"t.{kind}"), *words, "--out", f"{clinic}/o.csv"])
    released = read_records(clinic / "o.csv")["disease"].to_pylist()
    assert (released.count("d0"), released.count("d1")) == (45, 45)


@pytest.mark.parametrize(
    "command", [["mondrian", "--k", "5"], ["compare", "--sensitive", "disease"]]
)
def test_columns_are_shown_with_a_command_that_runs(clinic, command, capsys):
    name, *words = command
    out = clinic / ("o.csv" if name == "mondrian" else "folder")
    base = ["tabular", name, str(clinic / "t.csv"), *words, "--out", str(out)]
    with pytest.raises(SystemExit):
        main(base)
    said = capsys.readouterr().err
    assert "'age', 'sex', 'disease', 'name'" in said
    assert "person 1" not in said
    hint = re.search(r"begin with (--quasi .*)\.", said)[1]
    assert ("disease" in hint) == (name == "mondrian")
    few = ["--set", "repeats=1", "--k", "5", "--epsilon", "1"] if name == "compare" else []
    main([*base, *shlex.split(hint), *few])
    assert out.exists()
