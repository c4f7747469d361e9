"""Several methods, several k and several protections on the same input, side by side.

Every run is a process of its own, so that one that takes too long can be stopped, one that uses too much memory
takes nobody along, and times are not mixed up. A run hands back what it would publish and nothing else: measures as
`flowveil.report.summary` publishes them, the matrix and its zones. Even so a comparison is for the data holder:
releases of the same data with different k can be subtracted from each other. Where TwinCut is among the methods, the
frontier of error against suppression is drawn beside them, rounded.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa

from flowveil.errors import FlowveilError, InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee
from flowveil.methods import METHODS, find_method

if TYPE_CHECKING:
    from flowveil.release.plan import Release

#: How a run may end. Only the first has measures.
DONE, INFEASIBLE, TIMED_OUT, FAILED = "done", "infeasible", "timed out", "failed"

#: Seconds that a process may take to start, to unpack the flows and to compile what it needs.
START_LIMIT = 600
#: Flows of the run that comes before the measured one.
WARM_UP_FLOWS = 50
#: What a child writes when the run itself begins.
_READY = b"ready\n"


@dataclass(frozen=True)
class Run:
    """One method with one k and one protection.

    Attributes:
        method, k, protect: what was run.
        status: ``done``, ``infeasible``, ``timed out`` or ``failed``.
        reason: why it is not done; None where it is.
        seconds: what the method and its recount took, without starting a process and compiling; None where it is not
            done.
        basis: what its volume counts: trips, or weight where the population is protected.
        measures: as published, on that basis; None where a measure is withheld or not known.
        withheld: names of the measures that are withheld.
        flows, zones: what would be published; None where nothing would.
        homogeneous: whether its zones never overlap.
    """

    method: str
    k: int
    protect: tuple[str, ...]
    status: str
    reason: str | None = None
    seconds: float | None = None
    basis: str = "trips"
    measures: Mapping[str, float | int | None] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    flows: pa.Table | None = None
    zones: pa.Table | None = None
    homogeneous: bool = True

    @property
    def protection(self) -> str:
        """The protected units in one word."""
        return "+".join(self.protect)

    def __repr__(self) -> str:
        return f"<Run {self.method}, k = {self.k}, {self.protection}: {self.status}>"


@dataclass(frozen=True)
class Frontier:
    """How fine homogeneous zones can be for every share suppressed, for one k and one protection.

    Attributes:
        k, protect: what was asked.
        points: share suppressed, and mean generalisation error, both rounded; shares rise.
    """

    k: int
    protect: tuple[str, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Comparison:
    """All runs, in the order protection, k, method.

    Attributes:
        runs: the runs.
        time_limit: seconds that each could take, once its process was ready.
        max_suppressed: share that each could suppress.
        frontiers: where TwinCut is among the methods, one for each protection and k that has any.
    """

    runs: tuple[Run, ...]
    time_limit: float
    max_suppressed: float
    frontiers: tuple[Frontier, ...] = ()

    def write(self, directory: str | PathLike[str]) -> Path:
        """Write comparison.csv, .md, .tex and .html into a folder that is new, empty or an earlier comparison."""
        from flowveil.experiments.comparison_tables import write_comparison

        return write_comparison(self, directory)

    def _repr_html_(self) -> str:
        from flowveil.experiments.comparison_tables import to_html
        from flowveil.report.document import frame

        return frame(to_html(self))


def compare_flows(
    flows: Flows,
    *,
    methods: str | Sequence[str] = "all",
    k: int | Sequence[int] = (5, 10, 20),
    protect: str | Sequence[str | Sequence[str]] = ("trips",),
    max_suppressed: float = 0.1,
    time_limit: float = 300.0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """Run every combination on the same flows; see `flowveil.compare`.

    Raises:
        ParameterError: a method, unit, option or number is wrong; nothing was run.
        DataError: the data has no persons or weights that a protection needs.
    """
    names = [n for n, m in METHODS.items() if not m.noisy] if methods == "all" else _listed(methods)
    for name in names:
        if find_method(name).noisy:
            raise ParameterError(
                f"Method '{name}' cannot be compared: it promises no k, and its measures may not be published. "
                "Hint: run it alone; Release.metrics() has its measures for you."
            )
    for name, chosen in (options or {}).items():
        find_method(name).check_options(chosen)
    steps = [k] if isinstance(k, int) else list(k)
    protections = [_units(p) for p in ([protect] if isinstance(protect, str) else protect)]
    if not names or not steps or not protections:
        raise ParameterError("There is nothing to compare: name at least one method, one k and one protection.")
    for step in steps:
        for units in protections:
            Guarantee.resolve(flows, k=step, protect=units)
    if not 0 <= max_suppressed < 1:
        raise ParameterError(f"max_suppressed must be at least 0 and below 1; found {max_suppressed!r}.")
    if not time_limit > 0:
        raise ParameterError(f"The time limit must be above 0 seconds; found {time_limit!r}.")
    data = pickle.dumps(flows, protocol=pickle.HIGHEST_PROTOCOL)
    todo = [(units, step, name) for units in protections for step in sorted(set(steps)) for name in names]
    runs = []
    for number, (units, step, name) in enumerate(todo):
        asked = {"method": name, "k": step, "protect": units, "max_suppressed": max_suppressed}
        runs.append(_run(data, {**asked, **(options or {}).get(name, {})}, time_limit))
        if progress is not None:
            progress((number + 1) / len(todo))
    swept = [(units, step) for units, step, name in todo if name == "twincut"]
    return Comparison(
        runs=tuple(runs),
        time_limit=float(time_limit),
        max_suppressed=max_suppressed,
        frontiers=tuple(f for units, step in swept if (f := _frontier(data, units, step, time_limit)) is not None),
    )


def _listed(names: str | Sequence[str]) -> list[str]:
    parts = names.split(",") if isinstance(names, str) else names
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _units(protect: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(protect.split("+")) if isinstance(protect, str) else tuple(protect)


# ---- one run -----------------------------------------------------------------------------------------------------


def _run(data: bytes, asked: dict[str, Any], time_limit: float) -> Run:
    """Run in a process of its own."""
    named = {"method": asked["method"], "k": asked["k"], "protect": asked["protect"]}
    try:
        result = _in_child(data, asked, time_limit)
    except subprocess.TimeoutExpired:
        return Run(**named, status=TIMED_OUT, reason=f"stopped after {time_limit:,g} seconds")
    if result is None:
        return Run(
            **named,
            status=FAILED,
            reason="the process did not start, or ended without a result; memory may have run out",
        )
    for name in ("flows", "zones"):
        if result.get(name) is not None:
            result[name] = pa.ipc.open_stream(result[name]).read_all()
    return Run(**named, **result)


def _frontier(data: bytes, units: tuple[str, ...], k: int, time_limit: float) -> Frontier | None:
    """Sweep in a process of its own; None where it found nothing or took too long."""
    try:
        result = _in_child(data, {"sweep": {"k": k, "protect": units}}, time_limit)
    except subprocess.TimeoutExpired:
        return None
    points = (result or {}).get("points")
    return Frontier(k=k, protect=units, points=points) if points else None


def _in_child(data: bytes, asked: dict[str, Any], time_limit: float) -> dict[str, Any] | None:
    """The flows go in by the child's input, the result comes back by its output; None where it broke.

    Raises:
        subprocess.TimeoutExpired: it took too long and was stopped.
    """
    # The child finds the same flowveil, wherever it was found here.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    code = "from flowveil.experiments.comparison import serve; serve()"
    job = pickle.dumps(asked, protocol=pickle.HIGHEST_PROTOCOL) + data
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # What a library prints when it fails may quote the input.
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    talk = _Conversation(child, job)
    try:
        if talk.ready.wait(START_LIMIT):
            # Starting, importing, unpacking and compiling are over: this is the run itself.
            talk.done.wait(time_limit)
        elif not talk.done.is_set():
            return None
        if not talk.done.is_set():
            raise subprocess.TimeoutExpired(code, time_limit)
    finally:
        talk.end()
    answer = talk.answer
    if child.returncode != 0 or not answer:
        return None
    result: dict[str, Any] = pickle.loads(answer)
    return result


class _Conversation:
    """Hands the job to the child and listens, in a thread, so that waiting for it can be given up.

    Attributes:
        ready: set when the child is about to start the run, or is gone.
        done: set when nothing more will come.
        answer: what came.
    """

    def __init__(self, child: subprocess.Popen[bytes], job: bytes) -> None:
        self.ready, self.done = threading.Event(), threading.Event()
        self.answer = b""
        self._child = child
        self._thread = threading.Thread(target=self._talk, args=(job,), daemon=True)
        self._thread.start()

    def _talk(self, job: bytes) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            with self._child.stdin as way_in:
                way_in.write(job)
            if self._child.stdout.read(len(_READY)) == _READY:
                self.ready.set()
                self.answer = self._child.stdout.read()
        except OSError:
            # The child is gone; the missing answer says so.
            pass
        finally:
            self.done.set()
            self.ready.set()

    def end(self) -> None:
        """Stop the child if it is still running, and leave nothing open."""
        if not self.done.is_set():
            self._child.kill()
        self._thread.join()
        self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()


def serve() -> None:
    """The child: take a job from the standard input and answer on the standard output."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever a library prints must not end up in the answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with output:
        answer_job(output)


