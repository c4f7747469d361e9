"""Hints lead on: every flag, setting and command that a message names exists, and what a message
proposes to type works when it is pasted.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from flowveil.apps.cli import COMMANDS, cli, main
from flowveil.request.request import settings

SRC = Path(__file__).resolve().parents[4] / "src" / "flowveil"
#: Flags that were removed, which are answered with what to do instead, and a beginning of flags.
GONE = {"--internal-report", "--internal-profile", "--no-"}
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def commands(name: str) -> list[click.Command]:
    one = cli.get_command(click.Context(cli), name)
    return list(one.commands.values()) if isinstance(one, click.Group) else [one]


def flags_of(name: str) -> set[str]:
    options = [option for one in (*commands(name), cli) for option in one.params]
    return {flag for one in options for flag in (*one.opts, *one.secondary_opts)} | {"--help"}


def messages() -> Iterator[tuple[str, str]]:
    """Yields place and text of every string that is no documentation, f-strings with gaps."""
    for path in sorted(SRC.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                skipped.add(id(node.value))
            if isinstance(node, ast.JoinedStr):
                parts = node.values
                skipped |= {id(part) for part in parts}
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in parts
                )
                yield f"{path.name}:{node.lineno}", text
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in skipped:
                yield f"{path.name}:{node.lineno}", node.value


def test_every_flag_and_setting_that_a_message_names_exists():
    known = set().union(*map(flags_of, COMMANDS)) | GONE
    paths = {one.path for one in settings()}
    seen, wrong = 0, []
    for place, text in messages():
        flags = _FLAG.findall(text)
        seen += len(flags)
        wrong += [f"{place} {flag}" for flag in flags if flag not in known]
        named = re.findall(r"--set ([a-z]+\.[a-z_]+)", text)
        wrong += [f"{place} --set {path}" for path in named if path not in paths]
    assert not wrong
    assert seen > 300


def test_every_command_that_a_message_proposes_takes_its_options():
    seen, wrong = 0, []
    for place, text in messages():
        for line in re.findall(r"`flowveil ([a-z][^`]+)`|Hint: flowveil ([a-z][^.;]+)", text):
            words = "".join(line).split()
            seen += 1
            flags = [word for word in words if word.startswith("--")]
            if words[0] not in COMMANDS or not set(flags) <= flags_of(words[0]):
                wrong.append(f"{place} {' '.join(words)}")
    assert not wrong
    assert seen > 15


# ---- pasted --------------------------------------------------------------------------------------

OSLO = "start_lat,start_lon,end_lat,end_lon"
NEAR = [f"59.9{i % 9},10.7{i % 7},59.9{i % 5},10.7{i % 8}" for i in range(200)]
CODES = [f"z{i % 4},z{i % 3}" for i in range(200)]
MAP = "zone,parent\nz0,d0\nz1,d0\nz2,d1\nz3,d1\nd0,all\nd1,all\nall,\n"
TWO_ROOTS = "zone,parent\nz0,d0\nz1,d0\nz2,d1\nz3,d1\nd0,\nd1,\n"
OD = "--zones zones.csv"


def rows(lines: list[str], *more: str) -> list[str]:
    """Lines with more columns; {i} counts them, {n} up to 60 again and again."""
    return [",".join([line, *(one.replace("{i}", str(i)).replace("{n}", str(i % 60))
            for one in more)]) for i, line in enumerate(lines)]  # fmt: skip


#: The header, the rows, the map, the words that are wrong, and what the message proposes to type.
CASES = {
    "person": (OSLO + ",rider_no", rows(NEAR, "r{i}"), MAP, "", r"--person rider_no"),
    "no person": (OSLO + ",rider_no", rows(NEAR, "r{i}"), MAP, "", r"--no-person"),
    "ends that are codes": (
        "a,b", CODES, MAP, OD, r"--origin-tile \w+ --destination-tile \w+"
    ),
    "hour of the day": (
        OSLO + ",at", rows(NEAR, "08:15"), MAP, "--time at --every 1h", r"--every hour"
    ),
    "time zone": (
        OSLO + ",at", rows(NEAR, "1700000000"), MAP,
        "--time at --every hour", r"--timezone [A-Z]\w+/\w+",
    ),
    "layout": (
        "pcod_from,pcod_to,value", rows(CODES, "20"), MAP, OD, r"--from flowkit"
    ),
    "root": ("origin,destination", CODES, TWO_ROOTS, OD, r"--zones-root all"),
    "thousands": (
        "origin,destination,n", rows(CODES, '"1,204"'), MAP, OD + " --trips n",
        r"--thousands comma",
    ),
    "decimals": (
        "origin,destination,n", rows(CODES, '"1,204"'), MAP, OD + " --trips n",
        r"--set input.decimal_comma=true",
    ),
    "unknown codes": (
        "origin,destination", [*CODES, "z1,x9"], MAP, OD + " --max-dropped 0.1",
        r"--set input\.skip_unknown=true",
    ),
    "a matrix": (
        "zone,z0,z1,z2,z3", [f"z{i},5,6,7,8" for i in range(4)], MAP, OD + " --set input.wide=false",
        r"--set input\.wide=true",
    ),
    "small k": (OSLO, NEAR, MAP, "--k 2", r"--yes-k-below-3"),
    "many values": (
        OSLO + ",ward", rows([NEAR[i % 60] for i in range(60)] * 20, "w{n}"), MAP, "--by ward",
        r"--by-many",
    ),
    "grid": (
        "a,b", ["u4xsud,u4xsug", "u4xsue,u4xsud"] * 40, MAP, "",
        r"--zones geohash:6:[-0-9.,]+ --origin-tile a --destination-tile b",
    ),
    "projected": (
        "o_y,o_x,d_y,d_x", ["6641000.5,261000.5,6642000.5,262000.5"] * 60, MAP,
        "--origin o_y,o_x --destination d_y,d_x --within 10.5,59.8,11,60", r"--crs EPSG:\d+",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_a_message_proposes_works_when_it_is_pasted(name, tmp_path, monkeypatch, capsys):
    head, lines, zones, words, answer = CASES[name]
    monkeypatch.chdir(tmp_path)
    Path("trips.csv").write_text("\n".join([head, *lines]) + "\n")
    Path("zones.csv").write_text(zones)
    k = [] if "--k" in words else ["--k", "3"]
    base = ["anonymize", "trips.csv", *shlex.split(words), *k, "--out", "release"]
    with pytest.raises(SystemExit) as stopped:
        main(base)
    message = capsys.readouterr().err
    assert stopped.value.code in (2, 3)
    found = re.search(answer, message)
    assert found is not None, message
    proposed = shlex.split(found[0])
    if proposed[0] in base and proposed[0] != "--set":
        at = base.index(proposed[0])
        del base[at : at + 2]
    main([*base, *proposed])
    assert Path("release/report.json").exists()


def test_points_and_sightings_lead_to_trips(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    moving = [
        f"u{p},2024-01-01 {8 + i // 60:02}:{i % 60:02}:00,{59.9 + min(i % 60, 20) / 1000 + (i // 60) / 50:.4f},10.75"
        for p in range(20)
        for i in range(120)
    ]
    Path("points.csv").write_text("\n".join(["uid,time,lat,lon", *moving]))
    seen = [
        f"u{p},2024-01-01 {8 + i // 60:02}:{i % 60:02}:00,c{(i + p) // 20 % 5}"
        for p in range(20)
        for i in range(120)
    ]
    Path("seen.csv").write_text("\n".join(["imsi,time,cell_id", *seen]))
    places = [f"c{i},{59.9 + i / 50},{10.7 + i / 40}" for i in range(5)]
    Path("antennas.csv").write_text("\n".join(["cell_id,lat,lon", *places]))
    for source, command in (("points.csv", ["anonymize", "points.csv", "--out", "r"]),
                            ("seen.csv", ["anonymize", "seen.csv", "--out", "r"]),
                            ("seen.csv", ["prepare", "gps", "seen.csv", "--out", "t.parquet"])):  # fmt: skip
        with pytest.raises(SystemExit):
            main(command)
        line = re.search(r"`flowveil (prepare [^`]+)`", capsys.readouterr().err)[1]
        known = {"INPUT": source, "PLACES": "antennas.csv"}
        main([known.get(word, word) for word in line.split()])
        main(["anonymize", "trips.parquet", "--out", "release", "--k", "3", "--yes-k-below-3"])
        assert Path("release/report.json").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_everything(name):
    for command in commands(name):
        assert any("--help-all" in option.opts for option in command.params)
