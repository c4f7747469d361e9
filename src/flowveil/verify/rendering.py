"""Whether the page, the texts and the text exports of a folder are what its tables and its report come to.

Everything that people read in a release follows from flows.parquet, zones.parquet and the numbers of report.json, which
are recounted elsewhere. So it is made again, with the renderers that made it, and compared byte by byte: a word, a
script or a number more is found wherever it stands. Another version may have other words; what it made is not compared.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowveil import __version__
from flowveil.paths import open_regular, read_json
from flowveil.verify.files import CONTEXT
from flowveil.verify.measures import REVEAL_INSIDE, REVEAL_SEEN, REVEAL_SUPPRESSED, REVEAL_TERMS
from flowveil.verify.noise import OF_TRUE_COUNTS
from flowveil.verify.revision import WITHHELD, releases_of
from flowveil.verify.structure import check_structure, not_read
from flowveil.verify.withholding import check_listed

#: Formats that are text, and so compared byte by byte; the others are read by readers of their own.
_TEXT = (".csv", ".geojson", ".json")
_NOT_ALIKE = "flows.parquet, zones.parquet: not read alike by two libraries"
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,39}")


def not_compared(folder: Path) -> str | None:
    """Why the rendering of a folder cannot be compared, or None where it can be: another version made it."""
    try:
        version = read_json(folder / "report.json")["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _made_by_another(version)


def _made_by_another(version: Any) -> str | None:
    if version == __version__:
        return None
    # What is not a version may be a message.
    known = isinstance(version, str) and _VERSION.fullmatch(version)
    return f"rendering not compared: made by {f'flowveil {version}' if known else 'an unknown version'}"


def check_rendering(folder: Path, report: Mapping[str, Any], unread: list[str]) -> Iterator[str]:
    """Compare what is rendered, byte by byte, where this version made it.

    Args:
        folder: a release that holds in everything else.
        report: the content of its report.json.
        unread: gets what is not read of a release of another version.
    """
    if not_compared(folder) is not None:
        from flowveil.published.html import tile_server
        from flowveil.published.report import cross_check

        if report["kind"] != "noisy" and report["cross_check"] != cross_check(report):
            yield "report.json: its cross_check is not what its other entries come to"
        strange = [*_strange_words(report), *_strange_outlines(folder, report)]
        yield from strange
        if strange:
            return
        zones = _table(folder / "zones.parquet")
        if zones is None:
            yield _NOT_ALIKE
            return
        yield from check_structure(folder, zones, basemap=tile_server(report.get("basemap")))
        unread += not_read(folder)
        return
    strange = [*_strange_reasons(report), *_strange_words(report), *_strange_outlines(folder, report)]
    yield from strange
    # What is not a release's own may make a renderer fail.
    if not strange:
        yield from _differences(folder, report)


def _differences(folder: Path, report: Mapping[str, Any]) -> Iterator[str]:
    from flowveil.published.exports import FORMATS
    from flowveil.published.html import render
    from flowveil.published.report import json_text, manifest, words
    from flowveil.published.user_outlines import own_lines

    written = [f for f in FORMATS.values() if all((folder / name).is_file() for name in f.files)]
    said = words(report, [f.name for f in written])
    for name, value in said.items():
        if report[name] != value:
            yield f"report.json: its {name} is not what its other entries come to"
    if (folder / "report.json").read_bytes() != json_text(report).encode():
        yield "report.json: its text is not written as a release writes it"
    listed = json.loads((folder / "manifest.json").read_bytes())["sha256"]
    if (folder / "manifest.json").read_bytes() != json_text(manifest(report, listed)).encode():
        yield "manifest.json: is not what report.json and the files come to"
    flows, zones = (_table(folder / name) for name in ("flows.parquet", "zones.parquet"))
    if flows is None or zones is None:
        yield _NOT_ALIKE
        return
    outlines = own_lines((folder / CONTEXT).read_text("utf-8")) if "context" in report else ()
    if (folder / "report.html").read_bytes() != render(report, flows, zones, outlines=outlines).encode():
        yield "report.html: is not the page that report.json and the tables come to"
    with tempfile.TemporaryDirectory(prefix="flowveil-") as place:
        for wanted in written:
            texts = [name for name in wanted.files if name.endswith(_TEXT)]
            if not texts:
                continue
            wanted.write(Path(place), flows, zones, report["about"])
            for name in texts:
                if (Path(place) / name).read_bytes() != (folder / name).read_bytes():
                    yield f"{name}: is not what the tables come to"


def _table(path: Path) -> Any | None:
    """A table as the page's maker reads it; None where that fails, though the recount could read it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, partitioning=None, memory_map=False)
    except (OSError, pa.ArrowException):
        return None


