"""What worker processes do: look, read, describe, try, compare, check, publish. One function for each kind of job.

A task names files that the server chose and choices that it checked. Flows are read once for each way of reading and
kept in the private folder; a process that stays has the last ones in its memory.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from flowveil.api import frontier, publish, read_zones
from flowveil.engines import read_slices, read_trips
from flowveil.errors import DataError, FlowveilError, MissingExtraError, ParameterError
from flowveil.execution import has_slices, steps_of
from flowveil.flows import Flows
from flowveil.reading.matrices import MATRIX, matrix_names
from flowveil.release.folder import ReleaseFolder
from flowveil.series.ledger import budget_against, check_ledger, recording_nothing
from flowveil.slices import SlicedFlows
from flowveil.verify.verification import verify_release
from flowveil.workbench.choices import Asked
from flowveil.workbench.inspect_input import in_words, look
from flowveil.workbench.method_options import proposed_region
from flowveil.workbench.preview import Before, figures, full, quick, shown, side_by_side, tables_of
from flowveil.zoning.files import load_table

#: Ways of reading whose flows are kept.
_MOST_KEPT = 4
#: Points of a trade-off that can be told apart on a chart, and the suppressed share up to which it is shown.
_MOST_POINTS, _LARGEST_SHARE = 24, 0.5
#: How high the chart is, and how far apart its points are at the least, as shares of its width; see tradeoff.mjs.
_HEIGHT, _APART = 0.35, 0.024
#: Files of a release that is dropped onto the workbench, and bytes that they may unpack to.
_MOST_FILES, _MOST_BYTES = 64, 4 << 30


class News(Protocol):
    """Where a task says how far it is."""

    def label(self, text: str) -> None:
        """Say what is being done."""

    def share(self, done: float) -> None:
        """Say how much of it is done."""


@dataclass
class _Memory:
    """What a process that stays knows already: the flows of one way of reading, and how they look."""

    key: str = ""
    flows: Flows | SlicedFlows | None = None
    before: Before | None = None
    whole: Flows | None = field(default=None)


_memory = _Memory()


# ---- trips in ----------------------------------------------------------------------------------------------------


def _source_of(task: Mapping[str, Any], name: str = "source") -> Path | None:
    """A file of the task, if it is still the one that was chosen."""
    if task.get(name) is None:
        return None
    path, size, changed = task[name]
    try:
        now = os.stat(path)
    except OSError:
        now = None
    if now is None or [now.st_size, now.st_mtime_ns] != [size, changed]:
        raise DataError("The file has changed since it was chosen. Hint: choose it again.")
    return Path(path)


def _map_of(task: Mapping[str, Any], asked: Asked) -> Any:
    path = _source_of(task, "zones")
    return None if path is None else read_zones(path, **asked.map_columns)


def _flows(task: Mapping[str, Any], asked: Asked, news: News) -> Flows | SlicedFlows:
    """The flows of the task: from memory, from the private folder, or read now."""
    source = _source_of(task)
    if source is None:
        raise ParameterError("There are no trips yet. Hint: drop a file first.")
    key = asked.key(json.dumps([task["source"], task.get("zones")]))
    if _memory.key == key and _memory.flows is not None:
        return _memory.flows
    kept = Path(task["room"]) / "files" / f"flows-{key}.pickle"
    found: Flows | SlicedFlows | None = None
    with suppress(FileNotFoundError), open(kept, "rb") as file:
        found = pickle.load(file)
    if found is None:
        news.label("Reading the trips")
        how = {**asked.how_read, "progress": news.share}
        zones = _map_of(task, asked)
        if zones is not None:
            how["zones"] = zones
        if has_slices(asked.request):
            sliced = read_slices(source, **how)
            found = sliced.folded() if asked.slices.get("fold_time") else sliced
        else:
            found = read_trips(source, **how)
        _keep(found, kept)
    _memory.key, _memory.flows, _memory.before, _memory.whole = key, found, None, None
    return found


def _keep(flows: Flows | SlicedFlows, place: Path) -> None:
    draft = place.with_suffix(f".{os.getpid()}")
    with open(draft, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        pickle.dump(flows, file, protocol=pickle.HIGHEST_PROTOCOL)
    os.replace(draft, place)
    old = sorted(place.parent.glob("flows-*.pickle"), key=lambda p: p.stat().st_mtime_ns)
    for path in old[:-_MOST_KEPT]:
        path.unlink(missing_ok=True)


def _before(flows: Flows | SlicedFlows) -> tuple[Flows, Before]:
    """All trips together, and how they look."""
    if _memory.before is None or _memory.whole is None:
        whole = flows.whole if isinstance(flows, SlicedFlows) else flows
        _memory.whole, _memory.before = whole, Before(whole)
    return _memory.whole, _memory.before


# ---- kinds of jobs -----------------------------------------------------------------------------------------------


def _demo(task: Mapping[str, Any], news: News) -> Any:
    from flowveil.sources.synthetic import synthetic_survey

    news.label("Making a synthetic survey")
    survey = synthetic_survey(people=task["people"])
    pq.write_table(survey, task["out"])
    return {"rows": survey.num_rows}


def _look(task: Mapping[str, Any], news: News) -> Any:
    asked = Asked.of(task["choices"])
    news.label("Looking at the columns")
    source = _source_of(task)
    if source is None:
        raise ParameterError("There are no trips yet. Hint: drop a file first.")
    given = {name: value for name, value in asked.reading.items() if name not in ("within", "same_zones")}
    if asked.slices.get("time") and asked.slices.get("every"):
        given |= {"time": asked.slices["time"], "every": steps_of(asked.request)[0]}
    matrices = matrix_names(source) if source.suffix.casefold() == ".omx" else ()
    if len(matrices) > 1 and "matrix" not in given:
        # They are not added up: each becomes a slice, as on the command line.
        given["by"] = (MATRIX,)
    mapped, zones, trouble = _source_of(task, "zones"), None, None
    names = [] if mapped is None else load_table(mapped)[0].column_names
    try:
        zones = _map_of(task, asked)
    except FlowveilError as problem:
        # What its columns are is chosen beside those of the trips: they must be shown all the same.
        trouble = str(problem)
    found = look(source, given, zones)
    wrong = trouble or found["problem"]
    found["problem"] = wrong and in_words(wrong, task)
    return {**found, "matrices": list(matrices), "map_columns": names}


def _read(task: Mapping[str, Any], news: News) -> Any:
    asked = Asked.of(task["choices"])
    flows = _flows(task, asked, news)
    intake, one = flows.intake, flows.slices[0] if isinstance(flows, SlicedFlows) else flows
    return {
        "rows": intake.rows,
        "left_out": dict(intake.left_out),
        "nobody": dict(intake.nobody),
        "notes": list(intake.notes),
        "columns": dict(intake.columns),
        "resolution": intake.resolution,
        "slices": len(flows) if isinstance(flows, SlicedFlows) else None,
        "people": one.people is not None,
        "weight": one.weight is not None,
        # Noise is for one matrix.
        "region": {} if isinstance(flows, SlicedFlows) else proposed_region(flows),
    }


def _describe(task: Mapping[str, Any], news: News) -> Any:
    from flowveil.analysis.description import describe_flows

    asked = Asked.of(task["choices"])
    whole, _ = _before(_flows(task, asked, news))
    news.label("Counting what is safe already")
    given = {name: asked.thresholds[name] for name in ("k", "protect", "max_suppressed") if name in asked.thresholds}
    return describe_flows(whole, **given, hierarchy=asked.hierarchy).to_dict()


def _preview(task: Mapping[str, Any], news: News) -> Any:
    asked = Asked.of(task["choices"])
    flows = _flows(task, asked, news)
    whole, before = _before(flows)
    news.label("Preview")
    folded = whole.times is not None
    return {**shown(full(asked, whole, None) if folded else quick(asked, whole), before), "choices": task["choices"]}


def _run(task: Mapping[str, Any], news: News) -> Any:
    asked = Asked.of(task["choices"])
    flows = _flows(task, asked, news)
    _, before = _before(flows)
    news.label("Full run")
    release = full(asked, flows, news.share)
    for table, name in zip(tables_of(release), ("flows", "zones"), strict=True):
        pq.write_table(table, Path(task["result"]).with_suffix(f".{name}"))
    return {**shown(release, before), "choices": task["choices"], "method": release.method}


def _frontier(task: Mapping[str, Any], news: News) -> Any:
    asked = Asked.of(task["choices"])
    whole, _ = _before(_flows(task, asked, news))
    if not asked.thresholds:
        raise ParameterError("A method that adds noise suppresses nothing: there is no such trade-off.")
    if whole.times is not None or whole.same_zones:
        raise ParameterError("The trade-off is computed for places with zones of their own at each end, without times.")
    if whole.origins.geography is None or whole.destinations.geography is None:
        raise ParameterError("The map does not say where its zones are, so there are no metres. Hint: skip this step.")
    news.label("Following the trade-off")
    named = ("k", "protect", "k_population", "l")
    points = frontier(
        whole,
        method="paircut" if asked.method == "paircut" else "twincut",
        objective="metres",
        hierarchy=asked.hierarchy,
        up_to=_LARGEST_SHARE,
        progress=news.share,
        **{name: asked.thresholds[name] for name in named if name in asked.thresholds},
    )
    return {
        "points": _thinned([(p.suppressed_share, p.value) for p in points if p.suppressed_share <= _LARGEST_SHARE]),
        "k": asked.thresholds["k"],
    }


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that can be told apart, and hit, on a chart: at most so many, none upon another, both ends among them."""
    if len(points) < 2:
        return points
    wide, high = max(p[0] for p in points) or 1.0, max(p[1] for p in points) or 1.0
    apart, kept = _APART, points
    while True:
        kept = points[:1]
        for point in points[1:]:
            if _distance(kept[-1], point, wide, high) >= apart:
                kept.append(point)
        if kept[-1] != points[-1]:
            # The finest has to be there; what it would lie upon has not.
            kept = [p for p in kept if p == points[0] or _distance(p, points[-1], wide, high) >= apart] + points[-1:]
        if len(kept) <= _MOST_POINTS:
            return kept
        apart *= 1.1