def answer_job(output: BinaryIO) -> None:
    """Read a job, get ready, say so, run it, write the result."""
    asked = pickle.load(sys.stdin.buffer)
    flows = pickle.load(sys.stdin.buffer)
    if "sweep" in asked:
        _say_ready(output)
        result = _sweep(flows, **asked["sweep"])
    else:
        _warm_up(flows, asked)
        _say_ready(output)
        result = _result(flows, asked)
    pickle.dump(result, output, protocol=pickle.HIGHEST_PROTOCOL)


def _say_ready(output: BinaryIO) -> None:
    output.write(_READY)
    output.flush()


def _sweep(flows: Flows, *, k: int, protect: Sequence[str]) -> dict[str, Any]:
    from flowveil.api import frontier
    from flowveil.report.frontier import rounded_points

    return {"points": rounded_points(frontier(flows, k=k, protect=protect))}


def _warm_up(flows: Flows, asked: dict[str, Any]) -> None:
    """Run the same on a few flows: what is imported or compiled at the first call costs no measured time."""
    from flowveil.api import anonymize

    few = np.arange(len(flows)) < WARM_UP_FLOWS
    cells = flows.select(few)
    small = Flows(
        cells.origin,
        cells.destination,
        cells.trips,
        cells.weight,
        cells.people,
        origins=flows.origins,
        destinations=flows.destinations,
        intake=flows.intake,
    )
    # What goes wrong with a few flows tells nothing about all of them.
    with contextlib.suppress(Exception):
        anonymize(small, **{**asked, "k": 2})


