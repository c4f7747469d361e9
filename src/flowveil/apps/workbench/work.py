"""A worker process, and its tasks: one function for each kind of job.

A task names files that the server chose and choices that it checked. Flows are cached in the
private folder. Tasks and progress are lines of JSON, results are files. When the server ends,
standard input closes and the process exits at once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from flowveil.apps.workbench.choices import (
    CHART_K,
    CHART_METHODS,
    NO_TRIPS,
    about_of,
    cell_choices,
    derivation_of,
    hexagon_width,
    page_request,
    read_arguments,
    stamp_of,
    with_method,
)
from flowveil.apps.workbench.figures import release_figures, sign_off_sentence, unit_name
from flowveil.apps.workbench.inspect_input import grid, inspect_input, with_upload_names
from flowveil.core.errors import (
    DataError,
    FlowveilError,
    MissingExtraError,
    ParameterError,
    speaking_of_flags,
)
from flowveil.core.flows import Flows
from flowveil.methods import METHODS
from flowveil.published.flow_map import place_name
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
from flowveil.request.database_address import database_address
from flowveil.request.request import Request
from flowveil.system.limits import limits
from flowveil.system.output import write_files
from flowveil.verify.verification import certificate, certificate_text, verify_release
from flowveil.zoning.files import load_table, read_zones

#: Upper bound for cached flows, and for releases that were computed.
_MOST_KEPT = 4
#: Share of the trips that counts as nearly all in the sentence on what is safe already.
_NEARLY_ALL = 0.9
#: Jobs that yield the machine to all others.
_BACKGROUND = ("errors",)
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
    """Cache of a process that stays alive: the flows of one way of reading."""

    key: str = ""
    flows: Flows | None = None


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

    def file(self, name: str) -> Path | str | None:
        """Returns a file of the task, or the address of a table.

        None if it is not set, DataError if it has changed since it was chosen.
        """
        if self.given.get(name) is None:
            return None
        source = str(self[name][0])
        with suppress(OSError):
            if stamp_of(source) == list(self[name]):
                return source if database_address(source) else Path(source)
        raise DataError("The file has changed since it was chosen. Hint: choose it again.")

    @property
    def source(self) -> Path | str:
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

    def flows(self, request: Request | None = None) -> Flows:
        """Returns the flows of the choices, or of another request of the same files.

        From memory, from the private folder or from the input.
        """
        source, request = self.source, request or self.request
        how: list[Any] = [read_arguments(request), map_columns(request)]
        how += [has_folds(request), dict(request.slices.fold)]
        key = self._key(how)
        if _memory.key == key and _memory.flows is not None:
            return _memory.flows
        kept = self._kept("flows", key)
        flows: Flows | None = _load(kept)
        if flows is None:
            self.progress.label("Reading the trips")
            flows = read_request(request, source=source, progress=self.progress.share, **self.zones)
            _keep(flows, kept)
        _memory.key, _memory.flows = key, flows
        return flows

    def release(self, label: str) -> Any:
        """Returns the release of the choices, computed once for the same choices and files.

        Noise is drawn again for every call: a draw that was looked at must not be chosen.
        """
        # Refuses files that have changed, also where the release is kept.
        for name in ("source", "zones"):
            self.file(name)
        kept = self._kept("draft", self._key(cell_choices(self["choices"])))
        release = None if self.adds_noise else _load(kept)
        if release is None:
            flows = self.flows()
            self.progress.label(label)
            release = anonymize_request(self.request, flows, progress=self.progress.share)
            if not self.adds_noise:
                _keep(release, kept)
        return release

    @property
    def trips(self) -> int:
        """The number of trips of the input."""
        return int(self.flows().trips.sum())

    @property
    def adds_noise(self) -> bool:
        """Whether the method of the choices adds noise."""
        return METHODS[str(self.request.method.method)].counts == "noisy"

    def _key(self, what: Any) -> str:
        """Returns a name for what follows from the files and these values."""
        given = [self["source"], self.given.get("zones"), what]
        text = json.dumps(given, sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _kept(self, kind: str, key: str) -> Path:
        return Path(self["room"]) / "files" / f"{kind}-{key}.pickle"


class _Pickler(pickle.Pickler):
    """Pickles read-only mappings, too."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, MappingProxyType):
            return _read_only, (dict(obj),)
        return NotImplemented


