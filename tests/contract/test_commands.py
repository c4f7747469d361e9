"""Every command of the program fails the same way.

Code, message, JSON, and nothing changed on disk.

Every command of the program is run: each must list below how it fails.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest
from pyarrow import csv

from conftest import trip_table
from flowveil.apps.cli import cli, main

#: How each command fails: arguments, exit code, words of the message. 2 is bad usage or bad input,
#: 3 a guarantee that cannot be met or does not hold. {in} is a file of trips, {bad} one without
#: coordinates, {records} a table, {old} an earlier output that must not change, {release} a
#: release, {short} one that was tampered with.
TRIPS = ("--resolution", "8")
RECORDS = ("--quasi", "age", "--sensitive", "illness", "--no-identifiers")
FAILURES: dict[str, list[tuple[tuple[str, ...], int, str]]] = {
    "anonymize": [
        (("{absent}", "--out", "{old}"), 2, "absent"),
        (("{bad}", "--out", "{old}"), 2, "column"),
        (("{in}", "--out", "{old}", "--k", "0"), 2, "k"),
        (("{in}", "--out", "{old}", "--k", "many"), 2, "many"),
        (
            (
                "{in}",
                "--out",
                "{old}",
                "--method",
                "laplace",
                "--option",
                "epsilon=21",
                "--option",
                "bound=2",
                *TRIPS,
            ),
            2,
            "at most 20",
        ),
        (("{in}", "--out", "{old}", "--k", "100000", *TRIPS), 3, "lower k"),
        (("{in}", "--out", "{old}", "--k", "100000", "--by", "sex", *TRIPS), 3, "lower k"),
        (("{in}", "--out", "{old}", "--k", "5", "--zones-of", "{new}", *TRIPS), 2, "new"),
        (
            ("{in}", "--out", "{old}", "--k", "5", "--zones-of", "{short}", *TRIPS),
            2,
            "as it was published",
        ),
        (
            ("{in}", "--out", "{old}", "--k", "5", "--revision", "{short}", *TRIPS),
            2,
            "as it was published",
        ),
        (
            ("{in}", "--out", "{old}", "--k", "5", "--set", "protection.stricter={absent}", *TRIPS),
            2,
            "absent",
        ),
        (
            ("{in}", "--out", "{old}", "--k", "5", "--set", "output.context={in}", *TRIPS),
            2,
            "GeoJSON",
        ),
        (("{in}", "--out", "{old}", "--k", "5", "--ledger", "{old}", *TRIPS), 2, "ledger"),
        (
            ("{in}", "--out", "{old}", "--k", "5", "--set", "resources.resume=true", *TRIPS),
            2,
            "No slices",
        ),
        (
            ("{in}", "--out", "{old}", "--method", "topdown", "--option", "epsilon=1", *TRIPS),
            2,
            "bound",
        ),
    ],
    "audit": [
        (("{new}",), 2, "new"),
        (("{release}", "--fail-on", "beauty=1"), 2, "homogeneity"),
        (("{release}", "--against", "{absent}"), 2, "absent"),
        (("{release}", "--out", "{old}"), 2, "release"),
        (("{short}",), 2, "release that can be read"),
        (("{release}", "--fail-on", "linkage=0"), 3, "not computed"),
    ],
    "compare": [
        (("{absent}", "--out", "{new}"), 2, "absent"),
        (("{in}", "--out", "{old}"), 2, "inside a release"),
        (("{in}", "--out", "{new}", "--k", "many"), 2, "many"),
        (("{in}", "--out", "{new}", "--methods", "nosuch", *TRIPS), 2, "nosuch"),
        (("{in}", "--out", "{release}/comparison", *TRIPS), 2, "inside a release"),
        (
            ("{in}", "--out", "{new}", "--picture", "{release}/map.png", *TRIPS),
            2,
            "inside a release",
        ),
    ],
    "analyze": [
        (("{new}", "--against", "{in}"), 2, "new"),
        (("{release}", "--against", "{absent}"), 2, "absent"),
        (("{release}", "--against", "{in}", "--out", "{release}/private"), 2, "inside a release"),
    ],
    "run": [
        (("{absent}",), 2, "no recipe"),
        (("{latin}",), 2, "not TOML"),
        (("{recipe}", "--out", "{old}", "--set", "protection.nosuch=1"), 2, "nosuch"),
        (("{recipe}", "--out", "{old}", "--set", "protection.k=100000"), 3, "lower k"),
    ],
    "demo": [(("--out", "{in}"), 2, "file"), (("--k", "3"), 2, "--k")],
    "describe": [
        (("{absent}",), 2, "absent"),
        (("{bad}",), 2, "column"),
        (("{in}", "--k", "0"), 2, "k"),
    ],
    "picture": [
        (("{new}", "--out", "{new}.png"), 2, "new"),
        (("{release}", "--out", "{new}.txt"), 2, ".png"),
        (("{release}", "--out", "{in}/x.png"), 2, "trips.csv"),
        (("{short}", "--out", "{new}.png"), 2, "release that can be read"),
    ],
    "derive": [
        (("{new}", "--level", "6", "--out", "{old}"), 2, "release that can be read"),
        (("{short}", "--level", "6", "--out", "{old}"), 2, "as it was published"),
        (("{release}", "--sum", "sex", "--out", "{old}"), 2, "no slices"),
        (("{release}", "--level", "many", "--out", "{old}"), 2, "many"),
        (("{release}", "--level", "6", "--out", "{release}"), 2, "is the source"),
    ],
    "freeze": [
        (("{new}", "--out", "{new}.parquet"), 2, "new"),
        (("{release}", "--out", "{in}/map.parquet"), 2, "trips.csv"),
        (("{short}", "--out", "{new}.parquet"), 2, "as it was published"),
        (("{boxed}", "--out", "{new}.parquet"), 2, "twincut"),
    ],
    "series": [
        (("{absent}", "--time", "t", "--out", "{new}"), 2, "absent"),
        (("{dated}", "--time", "nosuch", "--out", "{new}"), 2, "nosuch"),
        (("{dated}", "--time", "t", "--out", "{old}"), 2, "old"),
        (("{dated}", "--time", "t", "--out", "{new}", "--k", "100000", *TRIPS), 3, "k"),
    ],
    "completion": [(("sh",), 2, "bash"), ((), 2, "SHELL")],
    "serve": [
        (("--host", "0.0.0.0"), 2, "--i-know-this-exposes-raw-data"),
        (("--max-upload", "many"), 2, "--max-upload"),
        (("--port", "70000"), 2, "--port"),
    ],
    "key": [(("{in}",), 2, "exists"), (("{absent}/secret.key",), 2, "cannot be written")],
    "ledger": [(("{new}",), 2, "holds no ledger"), (("{release}",), 2, "holds no ledger")],
    "reconstruct": [
        (("{new}", "--zones", "7", "--out", "{new}.csv"), 2, "new"),
        (("{release}", "--zones", "7", "--out", "{new}.txt"), 2, ".parquet"),
        (("{release}", "--zones", "12", "--out", "{new}.csv"), 2, "resolution"),
        (("{short}", "--zones", "7", "--out", "{new}.csv"), 2, "release that can be read"),
    ],
    "prepare": [
        (("nosuch", "{in}", "--out", "{new}"), 2, "nosuch"),
        (("porto", "{absent}", "--out", "{new}"), 2, "absent"),
        (("porto", "{in}", "--out", "{new}"), 2, "column"),
        (("gps", "{in}", "--out", "{new}", "--gap", "-1"), 2, "gap"),
    ],
    "study": [
        (("{absent}", "--by", "sex", "--out", "{new}"), 2, "absent"),
        (("{in}", "--by", "nosuch", "--out", "{new}", *TRIPS), 2, "nosuch"),
        (("{in}", "--by", "sex", "--out", "{old}", *TRIPS), 2, "old"),
        (("{in}", "--by", "sex", "--out", "{new}", "--methods", "nosuch", *TRIPS), 2, "nosuch"),
        (("{in}", "--by", "sex", "--out", "{new}", "--k", "0", *TRIPS), 2, "k"),
        (
            ("{in}", "--by", "sex", "--out", "{new}", "--set", "resources.workers=-1", *TRIPS),
            2,
            "workers",
        ),
        (("{in}", "--out", "{new}", "--preset", "nosuch", *TRIPS), 2, "odkanon-report"),
        (("{in}", "--out", "{new}", "--max-suppressed", "oigh=all", *TRIPS), 2, "METHOD=SHARE"),
        (("{in}", "--out", "{release}/study", *TRIPS), 2, "inside a release"),
    ],
    "tabular mondrian": [
        (("{absent}", "--out", "{old}.csv", "--k", "2", *RECORDS), 2, "absent"),
        (("{latin}", "--out", "{old}.csv", "--k", "2", *RECORDS), 2, "readable"),
        (
            (
                "{records}",
                "--out",
                "{old}.csv",
                "--k",
                "2",
                *RECORDS,
                "--column",
                "age.hierarchy={latin}",
            ),
            2,
            "readable",
        ),
        (("{records}", "--out", "{old}.csv", "--k", "0", *RECORDS), 2, "k"),
        (("{records}", "--out", "{old}.csv", "--k", "2", "--no-identifiers"), 2, "--quasi"),
        (("{records}", "--out", "{blocked}.csv", "--k", "2", *RECORDS), 2, "folder"),
        (("{records}", "--out", "{old}.csv", "--k", "1000", *RECORDS), 3, "k = 1000"),
        (("{records}", "--out", "{old}.csv", "--k", "2", "--l", "9", *RECORDS), 3, "l = 9"),
    ],
    "tabular ipf": [
        (("{absent}", "--out", "{old}.csv", "--epsilon", "1"), 2, "absent"),
        (
            ("{records}", "--out", "{old}.csv", "--epsilon", "-1", "--domains-from-data"),
            2,
            "epsilon",
        ),
        (
            ("{records}", "--out", "{old}.csv", "--epsilon", "21", "--domains-from-data"),
            2,
            "at most 20",
        ),
        (
            ("{records}", "--out", "{old}.csv", "--epsilon", "1.1e-6", "--domains-from-data"),
            2,
            "standard deviation",
        ),
        (
            ("{records}", "--out", "{old}.csv", "--epsilon", "1e-9", "--domains-from-data"),
            2,
            "exceeds the counts",
        ),
        (("{records}", "--out", "{old}.csv", "--epsilon", "1"), 2, "not declared"),
        (("{records}", "--out", "{old}.csv", "--epsilon", "none", "--records", "0"), 2, "records"),
        (("{records}", "--out", "{blocked}.csv", "--epsilon", "none"), 2, "folder"),
    ],
    "tabular compare": [
        (("{absent}", "--out", "{new}", *RECORDS), 2, "absent"),
        (("{records}", "--out", "{old}", *RECORDS), 2, "inside a release"),
        (("{records}", "--out", "{new}", "--k", "two", *RECORDS), 2, "two"),
        (("{records}", "--out", "{new}", "--k", "1000", *RECORDS), 3, "k = 1000"),
    ],
    "verify": [
        (("{release}", "--against", "{absent}"), 2, "absent"),
        (("{release}", "--against", "{in}", "--protect", "nobody"), 2, "nobody"),
        (("{release}", "--against", "{in}", "--certificate", "{new}.txt"), 2, ".json"),
        (("{release}", "--against", "{in}", "--set", "method.zones_of={old}"), 3, "zone map"),
        (("{release}", "--against", "{in}", "--k", "6"), 3, "k"),
        (("{short}", "--against", "{in}"), 3, "flows.parquet"),
    ],
}


def commands(group: click.Group, prefix: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def run(*words: str) -> int:
    try:
        main(list(words))
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def content(folder: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A folder with inputs and earlier outputs; what is called new or absent is not there."""
    folder = tmp_path_factory.mktemp("commands")
    trips = trip_table(200).append_column("sex", pa.array(["f", "m"] * 100))
    csv.write_csv(trips, folder / "trips.csv")
    csv.write_csv(trips.append_column("t", pa.array(["2024-01-05"] * 200)), folder / "dated.csv")
    csv.write_csv(trips.select(["weight", "sex"]), folder / "bad.csv")
    rows = "".join(f"{20 + i},{'flu' if i % 3 else 'none'}\n" for i in range(30))
    (folder / "records.csv").write_text("age,illness\n" + rows)
    (folder / "latin.csv").write_bytes(b"age,illness\n20,h\xe9moglobine\n")
    (folder / "old.csv").write_text("an earlier release\n")
    (folder / "old.report.json").write_text("{}\n")
    (folder / "blocked.report.json").mkdir()
    release = folder / "release"
    asked = ["--k", "5", "--method", "twincut", "--out", str(release), *TRIPS]
    assert run("anonymize", str(folder / "trips.csv"), *asked) == 0
    boxed = ["--k", "5", "--method", "curvecut", "--out", str(folder / "boxed"), *TRIPS]
    assert run("anonymize", str(folder / "trips.csv"), *boxed) == 0
    for name in ("old", "short"):
        shutil.copytree(release, folder / name)
    (folder / "short" / "flows.parquet").write_bytes(b"")
    (folder / "recipe.toml").write_text('[input]\ninput = "trips.csv"\n[zones]\nresolution = 8\n')
    names = ("old", "new", "blocked", "release", "short", "boxed")
    files = {
        "in": "trips.csv",
        "bad": "bad.csv",
        "dated": "dated.csv",
        "absent": "absent.csv",
        "records": "records.csv",
        "latin": "latin.csv",
        "recipe": "recipe.toml",
    }
    return {
        "folder": str(folder),
        **{n: str(folder / n) for n in names},
        **{n: str(folder / f) for n, f in files.items()},
    }


