"""Tasks of worker processes: one function for each kind of job.

A task names files that the server chose and choices that it checked. Flows are read once for each way of reading and
cached in the private folder; a process that stays alive has the last ones in memory.
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
from flowveil.publication import folder_content
from flowveil.reading.matrices import MATRIX, matrix_names
from flowveil.release.folder import ReleaseFolder
from flowveil.series.ledger import budget_against, check_ledger, recording_nothing
from flowveil.slices import SlicedFlows
from flowveil.verify.verification import verify_release
from flowveil.workbench.choices import NO_TRIPS, PageRequest, derivation_of
from flowveil.workbench.inspect_input import inspect_input, with_upload_names
from flowveil.workbench.method_options import proposed_region
from flowveil.workbench.preview import (
    InputMap,
    candidate_maps,
    full_release,
    map_tables,
    quick_release,
    release_figures,
    release_map,
    release_view,
    slice_tables,
)
from flowveil.workbench.sign_off import sign_off_sentence, write_certificate
from flowveil.zoning.files import load_table

#: Upper bound for cached flows.
_MOST_KEPT = 4
#: Upper bounds for the points of a trade-off on the chart and for their suppressed share.
_MOST_POINTS, _LARGEST_SHARE = 24, 0.5
#: Height of the chart and smallest distance of its points, as shares of its width; see tradeoff.mjs.
_HEIGHT, _APART = 0.35, 0.024
#: Upper bounds for the files and unpacked bytes of an uploaded release.
_MOST_FILES, _MOST_BYTES = 64, 4 << 30


class Progress(Protocol):
    """Receives the progress of a task."""

    def label(self, text: str) -> None:
        """Reports the current step."""

    def share(self, done: float) -> None:
        """Reports the share that is done."""


@dataclass
class _Memory:
    """Cache of a process that stays alive: the flows of one way of reading, and their map."""

    key: str = ""
    flows: Flows | SlicedFlows | None = None
    before: InputMap | None = None
    whole: Flows | None = field(default=None)


_memory = _Memory()


# ---- trips in ----------------------------------------------------------------------------------------------------


def _source_of(task: Mapping[str, Any], name: str = "source") -> Path | None:
    """Returns a file of the task; None if it is not set.

    Raises:
        DataError: the file has changed since it was chosen.
    """
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


def _map_of(task: Mapping[str, Any], asked: PageRequest) -> Any:
    path = _source_of(task, "zones")
    return None if path is None else read_zones(path, **asked.map_columns)


def _flows(task: Mapping[str, Any], asked: PageRequest, progress: Progress) -> Flows | SlicedFlows:
    """Returns the flows of the task, from memory, from the private folder or from the input."""
    source = _source_of(task)
    if source is None:
        raise ParameterError(NO_TRIPS)
    key = asked.key(json.dumps([task["source"], task.get("zones")]))
    if _memory.key == key and _memory.flows is not None:
        return _memory.flows
    kept = Path(task["room"]) / "files" / f"flows-{key}.pickle"
    found: Flows | SlicedFlows | None = None
    with suppress(FileNotFoundError), open(kept, "rb") as file:
        found = pickle.load(file)
    if found is None:
        progress.label("Reading the trips")
        how = {**asked.read_arguments, "progress": progress.share}
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


def _before(flows: Flows | SlicedFlows) -> tuple[Flows, InputMap]:
    """Returns the trips of all slices together, and their map."""
    if _memory.before is None or _memory.whole is None:
        whole = flows.whole if isinstance(flows, SlicedFlows) else flows
        _memory.whole, _memory.before = whole, InputMap(whole)
    return _memory.whole, _memory.before


# ---- kinds of jobs -----------------------------------------------------------------------------------------------


def _demo(task: Mapping[str, Any], progress: Progress) -> Any:
    from flowveil.sources.synthetic import synthetic_survey

    progress.label("Making a synthetic survey")
    survey = synthetic_survey(people=task["people"])
    pq.write_table(survey, task["out"])
    return {"rows": survey.num_rows}


def _inspect(task: Mapping[str, Any], progress: Progress) -> Any:
    asked = PageRequest.from_choices(task["choices"])
    progress.label("Inspecting the columns")
    source = _source_of(task)
    if source is None:
        raise ParameterError(NO_TRIPS)
    given = {name: value for name, value in asked.reading.items() if name not in ("within", "same_zones")}
    if asked.slices.get("time") and asked.slices.get("every"):
        given |= {"time": asked.slices["time"], "every": steps_of(asked.request)[0]}
        given |= {name: asked.slices[name] for name in ("timezone", "time_format") if name in asked.slices}
    matrices = matrix_names(source) if source.suffix.casefold() == ".omx" else ()
    if len(matrices) > 1 and "matrix" not in given:
        # Each matrix becomes a slice, as on the command line.
        given["by"] = (MATRIX,)
    mapped, zones, trouble = _source_of(task, "zones"), None, None
    names = [] if mapped is None else load_table(mapped)[0].column_names
    try:
        zones = _map_of(task, asked)
    except FlowveilError as problem:
        # The page shows the columns of the map next to those of the trips, also where they are not recognised yet.
        trouble = str(problem)
    found = inspect_input(source, given, zones)
    wrong = trouble or found["problem"]
    found["problem"] = wrong and with_upload_names(wrong, task)
    return {**found, "matrices": list(matrices), "map_columns": names}


def _read(task: Mapping[str, Any], progress: Progress) -> Any:
    asked = PageRequest.from_choices(task["choices"])
    flows = _flows(task, asked, progress)
    intake, one = flows.intake, flows.slices[0] if isinstance(flows, SlicedFlows) else flows
    return {
        "rows": intake.rows,
        "dropped": dict(intake.left_out),
        "without_person": dict(intake.nobody),
        "notes": list(intake.notes),
        "columns": dict(intake.columns),
        "resolution": intake.resolution,
        "slices": len(flows) if isinstance(flows, SlicedFlows) else None,
        "people": one.people is not None,
        "weight": one.weight is not None,
        # Noise is drawn for one matrix.
        "region": {} if isinstance(flows, SlicedFlows) else proposed_region(flows),
    }


def _describe(task: Mapping[str, Any], progress: Progress) -> Any:
    from flowveil.analysis.description import describe_flows

    asked = PageRequest.from_choices(task["choices"])
    whole, _ = _before(_flows(task, asked, progress))
    progress.label("Counting what is safe already")
    given = {name: asked.thresholds[name] for name in ("k", "protect", "max_suppressed") if name in asked.thresholds}
    return describe_flows(whole, **given, hierarchy=asked.hierarchy).to_dict()


def _preview(task: Mapping[str, Any], progress: Progress) -> Any:
    asked = PageRequest.from_choices(task["choices"])
    flows = _flows(task, asked, progress)
    whole, before = _before(flows)
    progress.label("Preview")
    folded = whole.times is not None
    release = full_release(asked, whole, None) if folded else quick_release(asked, whole)
    return {**release_view(folder_content(release), before), "choices": task["choices"]}


def _run(task: Mapping[str, Any], progress: Progress) -> Any:
    asked = PageRequest.from_choices(task["choices"])
    flows = _flows(task, asked, progress)
    _, before = _before(flows)
    progress.label("Full run")
    release = full_release(asked, flows, progress.share)
    content = folder_content(release)
    tables = (*map_tables(content), content.flows, content.zones)
    for table, name in zip(tables, ("flows", "zones", "cells", "all_zones"), strict=True):
        pq.write_table(table, Path(task["result"]).with_suffix(f".{name}"))
    report = {name: content.report[name] for name in ("kind", "statement")}
    return {
        **release_view(content, before),
        "choices": task["choices"],
        "method": release.method,
        "report": report,
    }


def _slice(task: Mapping[str, Any], progress: Progress) -> Any:
    """Draws one slice of a full run."""
    run = Path(task["run"])
    found = json.loads(run.read_text(encoding="utf-8"))
    if task["slice"] >= len(found["slices"]):
        raise ParameterError("This slice is unknown.")
    asked = PageRequest.from_choices(task["choices"])
    _, before = _before(_flows(task, asked, progress))
    progress.label("Drawing the slice")
    chosen = found["slices"][task["slice"]]
    cells, zones = (pq.read_table(run.with_suffix(f".{name}")) for name in ("cells", "all_zones"))
    return {"map": release_map(*slice_tables(cells, zones, chosen), found["report"], before), "slice": chosen}


def _frontier(task: Mapping[str, Any], progress: Progress) -> Any:
    asked = PageRequest.from_choices(task["choices"])
    whole, _ = _before(_flows(task, asked, progress))
    if not asked.thresholds:
        raise ParameterError("Methods that add noise suppress nothing, so they have no trade-off.")
    if whole.times is not None or whole.same_zones:
        raise ParameterError("The trade-off is computed for separate zones at each end, without folded times.")
    if whole.origins.geography is None or whole.destinations.geography is None:
        raise ParameterError("The map has no places of zones, so distances are unknown. Hint: skip this step.")
    progress.label("Computing the trade-off")
    named = ("k", "protect", "k_population", "l")
    points = frontier(
        whole,
        method="paircut" if asked.method == "paircut" else "twincut",
        objective="metres",
        hierarchy=asked.hierarchy,
        up_to=_LARGEST_SHARE,
        progress=progress.share,
        **{name: asked.thresholds[name] for name in named if name in asked.thresholds},
    )
    return {
        "points": _thinned([(p.suppressed_share, p.value) for p in points if p.suppressed_share <= _LARGEST_SHARE]),
        "k": asked.thresholds["k"],
    }


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns points that a reader can distinguish and click: a bounded number, both ends included."""
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
            # The finest point stays; points close to it go.
            kept = [p for p in kept if p == points[0] or _distance(p, points[-1], wide, high) >= apart] + points[-1:]
        if len(kept) <= _MOST_POINTS:
            return kept
        apart *= 1.1