def check_series_page(place: Path, index: Mapping[str, Any], unread: list[str]) -> Iterator[str]:
    """Compare index.json and the page of a series, byte by byte, where this version made them.

    Args:
        place: the folder of a series whose index and totals hold.
        index: the content of its index.json.
        unread: gets a line where another version made them.
    """
    reason = _made_by_another(index["version"])
    if reason is not None:
        unread.append(f"index.html: {reason}")
        return
    from flowveil.published.series import render_series

    if (place / "index.json").read_text(encoding="utf-8") != _series_text(index):
        yield "index.json: its text is not written as a series writes it"
    tables = ("flows.parquet", "zones.parquet")
    steps: dict[str, Any] = {
        entry["step"]: tuple(_table(place / releases_of(entry)[-1] / name) for name in tables)
        for entry in index["steps"]
    }
    if any(table is None for found in steps.values() for table in found):
        yield _NOT_ALIKE
        return
    if (place / "index.html").read_bytes() != render_series(index, steps).encode():
        yield "index.html: is not the page that the steps come to"


def _series_text(index: Mapping[str, Any]) -> str:
    return json.dumps(index, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _strange_words(report: Mapping[str, Any]) -> Iterator[str]:
    """Of the texts that are not from the tables or the program, only such as a release can have."""
    from flowveil.errors import ParameterError
    from flowveil.published.about import checked
    from flowveil.published.html import tile_server

    try:
        tile_server(report.get("basemap"))
    except ParameterError:
        yield "report.json: the address of its background map is not one that a release can have"
    try:
        if checked(report["about"]) != report["about"]:
            yield "report.json: what it says that it is about has blanks around it"
    except ParameterError:
        yield "report.json: what it says that it is about is not what a release can say"


def _strange_outlines(folder: Path, report: Mapping[str, Any]) -> Iterator[str]:
    """Outlines of the publisher's own are lines and names, and there where report.json says so."""
    from flowveil.published.user_outlines import own_lines

    there = (folder / CONTEXT).is_file()
    if there != ("context" in report):
        yield f"{CONTEXT}: {'not named in report.json' if there else 'missing'}"
    if not there:
        return
    try:
        with open_regular(folder / CONTEXT) as file:
            own_lines(file.read().decode("utf-8"))
    except (OSError, ValueError):
        yield f"{CONTEXT}: is not what a release can have"


def _strange_reasons(report: Mapping[str, Any]) -> Iterator[str]:
    """Reasons for withholding are words of the program, and what is listed as withheld is what they are reasons for.

    Which values may be missing, and that none is missing that is not listed, is recounted elsewhere.
    """
    from flowveil.published.report import AND

    yield from check_listed(report)
    for part in (report, *report.get("slices", ())):
        withheld = part["withheld"]
        if withheld is None:
            continue
        reasons = withheld["reason"].split(AND)
        if not set(reasons) <= set(_concerned()) or len(reasons) != len(set(reasons)):
            yield "report.json: a reason for withholding is not one that a release can have"
            continue
        listed = withheld["measures"]
        if not any(listed.values()):
            yield "report.json: has a reason for withholding where nothing is withheld"
        if any(part["measures"][basis].get(name) is not None for basis in listed for name in listed[basis]):
            yield "report.json: a measure is listed as withheld, but has a value"
        if listed != {basis: sorted(_hidden(report, reasons, basis)) for basis in part["measures"]}:
            yield "report.json: the measures listed as withheld are not those that its reasons concern"


def _concerned() -> dict[str, set[str]]:
    """The measures that each reason for withholding concerns."""
    from flowveil.published.report import REASONS

    values, even, few_merged, few_coarse, beside, sums, total, true_counts, revised = REASONS
    return {
        **dict.fromkeys((values, beside, total), REVEAL_SUPPRESSED),
        **dict.fromkeys((even, few_merged), REVEAL_INSIDE),
        few_coarse: REVEAL_SEEN,
        sums: REVEAL_TERMS,
        true_counts: OF_TRUE_COUNTS,
        revised: WITHHELD,
    }


def _hidden(report: Mapping[str, Any], reasons: Sequence[str], basis: str) -> set[str]:
    """The measures that these reasons concern in a report."""
    families = [_concerned()[reason] for reason in reasons]
    hidden = set().union(*families)
    if REVEAL_SUPPRESSED in families and report["parameters"].get("k_population") is None:
        # Counted against the mean weight of all trips, the suppressed ones included.
        hidden |= {"c_avg"} if basis == "weight" else set()
        hidden |= set() if "population" in report["guarantee"] else {"cells_under_k_population"}
    return hidden
