"""Persons that stay on the executors: the same releases, byte by byte, or a refusal with a
reason."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowveil
from contract.cases import GUARANTEES, RUNS, Run, flows_of, folded_flows_of
from flowveil.core.errors import DataError, FlowveilError
from flowveil.core.flows import Flows
from flowveil.core.remote_people import RemotePeople
from flowveil.methods import METHODS, remote_pairs
from samples.distant import distant
from samples.drafts import unchecked
from samples.hourly import hourly_trips
from samples.processes import in_this_process
from samples.releases import city_flows
from samples.verified import findings_of

#: Methods that look at persons one by one while they decide.
NEED_ROWS = {"mondrian", "glove", "curvecut", "laplace", "topdown", "privtree", "posterior"}
COUNTING = [run for run in RUNS if run.method not in NEED_ROWS]


def decided(flows: Flows, run: Run, asked: str) -> Any:
    """What is published and measured, or why nothing is."""
    how = {**GUARANTEES[asked], **run.options, "population_only": True}
    try:
        release = flowveil.anonymize(flows, run.method, max_suppressed=0.2, **how)
    except FlowveilError as error:
        return str(error)
    return [
        c.tolist() for c in (release.cells.origin, release.cells.trips, release.cell_of_flow)
    ], release.metrics()


@pytest.mark.parametrize("run", COUNTING, ids=str)
@pytest.mark.parametrize("asked", ["people", "combined"])
def test_methods_that_count_decide_the_same(
    run: Run, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked == "people":  # One query for each depth; otherwise one for all.
        monkeypatch.setattr(remote_pairs, "QUERY_BYTES", 0)
    flows = flows_of("uneven", "h3") if asked == "people" else flows_of("all-equal", "ragged")
    assert decided(distant(flows), run, asked) == decided(flows, run, asked)


@pytest.mark.parametrize("asked", GUARANTEES)
def test_folded_times_are_decided_the_same(asked: str) -> None:
    flows = folded_flows_of("uneven", "h3")
    run = Run("paircut", {"spend": False})
    assert decided(distant(flows, n_blocks=5), run, asked) == decided(flows, run, asked)


@pytest.mark.parametrize("method", sorted(NEED_ROWS))
def test_methods_that_need_the_rows_of_persons_are_refused_with_a_reason(method: str) -> None:
    flows = distant(flows_of("uneven", "h3"))
    how: dict[str, Any] = {"k": 4, "protect": "people"}
    if METHODS[method].counts == "noisy":
        how = {
            "epsilon": 1.0,
            "bound": 3,
            "region": "observed" if method == "laplace" else "841fb47ffffffff",
        }
    with pytest.raises(
        DataError,
        match=r"needs every person of every flow on the driver.*twincut.*driver_flows=\d+",
    ):
        flowveil.anonymize(flows, method, **how)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_counts_are_those_of_people_here_after_any_merges(data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=40, unique=True
        )
    )
    flow, person = np.array(sorted(rows), np.int32).T
    flows = flows_of("uneven", "one-tile")
    here: Any = flowveil.core.flows.People(flow, person)
    blocks = distant(flows, n_blocks=1).people.blocks.__class__(
        flow, person.astype(np.int64), n_flows=6, n_blocks=3
    )
    there: Any = RemotePeople(blocks, np.arange(6, dtype=np.int32), np.arange(6, dtype=np.int32))
    n = 6
    for _ in range(data.draw(st.integers(1, 3))):
        cells = np.array(data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)), np.int32)
        here, there, n = here.merge(cells), there.merge(cells), 4
        assert there.count(n).tolist() == here.count(n).tolist()
        assert there.total() == here.total()


def files(folder: Path) -> dict[str, str]:
    """Hashes and not bytes: where two folders differ, pytest would look for the difference for an
    hour."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_folders_are_the_same_and_recounted_where_the_persons_are(tmp_path: Path) -> None:
    how: dict[str, Any] = {"k": 4, "protect": ["people", "population"], "l": 2}
    cases = {
        "plain": (city_flows(), lambda flows: flowveil.anonymize(flows, **how)),
        "hopeless": (city_flows(), lambda flows: flowveil.anonymize(flows, "odkanon", **how)),
        "sliced": (
            flowveil.read_slices(
                hourly_trips(900),
                time="start",
                every="weekday",
                person="who",
                weight="w",
                resolution=6,
            ),
            lambda flows: flowveil.anonymize_slices(flows, workers=2, **how),
        ),
    }
    for name, (flows, made) in cases.items():
        made(distant(flows)).write(tmp_path / f"{name}-there")
        # These are to have the bytes of a folder that was recounted.
        with unchecked(), in_this_process():
            made(flows).write(tmp_path / f"{name}-here")
        assert files(tmp_path / f"{name}-here") == files(tmp_path / f"{name}-there")


def test_a_recount_notices_that_persons_are_missing(tmp_path: Path) -> None:
    flows = city_flows()
    with unchecked():
        flowveil.anonymize(flows, k=4, protect="people").write(tmp_path / "release")
    fewer = distant(flows)
    assert findings_of(tmp_path / "release", fewer) == []
    fewer.people.blocks.blocks.pop()
    assert findings_of(tmp_path / "release", fewer)