def _distance(one: tuple[float, float], other: tuple[float, float], wide: float, high: float) -> float:
    """Returns the distance of two points on the chart, in widths of the chart."""
    return math.hypot((one[0] - other[0]) / wide, _HEIGHT * (one[1] - other[1]) / high)


def _candidates(task: Mapping[str, Any], progress: Progress) -> Any:
    asked = PageRequest.from_choices(task["choices"])
    _, before = _before(_flows(task, asked, progress))
    progress.label("Drawing the candidates")
    tables = [(pq.read_table(f"{stem}.flows"), pq.read_table(f"{stem}.zones")) for stem in task["pins"]]
    return {"map": candidate_maps(tables, before)}


def _check(task: Mapping[str, Any], progress: Progress) -> Any:
    """Makes the release, and compares it with earlier ones."""
    from flowveil.published.headline import sides

    asked = PageRequest.from_choices(task["choices"])
    flows = _flows(task, asked, progress)
    _, before = _before(flows)
    progress.label("Making the release")
    release = full_release(asked, flows, progress.share)
    content = folder_content(release, formats=asked.formats, **asked.about)
    protected, not_protected, rest = sides(content.report["published"]["sentences"])
    audit = _compare_with_earlier(task, release, asked, progress)
    return {
        "choices": task["choices"],
        "protected": protected,
        "not_protected": not_protected,
        "rest": rest,
        "figures": release_figures(content.report, before),
        "sentence": sign_off_sentence(content.report, audit),
        "audit": audit,
    }