def _distance(one: tuple[float, float], other: tuple[float, float], wide: float, high: float) -> float:
    """How far apart two points are drawn, in widths of the chart."""
    return math.hypot((one[0] - other[0]) / wide, _HEIGHT * (one[1] - other[1]) / high)


def _beside(task: Mapping[str, Any], news: News) -> Any:
    asked = Asked.of(task["choices"])
    _, before = _before(_flows(task, asked, news))
    news.label("Putting maps side by side")
    tables = [(pq.read_table(f"{stem}.flows"), pq.read_table(f"{stem}.zones")) for stem in task["pins"]]
    return {"map": side_by_side(tables, before)}


def _check(task: Mapping[str, Any], news: News) -> Any:
    """What a release would say of itself, and what subtracting it from earlier ones would reveal."""
    from flowveil.audit.auditing import audit
    from flowveil.audit.pages import audit_lines
    from flowveil.audit.published import published_release, read_release
    from flowveil.publication import folder_content
    from flowveil.published.headline import sides

    asked = Asked.of(task["choices"])
    flows = _flows(task, asked, news)
    _, before = _before(flows)
    news.label("Making the release")
    release = full(asked, flows, news.share)
    report = folder_content(release, formats=asked.formats, **asked.about).report
    protected, not_protected, rest = sides(report["published"]["sentences"])
    found: dict[str, Any] = {"compared": [name for name, _ in task["releases"]], "failures": [], "lines": []}
    found["verdict"], found["not_compared"] = "", []
    if task.get("ledger") is not None:
        news.label("Comparing with the ledger")
        held = check_ledger(release, ledger=task["ledger"], **asked.about)
        found["ledger"] = held.releases
        if release.kind == "noisy":
            found["budget"] = budget_against(release, ledger=task["ledger"]).to_dict()
        found["failures"] = [] if held.is_clean else [held.in_words()]
    if task["releases"]:
        news.label("Comparing with earlier releases")
        found["failures"] += _spent(release, task["releases"])
        own = published_release(release.flows, release.zones, report, name="this release")
        try:
            earlier = [replace(read_release(folder), name=title) for title, folder in task["releases"]]
            made = audit([own, *earlier])
        except MissingExtraError as problem:
            found["failures"] += [str(problem)]
        else:
            found["failures"] += made.failures
            found["lines"], found["verdict"] = list(audit_lines(made)), made.sentence
            found["not_compared"] = made.not_compared
    return {
        "choices": task["choices"],
        "protected": protected,
        "not_protected": not_protected,
        "rest": rest,
        "figures": figures(release, *tables_of(release), before),
        "audit": found,
    }


