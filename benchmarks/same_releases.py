"""Whether two states of the code make the same releases.

Run the same commands with each, then compare.

    python -m benchmarks.same_releases make OUT [--only TEXT]      with the flowveil that Python finds
    python -m benchmarks.same_releases compare OLD NEW

A restructuring must not change what is published. Tables and exports are compared byte by byte.
report.json may differ in ``kind``, in the form of ``boxes`` and ``suppression`` and in words. HTML
and SVG are compared as parsed documents: the same elements, attributes, numbers and embedded data,
whatever the words. Every run draws new noise: of noisy releases, the entries of report.json are
compared and not their values; the tests hold folders of equal noise equal.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ALL_FORMATS = "csv,geojson,gpkg,omx,flowmap,kepler,arrow"
TREE_METHODS = (
    "layercut",
    "twincut",
    "paircut",
    "odkanon",
    "atg-dual",
    "atg-soft",
    "oigh",
    "suppression",
)
BOX_METHODS = ("mondrian", "glove", "glove-sk", "curvecut")
NOISY_METHODS = ("laplace", "topdown", "privtree")

#: Entries of report.json that hold sentences, or whose form may change.
WORDS = {"statement", "notes", "withheld", "command", "title"}
FREE = {"kind", "boxes", "suppression", "version"}
#: Attributes that hold words.
SPOKEN = {
    "aria-label",
    "title",
    "alt",
    "content",
    "aria-roledescription",
    "placeholder",
    "summary",
    "srcdoc",
}
#: Differences that are listed of one file.
MOST_SHOWN = 6
NUMBER = re.compile(r"\d[\d,.]*")


# ---- the commands --------------------------------------------------------------------------------


def commands(survey: Path) -> Iterator[tuple[str, list[str]]]:
    """Name and words of every command; OUT is replaced by its output."""
    base = ["anonymize", str(survey), "--resolution", "8", "--k", "10", "--weight", "weight"]
    for method in (*TREE_METHODS, *BOX_METHODS):
        yield (
            f"survey-{method}",
            [
                *base,
                "--method",
                method,
                "--protect",
                "trips",
                "--format",
                ALL_FORMATS,
            ],
        )
        yield f"survey-{method}-people", [*base, "--method", method, "--protect", "people"]
    for method in TREE_METHODS:
        combined = ["--protect", "people", "--protect", "population"]
        alone = ["--protect", "population", "--population-only", "--format", "csv"]
        yield f"survey-{method}-population", [*base, "--method", method, *alone]
        yield f"survey-{method}-combined-l", [*base, "--method", method, *combined, "--l", "2"]
    plain = ["anonymize", str(survey), "--resolution", "7"]
    around = ["--option", "bound=5", "--option", "region=841fb47ffffffff"]
    for method in NOISY_METHODS:
        yield f"survey-{method}", [*plain, "--method", method, "--option", "epsilon=1", *around]
    for method in ("twincut", "paircut"):
        yield (
            f"survey-{method}-h3",
            [
                *base,
                "--method",
                method,
                "--hierarchy",
                "h3",
                "--protect",
                "people",
            ],
        )
    yield "survey-same-zones", [*base, "--same-zones", "--protect", "people"]
    folded = ["--time", "start_time", "--every", "hour", "--fold-time", "--method", "paircut"]
    yield "survey-folded", [*base, *folded, "--protect", "people"]
    by_sex = ["--by", "sex", "--protect", "people"]
    yield "survey-sex", [*base, *by_sex, "--format", "csv,arrow"]
    yield "survey-sex-common", [*base, *by_sex, "--common-zones"]
    yield "survey-hours", [*base, "--time", "start_time", "--every", "hour", "--protect", "people"]
    yield (
        "survey-study",
        [
            "study",
            str(survey),
            "--resolution",
            "7",
            "--by",
            "sex",
            "--methods",
            "odkanon,oigh",
        ],
    )
    yield (
        "survey-compare",
        [
            "compare",
            str(survey),
            "--resolution",
            "7",
            "--methods",
            "odkanon,twincut",
            "--k",
            "10",
        ],
    )
    yield "survey-describe", ["describe", str(survey), "--resolution", "8", "--json"]
    yield "demo", ["demo"]
    yield from _public()


def _public() -> Iterator[tuple[str, list[str]]]:
    """Public data sets, where they are."""
    if not DATA.is_dir():
        return
    skipping = ["--set", "input.skip_unknown=true", "--max-dropped", "0.5"]
    santiago = ["anonymize", str(DATA / "santiago_taxi/trips.parquet"), "--origin", "o_lat,o_lon"]
    santiago += ["--destination", "d_lat,d_lon", "--resolution", "8", "--protect", "trips"]
    for method in ("layercut", "twincut", "odkanon", "atg-dual", "mondrian"):
        yield f"santiago-{method}", [*santiago, "--method", method]
    cabs = [
        "anonymize",
        str(DATA / "cabspotting_sf/trips.parquet"),
        "--resolution",
        "8",
        "--person",
        "cab_id",
    ]
    yield "cabs-people", [*cabs, "--method", "twincut", "--protect", "people"]
    legs = ["anonymize", str(DATA / "montpellier_emd/legs.parquet"), "--origin-tile", "o_zone"]
    legs += [
        "--destination-tile",
        "d_zone",
        "--zones",
        str(DATA / "montpellier_emd/zone_hierarchy.csv"),
    ]
    legs += ["--zones-levels", "sector,zone", *skipping]
    legs += ["--person", "person_id", "--weight", "w_person_COEP", "--protect", "people"]
    yield "montpellier", [*legs, "--method", "twincut"]
    taxi = [
        "anonymize",
        str(DATA / "nyc_green_taxi_zones/trips.parquet"),
        "--origin-tile",
        "PULocationID",
    ]
    taxi += [
        "--destination-tile",
        "DOLocationID",
        "--zones",
        str(DATA / "nyc_green_taxi_zones/zones.geojson"),
    ]
    taxi += ["--zones-tile", "LocationID", *skipping, "--protect", "trips"]
    yield "taxi-zones", [*taxi, "--method", "twincut", "--format", "omx,geojson"]
    bristol = [
        "anonymize",
        str(DATA / "bristol/bristol_od.csv"),
        "--origin-tile",
        "o",
        "--destination-tile",
        "d",
    ]
    bristol += [
        "--trips",
        "all",
        "--zones",
        str(DATA / "bristol/bristol_zones.geojson"),
        "--zones-tile",
        "geo_code",
    ]
    yield "bristol", [*bristol, "--method", "twincut", *skipping, "--protect", "trips"]


def make(out: Path, only: str) -> None:
    """Runs every command into a separate folder, with what it prints."""
    import pyarrow.parquet as pq

    from flowveil.apps.cli import main
    from flowveil.reading.sources.synthetic import synthetic_survey

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        survey = Path(scratch) / "survey.parquet"
        pq.write_table(synthetic_survey(people=500), survey)
        for name, words in commands(survey):
            if only not in name:
                continue
            started = time.perf_counter()
            target = out / name
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            writes = [] if words[0] == "describe" else ["--out", str(target / "out")]
            said, wrong, code = io.StringIO(), io.StringIO(), 0
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
                try:
                    main([*words, *writes])
                except SystemExit as end:
                    code = int(end.code or 0)
            (target / "code.json").write_text(json.dumps(code), encoding="utf-8")
            if words[0] == "describe":
                (target / "out.json").write_text(said.getvalue(), encoding="utf-8")
            if words[0] == "anonymize" and code == 0:
                # A map without coordinates has no picture.
                with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                    main(
                        [
                            "picture",
                            str(target / "out"),
                            "--show",
                            "both",
                            "--out",
                            str(target / "both.svg"),
                        ]
                    )
            note = "" if code == 0 else f" exit {code}: {wrong.getvalue().strip()[:200]}"
            print(f"{name}: {time.perf_counter() - started:.1f} s{note}", flush=True)


# ---- the comparison ------------------------------------------------------------------------------


def differences(old: Path, new: Path) -> Iterator[str]:
    """One line for every difference that is not allowed."""
    one, other = ({str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()} for f in (old, new))
    for name in sorted(one ^ other):
        yield f"{name}: only in the {'old' if name in one else 'new'}"
    for name in sorted(one & other):
        a, b = (old / name).read_bytes(), (new / name).read_bytes()
        noisy = any(method in name for method in NOISY_METHODS)
        if a == b or (noisy and not name.endswith("report.json")):
            continue
        if noisy:
            yield from _in_data(name, *(_entries(json.loads(x)) for x in (a, b)))
            continue
        if name.endswith("manifest.json"):
            yield from _in_data(name, *(_without_hashes(json.loads(x)) for x in (a, b)))
        elif name.endswith("report.json") or name.endswith("out.json"):
            yield from _in_data(name, json.loads(a), json.loads(b))
        elif name.endswith((".html", ".svg")):
            yield from _in_document(name, a.decode(), b.decode())
        elif name.endswith((".md", ".tex", ".csv")) and ("study" in name or "compare" in name):
            yield from _in_words(name, _untimed(a.decode()), _untimed(b.decode()))
        elif "study" in name or "compare" in name:
            continue
        else:
            yield f"{name}: other bytes"


def _untimed(text: str) -> str:
    """Without times, which no two runs share."""
    return re.sub(r"\d+\.\d+", "", text)


def _entries(content: Any) -> Any:
    return (
        {key: _entries(value) for key, value in content.items()}
        if isinstance(content, dict)
        else None
    )


def _without_hashes(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "sha256": sorted(manifest["sha256"])}


def _in_data(where: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other)):
            if key in FREE:
                continue
            if key in WORDS:
                yield from _in_words(
                    f"{where}: {key}", json.dumps(one.get(key)), json.dumps(other.get(key))
                )
            elif key not in one or key not in other:
                yield f"{where}: '{key}' is only in the {'old' if key in one else 'new'}"
            else:
                yield from _in_data(f"{where}: {key}", one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _in_data(f"{where}[{number}]", a, b)
    elif isinstance(one, str) and isinstance(other, str):
        yield from _in_words(where, one, other)
    elif one != other:
        yield f"{where}: {str(one)[:60]} became {str(other)[:60]}"


def _in_words(where: str, one: str, other: str) -> Iterator[str]:
    """Words may change; the numbers among them may not."""
    if NUMBER.findall(one) != NUMBER.findall(other):
        yield f"{where}: other numbers in '{one[:80]}' and '{other[:80]}'"


class _Reader(HTMLParser):
    """A document as a list of elements, the numbers in its text, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[tuple[str, str], ...]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self._inside = tag
        kept = tuple(sorted((k, " ".join((v or "").split())) for k, v in attrs if k not in SPOKEN))
        self.elements.append((tag, kept))

    def handle_endtag(self, _: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.scripts.append(data)
        else:
            self.text.extend(NUMBER.findall(data))


def _in_document(where: str, one: str, other: str) -> Iterator[str]:
    a, b = _Reader(one), _Reader(other)
    if a.elements != b.elements:
        first = next(
            (i for i, (x, y) in enumerate(zip(a.elements, b.elements, strict=False)) if x != y), -1
        )
        shown = f"{a.elements[first]} / {b.elements[first]}" if first >= 0 else "one is longer"
        yield (
            f"{where}: other elements ({len(a.elements)}, {len(b.elements)}); first: {shown[:300]}"
        )
    if a.text != b.text:
        first = next(
            (i for i, (x, y) in enumerate(zip(a.text, b.text, strict=False)) if x != y), -1
        )
        yield (
            f"{where}: other numbers in its text: {a.text[first : first + 4]} /"
            f" {b.text[first : first + 4]}"
        )
    for x, y in zip(a.scripts, b.scripts, strict=False):
        if x.strip().startswith("{") and '":' in x[:40]:
            yield from _in_data(f"{where}: data", json.loads(x), json.loads(y))
        elif "".join(x.split()) != "".join(y.split()):
            yield f"{where}: another script or style"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="commands with this in their name")
    given = parser.parse_args()
    if given.what == "make":
        make(given.folders[0], given.only)
        return
    old, new = given.folders
    found = list(differences(old, new))
    for where, lines in groupby(found, key=lambda line: line.partition(":")[0]):
        shown = list(lines)
        print(
            "\n".join(shown[:MOST_SHOWN])
            + (
                f"\n  and {len(shown) - MOST_SHOWN} more in {where}"
                if len(shown) > MOST_SHOWN
                else ""
            )
        )
    print(f"{len(found)} differences" if found else "no difference")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