def _compare_with_earlier(
    task: Mapping[str, Any], release: Any, asked: PageRequest, progress: Progress
) -> dict[str, Any]:
    """Returns what the ledger and earlier releases say of a new one."""
    from flowveil.audit.auditing import audit
    from flowveil.audit.pages import audit_lines
    from flowveil.audit.published import published_release, read_release

    found: dict[str, Any] = {"compared": [name for name, _ in task["releases"]], "failures": [], "lines": []}
    found["verdict"], found["not_compared"], found["release_ids"] = "", [], task.get("release_ids", [])
    if task.get("ledger") is not None:
        progress.label("Comparing with the ledger")
        held = check_ledger(release, ledger=task["ledger"], **asked.about)
        found["ledger"] = held.releases
        if release.kind == "noisy":
            found["budget"] = budget_against(release, ledger=task["ledger"]).to_dict()
        found["failures"] = [] if held.is_clean else [held.in_words()]
    if task["releases"]:
        progress.label("Comparing with earlier releases")
        found["failures"] += _spent(release, task["releases"])
        report = folder_content(release, **asked.about).report
        own = published_release(release.flows, release.zones, report, name="this release")
        try:
            earlier = [replace(read_release(folder), name=title) for title, folder in task["releases"]]
            result = audit([own, *earlier])
        except MissingExtraError as problem:
            found["failures"] += [str(problem)]
        else:
            found["failures"] += result.failures
            found["lines"], found["verdict"] = list(audit_lines(result)), result.sentence
            found["not_compared"] = result.not_compared
    return found


def _spent(release: Any, earlier: list[tuple[str, str]]) -> list[str]:
    """Returns a warning if noise was drawn before: the privacy losses of all draws add up."""
    noisy = [title for title, folder in earlier if ReleaseFolder(Path(folder)).report["kind"] == "noisy"]
    if release.kind != "noisy" or not noisy:
        return []
    return [
        f"Noise was drawn before ({', '.join(noisy)}). If it was for the same trips, the privacy losses (epsilon) of "
        "all draws add up, and the guarantee of all together is weaker."
    ]