def _exact_error(release: Release, basis: str) -> float:
    """The error with all its digits, and never withheld: what methods are compared by."""
    plan, cells = release.plan, release.cells
    size = plan.origin_zones.size[cells.origin].astype(np.float64) + plan.destination_zones.size[cells.destination]
    return float(np.average(size, weights=cells.volume(basis)))


def _result(flows: Flows, asked: dict[str, Any]) -> dict[str, Any]:
    from flowveil.api import anonymize
    from flowveil.report.summary import summarize

    started = time.perf_counter()
    try:
        release = anonymize(flows, **asked)
    except InfeasibleError as problem:
        return {"status": INFEASIBLE, "reason": str(problem)}
    except FlowveilError as problem:
        return {"status": FAILED, "reason": str(problem)}
    except Exception as problem:
        # The message of a foreign error may quote the input: name its kind and nothing else.
        return {"status": FAILED, "reason": f"unexpected {type(problem).__name__}"}
    seconds = time.perf_counter() - started
    report = summarize(release)
    basis, error = release.guarantee.basis, "mean_generalization_error"
    return {
        "status": DONE,
        "seconds": seconds,
        "basis": basis,
        # This page is for the data holder: the error by which methods are compared is on it whatever it tells.
        "measures": {**report["measures"][basis], error: _exact_error(release, basis)},
        "withheld": tuple(n for n in (report["withheld"] or {}).get("measures", {}).get(basis, ()) if n != error),
        "flows": _stream(release.flows),
        "zones": _stream(release.zones),
        "homogeneous": release.plan.homogeneous,
    }


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