def _read_only(values: dict[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(values)


def _load(place: Path) -> Any:
    """Returns what `_keep` has kept in the private folder; None if it is not there."""
    try:
        with open(place, "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        return None


def _keep(value: Any, place: Path) -> None:
    draft = place.with_suffix(f".{os.getpid()}")
    with open(draft, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    os.replace(draft, place)
    kind = place.name.partition("-")[0]
    old = sorted(place.parent.glob(f"{kind}-*.pickle"), key=lambda p: p.stat().st_mtime_ns)
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
    when = {name: task["choices"].get(name) for name in ("time", "timezone", "time_format")}
    if when["time"]:
        # The hours are shown before a step is chosen.
        given |= {name: value for name, value in when.items() if value}
        given["every"] = step_of(task.request) or "hour"
    is_omx = isinstance(source, Path) and source.suffix.casefold() == ".omx"
    matrices = matrix_names(Path(source)) if is_omx else ()
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
    intake, tree = flows.intake, flows.origins
    places = None
    if tree.geography is not None:
        lat, lon = tree.geography.centers(tree.leaf_node)
        trips = np.bincount(flows.origin, weights=flows.trips, minlength=tree.n_tiles)
        known = np.isfinite(lat) & np.isfinite(lon) & (trips > 0)
        places = grid(lat[known], lon[known], trips[known].astype(np.int64))
    return {
        "places": places,
        "rows": intake.rows,
        "dropped": dict(intake.left_out),
        "without_person": dict(intake.nobody),
        "notes": list(intake.notes),
        "columns": dict(intake.columns),
        "resolution": intake.resolution,
        "slices": len(flows.slices) if flows.slice_columns else None,
        "dimensions": [dimension.name for dimension in flows.folds],
        "people": flows.people is not None,
        "weight": flows.weight is not None,
    }


def _describe(task: Task) -> Any:
    """Says in a sentence how much is safe before anything is changed."""
    from flowveil.analysis.description import safe_levels

    whole = task.flows().whole
    task.progress.label("Counting what is safe already")
    thresholds = task.request.protection
    levels = safe_levels(whole, k=thresholds.k or 10, protect=thresholds.protect or None)
    person = str(whole.intake.columns.get("person", ""))
    return {"sentence": safety_sentence(levels, thresholds.k or 10, person)}


def _run(task: Task) -> Any:
    """Computes the release and its page, which are what would be published."""
    from flowveil.analysis.areas import area_accuracy, main_accuracy

    release = task.release("Computing the release")
    task.progress.label("Drawing the page")
    content = folder_content(release, **about_of(task.request))
    page = content.page()
    write_files(
        {
            Path(task["result"]).with_suffix(".html"): lambda file: Path(file).write_text(
                page, encoding="utf-8"
            )
        },
        private=True,
    )
    task.progress.label("Comparing with your trips")
    accuracy = main_accuracy(area_accuracy(release))
    error = None if accuracy is None else accuracy.misplaced
    return {
        "figures": release_figures(content.report, task.trips, error),
        "error": error,
        "method": release.method,
        "k": task.request.protection.k,
    }


def _errors(task: Task) -> Any:
    """Computes the planner's error against k, for each method that suits the choices.

    The result is written after each point, so that the chart grows.
    """
    from flowveil.analysis.areas import area_accuracy, main_accuracy

    chosen = str(task.request.method.method)
    methods = [
        name
        for name in dict.fromkeys((chosen, *CHART_METHODS))
        if METHODS[name].counts == "exact" and _is_possible(task["choices"], name)
    ]
    points: list[dict[str, Any]] = []
    result = {"points": points, "methods": methods, "ks": CHART_K}
    for k, name in itertools.product(sorted(CHART_K, key=lambda k: abs(k - 10)), methods):
        task.progress.label(f"{name}, k = {k}")
        point: dict[str, Any] = {"method": name, "k": k, "error": None}
        try:
            request = with_method(task["choices"], name, k)
            # Methods that cannot merge times get a matrix for each.
            flows = task.flows(request)
            task.progress.label(f"{name}, k = {k}")
            found = main_accuracy(area_accuracy(anonymize_request(request, flows)))
            point["error"] = None if found is None else found.misplaced
        except FlowveilError as problem:
            point["problem"] = str(problem)
        points.append(point)
        _write_result(task["result"], result)
        task.progress.share(len(points) / len(methods) / len(CHART_K))
    return result


def _is_possible(choices: Mapping[str, Any], method: str) -> bool:
    try:
        with_method(choices, method, CHART_K[0])
    except ParameterError:
        return False
    return True


def safety_sentence(levels: Sequence[Any], k: int, person: str = "") -> str:
    """Returns how many trips are safe without any change, at the tiles and where nearly all are."""

    def place(level: Any) -> str:
        if level.resolution is not None:
            return hexagon_width(level.resolution)
        up = level.lifted
        return "the zones of your map" if not up else f"{up} level{'s' * (up > 1)} above your map"

    def tenths(share: float) -> str:
        if share >= 0.995:
            return "all"
        return f"{int(10 * share)} in 10" if share >= 0.1 else "fewer than 1 in 10"

    def of(level: Any) -> float:
        return float(min(share.volume for share in level.safe))

    finest = levels[0]
    unit = " and ".join(unit_name(share.unit, person) for share in finest.safe)
    reached = next((level for level in levels if of(level) >= _NEARLY_ALL), None)
    text = f"Without any change, at {place(finest)}, {tenths(of(finest))} trips are safe"
    text += f" (in pairs of places with at least {k} {unit})"
    if reached is None:
        return f"{text}; at {place(levels[-1])}, {tenths(of(levels[-1]))}."
    return (
        f"{text}." if reached is finest else f"{text}; at {place(reached)}, {tenths(of(reached))}."
    )


def _check(task: Task) -> Any:
    """Makes the release, and compares it with earlier ones."""
    from flowveil.published.sentences import sides

    release = task.release("Computing the release")
    content = folder_content(release, formats=task.request.output.formats, **about_of(task.request))
    protected, not_protected, rest = sides(content.report["published"]["sentences"])
    audit = _compare_with_earlier(task, release, content.report)
    return {
        "choices": task["choices"],
        "protected": protected,
        "not_protected": not_protected,
        "rest": rest,
        "figures": release_figures(content.report, task.trips),
        "sentence": sign_off_sentence(
            content.report, audit, place=place_name(content.flows, content.zones)
        ),
        "audit": audit,
    }


def _compare_with_earlier(task: Task, release: Any, report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the ledger and earlier releases say of a new one."""
    from flowveil.analysis.audit import audit, audit_lines
    from flowveil.verify.audit.published import published_release, read_release

    found: dict[str, Any] = {"compared": [name for name, _ in task["releases"]], "verdict": ""}
    found |= {
        "ledger_folder": task.given.get("ledger"),
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
    tables = (pq.read_table(folder / f"{name}.parquet") for name in ("flows", "zones"))
    where = place_name(*tables)
    sentence = sign_off_sentence(report, task["audit"], place=where, signer=task["signer"])
    content = certificate(found, expected={}, source=task.source, signer=task["signer"])
    place = folder.with_suffix(".certificate.html")
    place.write_text(
        certificate_text({**content, "signed": sentence, "place": where}, place), encoding="utf-8"
    )
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
        *(_demo, _inspect, _read, _describe, _run, _errors, _check, _publish),
        *(_unpack, _analysis, _dpia, _derive),
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
        if task["kind"] in _BACKGROUND and hasattr(os, "nice"):
            os.nice(10)
        run_task(task, Progress(answers, task["job"]))


def _write_result(place: str, result: Any) -> None:
    text = json.dumps(result, allow_nan=False, separators=(",", ":"))
    write_files({place: lambda file: Path(file).write_text(text, encoding="utf-8")}, private=True)


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
        _write_result(task["result"], result)
    except FlowveilError as problem:
        message = with_upload_names(problem, task)
    except MemoryError:
        message = "This machine has not enough memory for this job."
    except Exception as problem:
        message = f"Unexpected {type(problem).__name__}."
    progress.send(ended="done" if message is None else "failed", message=message or "")
