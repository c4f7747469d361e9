"""A worker process, and its tasks: one function for each kind of job.

A task names files that the server chose and choices that it checked. Flows are cached in the
private folder. Tasks and progress are lines of JSON, results are files. When the server ends,
standard input closes and the process exits at once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import pickle
import queue
import shutil
import sys
import threading
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flowveil.analysis.api import frontier
from flowveil.apps.workbench import preview
from flowveil.apps.workbench.choices import (
    NO_TRIPS,
    about_of,
    derivation_of,
    page_request,
    read_arguments,
    thresholds_of,
)
from flowveil.apps.workbench.inspect_input import inspect_input, with_upload_names
from flowveil.apps.workbench.preview import InputMap, release_view, sign_off_sentence
from flowveil.core.errors import (
    DataError,
    FlowveilError,
    MissingExtraError,
    ParameterError,
    speaking_of_flags,
)
from flowveil.core.flows import Flows
from flowveil.publishing.api import publish
from flowveil.publishing.ledger.ledger import budget_against, check_ledger, recording_nothing
from flowveil.publishing.publish import folder_content
from flowveil.publishing.run import (
    anonymize_request,
    has_folds,
    map_columns,
    read_request,
    step_of,
)
from flowveil.reading.matrices import MATRIX, matrix_names
from flowveil.release.folder import ReleaseFolder
from flowveil.request.request import Request
from flowveil.system.limits import limits
from flowveil.system.output import write_files
from flowveil.verify.verification import certificate, certificate_text, verify_release
from flowveil.zoning.files import load_table, read_zones

#: Upper bound for cached flows.
_MOST_KEPT = 4
#: Upper bounds for the points of a trade-off on the chart and for their suppressed share.
_MOST_POINTS, _LARGEST_SHARE = 24, 0.5
#: Height of the chart and smallest distance of its points, as shares of its width; see
#: tradeoff.mjs.
_HEIGHT, _APART = 0.35, 0.024
#: Upper bounds for the files and unpacked bytes of an uploaded release.
_MOST_FILES, _MOST_BYTES = 64, 4 << 30


class Progress:
    """Sends the progress of a task to the server, as lines of JSON."""

    def __init__(self, answers: Any, job: str) -> None:
        self._answers, self._job, self._last, self._label = answers, job, 0.0, ""

    def label(self, text: str) -> None:
        """Reports the current step."""
        self._label = text
        self.send(label=text, share=None)

    def share(self, done: float) -> None:
        """Reports the share that is done, from 0 to 1, ten times a second at most."""
        if time.monotonic() - self._last >= 0.1:
            self._last = time.monotonic()
            self.send(label=self._label, share=round(done, 3))

    def send(self, **what: Any) -> None:
        """Sends one line."""
        self._answers.write(json.dumps({"job": self._job, **what}) + "\n")
        self._answers.flush()


@dataclass
class _Memory:
    """Cache of a process that stays alive: the flows of one way of reading, all slices together,
    and their map.
    """

    key: str = ""
    flows: Flows | None = None
    before: tuple[Flows, InputMap] | None = None


_memory = _Memory()


@dataclass(frozen=True, eq=False)
class Task:
    """A task, with what follows from its files and choices."""

    given: Mapping[str, Any]
    progress: Progress

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    @cached_property
    def request(self) -> Request:
        """The request of the choices."""
        return page_request(self["choices"])

    def file(self, name: str) -> Path | None:
        """Returns a file of the task.

        None if it is not set, DataError if it has changed since it was chosen.
        """
        if self.given.get(name) is None:
            return None
        path, *stamp = self[name]
        with suppress(OSError):
            now = os.stat(path)
            if [now.st_size, now.st_mtime_ns] == stamp:
                return Path(path)
        raise DataError("The file has changed since it was chosen. Hint: choose it again.")

    @property
    def source(self) -> Path:
        """The file of the trips; ParameterError if it is not set."""
        source = self.file("source")
        if source is None:
            raise ParameterError(NO_TRIPS)
        return source

    @cached_property
    def zones(self) -> dict[str, Any]:
        """The map as an argument of reading; empty without one."""
        path = self.file("zones")
        return {} if path is None else {"zones": read_zones(path, **map_columns(self.request))}

    def flows(self) -> Flows:
        """Returns the flows, from memory, from the private folder or from the input."""
        source, request = self.source, self.request
        how = [
            self["source"],
            self.given.get("zones"),
            read_arguments(request),
            map_columns(request),
        ]
        text = json.dumps(
            [*how, has_folds(request), dict(request.slices.fold)],
            sort_keys=True,
            default=list,
        )
        key = hashlib.sha256(text.encode()).hexdigest()[:24]
        if _memory.key == key and _memory.flows is not None:
            return _memory.flows
        kept = Path(self["room"]) / "files" / f"flows-{key}.pickle"
        flows: Flows
        try:
            with open(kept, "rb") as file:
                flows = pickle.load(file)
        except FileNotFoundError:
            self.progress.label("Reading the trips")
            flows = read_request(request, source=source, progress=self.progress.share, **self.zones)
            _keep(flows, kept)
        _memory.key, _memory.flows, _memory.before = key, flows, None
        return flows

    def before(self) -> tuple[Flows, InputMap]:
        """Returns the trips of all slices together, and their map."""
        flows = self.flows()
        if _memory.before is None:
            whole = flows.whole
            _memory.before = whole, InputMap(whole)
        return _memory.before

    def release(self, label: str) -> Any:
        """Makes the release that would be published."""
        flows = self.flows()
        self.progress.label(label)
        return anonymize_request(self.request, flows, progress=self.progress.share)


def _keep(flows: Flows, place: Path) -> None:
    draft = place.with_suffix(f".{os.getpid()}")
    with open(draft, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        pickle.dump(flows, file, protocol=pickle.HIGHEST_PROTOCOL)
    os.replace(draft, place)
    old = sorted(place.parent.glob("flows-*.pickle"), key=lambda p: p.stat().st_mtime_ns)
    for path in old[:-_MOST_KEPT]:
        path.unlink(missing_ok=True)


def _demo(task: Task) -> Any:
    from flowveil.reading.sources.synthetic import synthetic_survey

    task.progress.label("Making a synthetic survey")
    survey = synthetic_survey(people=task["people"])
    pq.write_table(survey, task["out"])
    return {"rows": survey.num_rows}


def _inspect(task: Task) -> Any:
    task.progress.label("Inspecting the columns")
    source, slices = task.source, task.request.slices.given
    reading = task.request.arguments("reading")
    given = {
        name: value
        for name, value in reading.items()
        if name not in ("within", "same_zones", *slices)
    }
    if slices.get("time") and slices.get("every"):
        given |= {"time": slices["time"], "every": step_of(task.request)}
        given |= {name: slices[name] for name in ("timezone", "time_format") if name in slices}
    matrices = matrix_names(source) if source.suffix.casefold() == ".omx" else ()
    if len(matrices) > 1 and "matrix" not in given:
        # Each matrix becomes a slice, as on the command line.
        given["by"] = (MATRIX,)
    mapped, zones, trouble = task.file("zones"), None, None
    names = [] if mapped is None else load_table(mapped)[0].column_names
    try:
        zones = task.zones.get("zones")
    except FlowveilError as problem:
        # The page shows the columns of the map next to those of the trips, also where they are not
        # recognised yet.
        trouble = str(problem)
    found = inspect_input(source, given, zones)
    wrong = trouble or found["problem"]
    found["problem"] = wrong and with_upload_names(wrong, task.given)
    return {**found, "matrices": list(matrices), "map_columns": names}


def _read(task: Task) -> Any:
    flows = task.flows()
    intake = flows.intake
    return {
        "rows": intake.rows,
        "dropped": dict(intake.left_out),
        "without_person": dict(intake.nobody),
        "notes": list(intake.notes),
        "columns": dict(intake.columns),
        "resolution": intake.resolution,
        "slices": len(flows.slices) if flows.slice_columns else None,
        "people": flows.people is not None,
        "weight": flows.weight is not None,
    }


def _describe(task: Task) -> Any:
    from flowveil.analysis.description import describe_flows

    whole, _ = task.before()
    task.progress.label("Counting what is safe already")
    named, thresholds = ("k", "protect", "max_suppressed"), thresholds_of(task.request)
    given = {name: thresholds[name] for name in named if name in thresholds}
    return describe_flows(whole, **given, hierarchy=task.request.method.hierarchy).to_dict()


def _preview(task: Task) -> Any:
    whole, before = task.before()
    task.progress.label("Preview")
    make = anonymize_request if whole.folds else preview.quick_release
    return {
        **release_view(folder_content(make(task.request, whole)), before),
        "choices": task["choices"],
    }


def _run(task: Task) -> Any:
    _, before = task.before()
    release = task.release("Full run")
    content = folder_content(release)
    tables = (*preview.map_tables(content), content.flows, content.zones)
    for table, name in zip(tables, ("flows", "zones", "cells", "all_zones"), strict=True):
        pq.write_table(table, Path(task["result"]).with_suffix(f".{name}"))
    report = {name: content.report[name] for name in ("kind", "statement")}
    view = release_view(content, before)
    return {**view, "choices": task["choices"], "method": release.method, "report": report}


def _slice(task: Task) -> Any:
    """Draws one slice of a full run."""
    run = Path(task["run"])
    found = json.loads(run.read_text(encoding="utf-8"))
    if task["slice"] >= len(found["slices"]):
        raise ParameterError("This slice is unknown.")
    _, before = task.before()
    task.progress.label("Drawing the slice")
    chosen = found["slices"][task["slice"]]
    cells, zones = (pq.read_table(run.with_suffix(f".{name}")) for name in ("cells", "all_zones"))
    tables = preview.slice_tables(cells, zones, chosen)
    return {"map": preview.release_map(*tables, found["report"], before), "slice": chosen}


def _frontier(task: Task) -> Any:
    whole, _ = task.before()
    thresholds = thresholds_of(task.request)
    if not thresholds:
        raise ParameterError("Methods that add noise suppress nothing, so they have no trade-off.")
    if whole.folds or whole.same_zones:
        raise ParameterError(
            "The trade-off is computed for separate zones at each end, without folds."
        )
    if whole.origins.geography is None or whole.destinations.geography is None:
        raise ParameterError(
            "The map has no places of zones, so distances are unknown. Hint: skip this step."
        )
    task.progress.label("Computing the trade-off")
    points = frontier(
        whole,
        method="paircut" if task.request.method.method == "paircut" else "twincut",
        objective="metres",
        hierarchy=task.request.method.hierarchy,
        up_to=_LARGEST_SHARE,
        progress=task.progress.share,
        **{
            name: thresholds[name]
            for name in ("k", "protect", "k_population", "l")
            if name in thresholds
        },
    )
    shown = [(p.suppressed_share, p.value) for p in points if p.suppressed_share <= _LARGEST_SHARE]
    return {"points": _thinned(shown), "k": thresholds["k"]}


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns points that a reader can distinguish and click.

    A bounded number, both ends included.
    """
    if len(points) < 2:
        return points
    wide, high = (max(axis) or 1.0 for axis in zip(*points, strict=True))

    def distance(one: tuple[float, float], other: tuple[float, float]) -> float:
        return math.hypot((one[0] - other[0]) / wide, _HEIGHT * (one[1] - other[1]) / high)

    # Points this far apart along the curve are at most so many.
    apart = max(
        _APART, sum(distance(*pair) for pair in itertools.pairwise(points)) / (_MOST_POINTS - 1)
    )
    kept = points[:1]
    for point in points[1:-1]:
        if distance(kept[-1], point) >= apart and distance(point, points[-1]) >= apart:
            kept.append(point)
    return [*kept, points[-1]]