def _spent(release: Any, earlier: list[tuple[str, str]]) -> list[str]:
    """Noise protects against subtraction, not against being drawn again: what each draw promises adds up."""
    noisy = [title for title, folder in earlier if ReleaseFolder(Path(folder)).report["kind"] == "noisy"]
    if release.kind != "noisy" or not noisy:
        return []
    return [
        f"Noise was drawn before ({', '.join(noisy)}). If it was for the same trips, the privacy losses (epsilon) of "
        "all draws add up, and together they promise less than each says."
    ]


def _publish(task: Mapping[str, Any], news: News) -> Any:
    asked = Asked.of(task["choices"])
    flows = _flows(task, asked, news)
    news.label("Anonymising")
    recorded = task.get("recorded", {})
    with recording_nothing(recorded.get("ledger")):
        release = full(asked, flows, news.share)
    news.label("Writing and recounting")
    folder = Path(task["out"])
    publish(release, folder, formats=asked.formats, **asked.about, **recorded)
    news.label("Recounting from the file")
    source = _source_of(task)
    zones = _map_of(task, asked)
    # What noise happens to be decides nothing: published is the draw, not the best of several.
    found = verify_release(folder, against=source, noise=False, **({} if zones is None else {"zones": zones}))
    if not found.holds:
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError("The recount contradicts the release; nothing is published:\n" + "\n".join(found.findings))
    news.label("Packing")
    names = sorted(path.name for path in folder.iterdir())
    _pack(folder, names, folder.with_suffix(".zip"))
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {
        "files": names,
        "statement": report["published"]["sentences"],
        "kind": report["kind"],
        "method": report["method"],
    }