def _publish(task: Mapping[str, Any], progress: Progress) -> Any:
    asked = PageRequest.from_choices(task["choices"])
    flows = _flows(task, asked, progress)
    progress.label("Anonymising")
    recorded = task.get("recorded", {})
    with recording_nothing(recorded.get("ledger")):
        release = full_release(asked, flows, progress.share)
    progress.label("Writing and recounting")
    folder = Path(task["out"])
    publish(release, folder, formats=asked.formats, **asked.about, **recorded)
    progress.label("Recounting from the file")
    source = _source_of(task)
    zones = _map_of(task, asked)
    # The draw of the noise is not tested: otherwise the published draw would be the best of several.
    found = verify_release(folder, against=source, noise=False, **({} if zones is None else {"zones": zones}))
    if not found.holds:
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError("The recount contradicts the release; nothing is published:\n" + "\n".join(found.findings))
    progress.label("Packing")
    names = sorted(path.name for path in folder.iterdir())
    _pack(folder, names, folder.with_suffix(".zip"))
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    sentence = sign_off_sentence(report, task["audit"], signer=task["signer"])
    write_certificate(
        folder,
        found,
        source=source,
        sentence=sentence,
        signer=task["signer"],
        place=folder.with_suffix(".certificate.html"),
    )
    return {
        "files": names,
        "sentence": sentence,
        "statement": report["published"]["sentences"],
        "kind": report["kind"],
        "method": report["method"],
    }


def _pack(folder: Path, names: list[str], target: Path, root: str = "release") -> None:
    """Packs the files of a release. The same release gives the same bytes."""
    with zipfile.ZipFile(target, "w") as packed:
        for name in names:
            entry = zipfile.ZipInfo(f"{root}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with open(folder / name, "rb") as file, packed.open(entry, "w") as out:
                shutil.copyfileobj(file, out)


def _unpack(task: Mapping[str, Any], progress: Progress) -> Any:
    """Unpacks and reads an uploaded release: plain names and a bounded size only."""
    from flowveil.audit.published import read_release

    progress.label("Unpacking a release")
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
    return {"method": release.report["method"], "about": dict(release.report["statement"].get("about", {}))}


def _copy(file: Any, target: Any, most: int) -> None:
    """Copies a file of a zip, and refuses one that is larger than the zip states."""
    while block := file.read(1 << 20):
        most -= len(block)
        if most < 0:
            raise DataError("The zip holds too much for a release.")
        target.write(block)


# ---- jobs on a published release -----------------------------------------------------------------------------------


def _analysis(task: Mapping[str, Any], progress: Progress) -> Any:
    """Packs the private measures and page of a release."""
    from flowveil.analysis.release_analysis import analyze

    progress.label("Analysing")
    zones = _map_of(task, PageRequest.from_choices(task["choices"]))
    found = analyze(task["release"], against=_source_of(task), **({} if zones is None else {"zones": zones}))
    out = Path(task["result"]).with_suffix(".analysis")
    found.write(out, release=task["release"])
    _pack(out, sorted(path.name for path in out.iterdir()), Path(task["result"]).with_suffix(".zip"), "analysis")
    shutil.rmtree(out)
    return {}


def _dpia(task: Mapping[str, Any], progress: Progress) -> Any:
    """Writes the private text for a data protection impact assessment."""
    from flowveil.analysis.dpia import dpia_text
    from flowveil.analysis.release_analysis import analyze

    progress.label("Analysing")
    source, zones = _source_of(task), _map_of(task, PageRequest.from_choices(task["choices"]))
    reading = {} if zones is None else {"zones": zones}
    text = dpia_text(task["release"], analyze(task["release"], against=source, **reading), against=source, **reading)
    Path(task["result"]).with_suffix(".md").write_text(text, encoding="utf-8")
    return {}


def _derive(task: Mapping[str, Any], progress: Progress) -> Any:
    """Packs a table derived from a release; raw trips are not needed."""
    from flowveil.api import derive

    progress.label("Deriving")
    how = derivation_of(task["derive"])
    out = Path(task["result"]).with_suffix(".derived")
    derive(task["release"], out, **how, zones=_map_of(task, PageRequest.from_choices(task["choices"])))
    _pack(out, sorted(path.name for path in out.iterdir()), Path(task["result"]).with_suffix(".zip"))
    shutil.rmtree(out)
    return {}


WORK: dict[str, Callable[[Mapping[str, Any], Progress], Any]] = {
    "demo": _demo,
    "inspect": _inspect,
    "read": _read,
    "describe": _describe,
    "preview": _preview,
    "run": _run,
    "frontier": _frontier,
    "slice": _slice,
    "candidates": _candidates,
    "check": _check,
    "publish": _publish,
    "unpack": _unpack,
    "analysis": _analysis,
    "dpia": _dpia,
    "derive": _derive,
}
