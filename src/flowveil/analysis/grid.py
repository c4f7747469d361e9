"""The runs of a comparison: which method with which k or ε, protection and options, checked before anything is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h3.api.basic_int as h3_cells

from flowveil.analysis.runs import check_runs, listed, methods_of, on_tree
from flowveil.errors import InfeasibleError, ParameterError
from flowveil.flows import Flows
from flowveil.guarantee import Guarantee, default_units
from flowveil.methods import METHODS, Method, find_method
from flowveil.methods.epsilon import check_epsilon
from flowveil.methods.paircut import usual_time_weight
from flowveil.zoning.refinement import refined

#: Where time is folded: what an hour is worth, in terms of what it is worth by default.
WEIGHTS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
Task = Mapping[str, Any]


@dataclass(frozen=True)
class Grid:
    """What a comparison runs, each task with what it is asked for.

    Attributes:
        runs: of methods that keep a k, in the order protection, k, method.
        noisy: of methods that add noise, by ε.
        sweeps: one frontier for each run of TwinCut.
    """

    runs: Sequence[Task]
    noisy: Sequence[Task]
    sweeps: Sequence[Task]

    @property
    def tasks(self) -> list[Task]:
        """All of them, in this order."""
        return [*self.runs, *self.noisy, *self.sweeps]

    @classmethod
    def of(
        cls,
        flows: Flows,
        *,
        methods: Any,
        k: int | Sequence[int],
        protect: str | Sequence[str | Sequence[str]] | None,
        epsilon: float | Sequence[float],
        max_suppressed: float,
        limits: Mapping[str, float],
        time_limit: float,
        options: Mapping[str, Mapping[str, Any]],
        hierarchy: str | None,
    ) -> Grid:
        """Every combination of what `flowveil.compare` is asked for.

        Raises:
            ParameterError: a method, unit, option or number is wrong.
            DataError: the data has no persons or weights that a protection needs.
        """
        with_k, with_noise = _chosen(flows, methods, epsilon)
        steps = sorted({k} if isinstance(k, int) else set(k))
        wanted = default_units(flows) if protect is None else protect
        protections = [tuple(listed(p, "+")) for p in ([wanted] if isinstance(wanted, str) else wanted)]
        of_name = {method.name: method for method in with_k}
        for name, chosen in options.items():
            (of_name.get(name) or find_method(name)).check_options(chosen)
        for name in limits:
            find_method(of_name.get(name, name))
        noisy = _noisy_tasks(with_noise, [epsilon] if isinstance(epsilon, int | float) else list(epsilon), options)
        if with_k or not with_noise:
            bounds: dict[str, Any] = {"max_suppressed": [max_suppressed, *limits.values()], "time_limit": time_limit}
            check_runs(flows, with_k, k=steps, protect=protections, **bounds)
        # What cannot be refined is refused before anything is run.
        refined(flows, hierarchy)
        asked: list[Task] = [
            {
                "method": method,
                "k": step,
                "protect": units,
                "max_suppressed": limits.get(method.name, max_suppressed),
                **on_tree(method, hierarchy),
                **options.get(method.name, {}),
            }
            for units in protections
            for step in steps
            for method in with_k
        ]
        runs = [run for task in asked for run in _weighed(flows, task, hierarchy)]
        swept = [
            {"k": run["k"], "protect": run["protect"], "hierarchy": hierarchy}
            for run in runs
            if run["method"].name == "twincut"
        ]
        region = _region_of(noisy)
        compared: Task = {} if region is None else {"useful_in": region}
        return cls([{**run, **compared} for run in runs], [{**run, **compared} for run in noisy], swept)


def _chosen(flows: Flows, methods: Any, epsilon: Any) -> tuple[list[Method], list[Method]]:
    """The methods that keep a k, and those that add noise.

    Raises:
        ParameterError: one is not known, or cannot fold the times of the flows.
    """
    named = methods_of(methods, same_zones=flows.same_zones)
    with_k, with_noise = ([m for m in named if (m.promises == "epsilon") == noisy] for noisy in (False, True))
    if methods == "all" and flows.times is not None:
        with_k = [method for method in with_k if method.folds]
    elif methods == "all" and epsilon != ():
        with_noise = [method for method in METHODS.values() if method.promises == "epsilon"]
    for method in (*with_k, *with_noise):
        method.check_times(flows)
    return with_k, with_noise


def _noisy_tasks(
    methods: Sequence[Method], epsilons: Sequence[float], options: Mapping[str, Mapping[str, Any]]
) -> list[Task]:
    """One run of each method that adds noise for each ε; of those that were asked for, or of the method's options."""
    tasks: list[Task] = []
    for method in methods:
        own = dict(options.get(method.name, {}))
        for epsilon in sorted({*epsilons} if epsilons else {own.get("epsilon")}, key=lambda e: e or 0):
            if epsilon is None:
                raise ParameterError(
                    f"Method '{method.name}' adds noise and is compared by ε. Hint: --epsilon 0.1,1 (epsilon=...)."
                )
            tasks.append({"method": method, **own, "epsilon": check_epsilon(epsilon)})
    return tasks


def _region_of(tasks: Sequence[Task]) -> tuple[int, ...] | None:
    """The H3 cells that noise is confined to: what lies outside must not be held against one and not the other."""
    for task in tasks:
        try:
            cells = tuple(int(name, 16) for name in str(task.get("region") or "").split(",") if name.strip())
        except ValueError:
            continue
        if cells and all(h3_cells.is_valid_cell(cell) for cell in cells):
            return cells
    return None


def _weighed(flows: Flows, task: Task, hierarchy: str | None) -> list[Task]:
    """A task; where time is folded and nobody says what an hour is worth, with several weights.

    They show what finer places cost in wider times: the weight that a run takes by itself on the tree of these flows,
    and parts and multiples of it.
    """
    if flows.times is None:
        return [task]
    flows, _ = task["method"].on_hierarchy(flows, hierarchy)
    if task.get("time_weight") is not None:
        return [task]
    guarantee = Guarantee.resolve(flows, k=task["k"], protect=task["protect"])
    try:
        own = usual_time_weight(*guarantee.to_fixed_point(guarantee.prepare(flows)), task["max_suppressed"])
    except InfeasibleError:
        return [task]
    return [{**task, "time_weight": own * factor} for factor in WEIGHTS]