def test_every_command_says_how_it_fails():
    assert sorted(FAILURES) == sorted(commands(cli))


@pytest.mark.parametrize(
    ("command", "words", "code", "message"),
    [(command, *failure) for command, failures in FAILURES.items() for failure in failures],
)
def test_a_failing_command_says_why_and_changes_nothing(
    places, monkeypatch, capsys, command, words, code, message
):
    folder = Path(places["folder"])
    monkeypatch.chdir(folder)
    before = content(folder)
    asked = [*command.split(), *(word.format(**places) for word in words)]
    assert run(*asked) == code
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert run(*asked, "--json", "-q") == code
    again = capsys.readouterr()
    found = json.loads(again.out)
    if "error" in found:
        assert found["error"]["kind"].endswith(("Error", "Interrupted"))
        assert again.err == f"Error: {found['error']['message']}\n"
        assert said.err.endswith(again.err)
    else:
        assert (command, found.get("holds")) in (("verify", False), ("audit", None))
        assert message in " ".join(found["findings"] if command == "verify" else found["failures"])
    assert content(folder) == before


@pytest.mark.parametrize("command", sorted(commands(cli)))
def test_every_command_has_help_json_and_refuses_what_it_does_not_know(command, capsys):
    assert run(*command.split(), "--help") == 0
    said = capsys.readouterr().out
    assert "--json" in said
    assert "--quiet" in said
    assert run(*command.split(), "--no-such-option", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "UsageError"