def _candidates(task: Task) -> Any:
    _, before = task.before()
    task.progress.label("Drawing the candidates")
    tables = [
        (pq.read_table(f"{stem}.flows"), pq.read_table(f"{stem}.zones")) for stem in task["pins"]
    ]
    return {"map": preview.candidate_maps(tables, before)}


def _check(task: Task) -> Any:
    """Makes the release, and compares it with earlier ones."""
    from flowveil.published.sentences import sides

    _, before = task.before()
    release = task.release("Making the release")
    content = folder_content(release, formats=task.request.output.formats, **about_of(task.request))
    protected, not_protected, rest = sides(content.report["published"]["sentences"])
    audit = _compare_with_earlier(task, release, content.report)
    return {
        "choices": task["choices"],
        "protected": protected,
        "not_protected": not_protected,
        "rest": rest,
        "figures": preview.release_figures(content.report, before),
        "sentence": sign_off_sentence(content.report, audit),
        "audit": audit,
    }


def _compare_with_earlier(task: Task, release: Any, report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the ledger and earlier releases say of a new one."""
    from flowveil.analysis.audit import audit, audit_lines
    from flowveil.verify.audit.published import published_release, read_release

    found: dict[str, Any] = {"compared": [name for name, _ in task["releases"]], "verdict": ""}
    found |= {
        "failures": [],
        "lines": [],
        "not_compared": [],
        "release_ids": task.given.get("release_ids", []),
    }
    ledger = task.given.get("ledger")
    if ledger is not None:
        task.progress.label("Comparing with the ledger")
        held = check_ledger(release, ledger=ledger, **about_of(task.request))
        found["ledger"] = held.releases
        if release.facets.is_noisy:
            found["budget"] = budget_against(release, ledger=ledger).to_dict()
        found["failures"] = [] if held.is_clean else [held.in_words()]
    if task["releases"]:
        task.progress.label("Comparing with earlier releases")
        noisy = [
            title
            for title, path in task["releases"]
            if ReleaseFolder(Path(path)).statement.facets.is_noisy
        ]
        if release.facets.is_noisy and noisy:
            found["failures"].append(
                f"Noise was drawn before ({', '.join(noisy)}). If it was for the same trips, the"
                " privacy losses (epsilon) of all draws add up, and the guarantee of all together"
                " is weaker."
            )
        new = published_release(release.flows, release.zones, report, name="this release")
        try:
            earlier = [
                replace(read_release(folder), name=title) for title, folder in task["releases"]
            ]
            result = audit([new, *earlier])
        except MissingExtraError as problem:
            found["failures"] += [str(problem)]
        else:
            found["failures"] += result.failures
            found["lines"], found["verdict"] = list(audit_lines(result)), result.sentence
            found["not_compared"] = result.not_compared
    return found


def _publish(task: Task) -> Any:
    ledger, folder, output = task.given.get("ledger"), Path(task["out"]), task.request.output
    recorded = (
        {}
        if ledger is None
        else {"ledger": ledger, "accept_differencing": bool(task.given.get("accepted"))}
    )
    with recording_nothing(ledger):
        release = task.release("Anonymising")
    task.progress.label("Writing and recounting")
    publish(release, folder, formats=output.formats, **about_of(task.request), **recorded)
    task.progress.label("Recounting from the file")
    # The draw of the noise is not tested: otherwise the published draw would be the best of
    # several.
    found = verify_release(folder, against=task.source, noise=False, **task.zones)
    if not found.holds:
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(
            "The recount contradicts the release; nothing is published:\n"
            + "\n".join(found.findings)
        )
    task.progress.label("Packing")
    names = _pack(folder, folder.with_suffix(".zip"), "release")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    sentence = sign_off_sentence(report, task["audit"], signer=task["signer"])
    content = certificate(found, expected={}, source=task.source, signer=task["signer"])
    place = folder.with_suffix(".certificate.html")
    place.write_text(certificate_text({**content, "signed": sentence}, place), encoding="utf-8")
    about = {
        "statement": report["published"]["sentences"],
        "kind": report["kind"],
        "method": report["method"],
    }
    return {"files": names, "sentence": sentence, **about}


def _pack(folder: Path, target: Path, root: str) -> list[str]:
    """Packs the files of a folder and returns their names. The same files give the same bytes."""
    names = sorted(path.name for path in folder.iterdir())
    with zipfile.ZipFile(target, "w") as packed:
        for name in names:
            entry = zipfile.ZipInfo(f"{root}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with open(folder / name, "rb") as file, packed.open(entry, "w") as out:
                shutil.copyfileobj(file, out)
    return names


def _unpack(task: Task) -> Any:
    """Unpacks and reads an uploaded release: plain names and a bounded size only."""
    from flowveil.verify.audit.published import read_release

    task.progress.label("Unpacking a release")
    out = Path(task["out"])
    os.mkdir(out, 0o700)
    try:
        with zipfile.ZipFile(task["packed"]) as packed:
            entries = [entry for entry in packed.infolist() if not entry.is_dir()]
            if (
                len(entries) > _MOST_FILES
                or sum(entry.file_size for entry in entries) > _MOST_BYTES
            ):
                raise DataError("The zip holds too much for a release.")
            for entry in entries:
                name = entry.filename.rpartition("/")[2]
                if not name or name.startswith(".") or "\\" in name or (out / name).exists():
                    raise DataError("The zip holds files that are not those of a release.")
                with packed.open(entry) as file, open(out / name, "xb") as target:
                    # zipfile reads no more than the size that the entry states.
                    shutil.copyfileobj(file, target)
        release = read_release(out)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as problem:
        shutil.rmtree(out, ignore_errors=True)
        if isinstance(problem, DataError):
            raise
        raise DataError(
            "This is not a zip of a release. Hint: drop one that the workbench made."
        ) from None
    return {
        "method": release.report["method"],
        "about": dict(release.report["statement"].get("about", {})),
    }


def _analysis(task: Task) -> Any:
    """Packs the private measures and page of a release."""
    from flowveil.analysis.release_analysis import analyze

    task.progress.label("Analysing")
    found = analyze(task["release"], against=task.source, **task.zones)
    return _packed(task, "analysis", lambda out: found.write(out, release=task["release"]))


def _dpia(task: Task) -> Any:
    """Writes the private text for a data protection impact assessment."""
    from flowveil.analysis.dpia import dpia_text
    from flowveil.analysis.release_analysis import analyze

    task.progress.label("Analysing")
    how = {"against": task.source, **task.zones}
    text = dpia_text(task["release"], analyze(task["release"], **how), **how)
    Path(task["result"]).with_suffix(".md").write_text(text, encoding="utf-8")
    return {}


def _derive(task: Task) -> Any:
    """Packs a table derived from a release; raw trips are not needed."""
    from flowveil.publishing.api import derive

    task.progress.label("Deriving")
    how = {**derivation_of(task["derive"]), "zones": task.zones.get("zones")}
    return _packed(task, "release", lambda out: derive(task["release"], out, **how))


def _packed(task: Task, root: str, write: Callable[[Path], Any]) -> dict[str, Any]:
    """Packs a folder into the file of the job."""
    out = Path(task["result"]).with_suffix(".folder")
    write(out)
    _pack(out, out.with_suffix(".zip"), root)
    shutil.rmtree(out)
    return {}


#: The function of each kind of job.
WORK: dict[str, Callable[[Task], Any]] = {
    task.__name__.removeprefix("_"): task
    for task in (
        *(_demo, _inspect, _read, _describe, _preview, _run, _frontier, _slice),
        *(_candidates, _check, _publish, _unpack, _analysis, _dpia, _derive),
    )
}


def serve() -> None:
    """Runs tasks until the server ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # Output of libraries may quote the input: it goes neither to the server nor to a log.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.dup2(nowhere, sys.stderr.fileno())
    warnings.simplefilter("ignore")
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()

    def watch() -> None:
        for line in sys.stdin:
            tasks.put(line)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    while True:
        task = json.loads(tasks.get())
        run_task(task, Progress(answers, task["job"]))


def run_task(task: dict[str, Any], progress: Progress) -> None:
    """Runs a task and writes its result.

    The message of an unexpected error may quote a row, and is not sent.
    """
    message = None
    try:
        given = task["limits"]
        with (
            speaking_of_flags(),
            limits(memory=given.get("memory_limit"), threads=given.get("threads")),
        ):
            result = WORK[task["kind"]](Task(task, progress))
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
        write_files(
            {task["result"]: lambda file: Path(file).write_text(text, encoding="utf-8")},
            private=True,
        )
    except FlowveilError as problem:
        message = with_upload_names(problem, task)
    except MemoryError:
        message = "This machine has not enough memory for this job."
    except Exception as problem:
        message = f"Unexpected {type(problem).__name__}."
    progress.send(ended="done" if message is None else "failed", message=message or "")