def _pack(folder: Path, names: list[str], target: Path) -> None:
    """The files of a release as one; the same release gives the same bytes."""
    with zipfile.ZipFile(target, "w") as packed:
        for name in names:
            entry = zipfile.ZipInfo(f"release/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with open(folder / name, "rb") as file, packed.open(entry, "w") as out:
                shutil.copyfileobj(file, out)


def _unpack(task: Mapping[str, Any], news: News) -> Any:
    """Unpack a release that was dropped: plain names only, as many bytes as there may be, and read it."""
    from flowveil.audit.published import read_release, stated

    news.label("Unpacking a release")
    out = Path(task["out"])
    os.mkdir(out, 0o700)
    try:
        with zipfile.ZipFile(task["packed"]) as packed:
            entries = [entry for entry in packed.infolist() if not entry.is_dir()]
            if len(entries) > _MOST_FILES or sum(entry.file_size for entry in entries) > _MOST_BYTES:
                raise DataError("The zip holds too much for a release.")
            for entry in entries:
                name = entry.filename.rpartition("/")[2]
                if not name or name.startswith(".") or "\\" in name or (out / name).exists():
                    raise DataError("The zip holds files that are not those of a release.")
                with packed.open(entry) as file, open(out / name, "xb") as target:
                    _copy(file, target, entry.file_size)
        release = read_release(out)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        RuntimeError,
    ) as problem:
        shutil.rmtree(out, ignore_errors=True)
        if isinstance(problem, DataError):
            raise
        raise DataError("This is not a zip of a release. Hint: drop one that the workbench made.") from None
    return {"method": release.report["method"], "about": dict(stated(release.report).get("about", {}))}


def _copy(file: Any, target: Any, most: int) -> None:
    """Copy no more than the zip says: what it says is not always true."""
    while block := file.read(1 << 20):
        most -= len(block)
        if most < 0:
            raise DataError("The zip holds too much for a release.")
        target.write(block)


WORK: dict[str, Callable[[Mapping[str, Any], News], Any]] = {
    "demo": _demo,
    "look": _look,
    "read": _read,
    "describe": _describe,
    "preview": _preview,
    "run": _run,
    "frontier": _frontier,
    "beside": _beside,
    "check": _check,
    "publish": _publish,
    "unpack": _unpack,
}
