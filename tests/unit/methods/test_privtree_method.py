"""PrivTree as a method: its budget, what it refuses, and what the check of a written release
finds."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from fractions import Fraction

import h3
import numpy as np
import pytest

from conftest import trip_table
from flowveil import Flows, Hierarchy, NoisyRelease, ParameterError, anonymize, read_trips
from flowveil.core.flows import Cells
from flowveil.methods.privtree import decay_step
from samples.releases import rehash
from samples.verified import findings_of

REGION = h3.latlng_to_cell(48.85, 2.35, 5)
ASKED = {"epsilon": 6.0, "bound": 3, "region": REGION, "level": 8}


@pytest.fixture(scope="module")
def flows() -> Flows:
    return read_trips(trip_table(3000), resolution=9)


@pytest.fixture(scope="module")
def release(flows) -> NoisyRelease:
    return anonymize(flows, "privtree", **ASKED)


@pytest.fixture(scope="module")
def written(release, tmp_path_factory):
    return release.write(tmp_path_factory.mktemp("privtree") / "out")


def test_the_budget_pays_for_the_noise_exactly(release):
    divisions, counts = release.guarantee.steps
    assert (divisions.of, counts.of) == ("divisions", "counts")
    assert Fraction(divisions.scale) >= 3 * Fraction(15, 7) / 3
    assert (counts.scale, release.guarantee.scale) == (1.0, 1.0)
    for scale in (Fraction(1, 7), Fraction(30, 7), Fraction(10**5)):
        d = decay_step(scale, 8.0)
        assert math.exp(-d / scale) <= 1 / 8 < math.exp(-(d - 1) / scale)


def test_zones_are_as_fine_as_there_are_trips(release):
    levels = release.plan.origin_zones.level[release.cells.origin]
    assert len(set(levels.tolist())) > 1
    assert levels.max() <= 8
    assert abs(int(release.cells.trips.sum()) - 3000) < 1500


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"region": "observed"}, "region=observed"),
        ({"budget": "0.5,0.4"}, "2 shares above 0"),
        ({"decay": 1.0}, "decay must be"),
        ({"decay": float("nan")}, "decay must be"),
        ({"divide_above": -1}, "divide_above must be"),
        ({"bound": None}, "privtree needs a bound"),
        ({"epsilon": None}, "privtree needs epsilon"),
        ({"epsilon": 1e-5, "bound": 9}, "share of the divisions"),
    ],
)
def test_what_is_refused(flows, more, words):
    with pytest.raises(ParameterError, match=words):
        anonymize(flows, "privtree", **{**ASKED, **more})


# ---- the check -----------------------------------------------------------------------------------


def with_cells(release: NoisyRelease, rows: dict[tuple[int, int], int]) -> NoisyRelease:
    pairs = sorted(rows)
    cells = Cells(
        np.array([o for o, _ in pairs], np.int32),
        np.array([d for _, d in pairs], np.int32),
        np.array([rows[pair] for pair in pairs]),
    )
    return dataclasses.replace(release, cells=cells)


def rows_of(release: NoisyRelease) -> dict[tuple[int, int], int]:
    cells = release.cells
    return dict(
        zip(
            zip(cells.origin.tolist(), cells.destination.tolist(), strict=True),
            cells.trips.tolist(),
            strict=True,
        )
    )


def parent_of(release: NoisyRelease, node: int) -> int:
    cells = release.plan.origin_zones.cells.tolist()
    up = h3.cell_to_parent(f"{cells[node]:x}", h3.get_resolution(f"{cells[node]:x}") - 1)
    return cells.index(int(up, 16))


def findings_before_publishing(release: NoisyRelease, place) -> str:
    with pytest.raises(Exception, match="nothing was published") as refused:
        release.write(place)
    return str(refused.value)


def test_pairs_that_count_the_same_trips_are_not_published(release, tmp_path):
    rows = rows_of(release)
    level = release.plan.origin_zones.level
    # The noise is secure, so the pairs differ from run to run: both ends must have a parent.
    fine = next(pair for pair in rows if level[pair[0]] == 8 and level[pair[1]] > level.min())
    rows[parent_of(release, fine[0]), parent_of(release, fine[1])] = 5
    found = findings_before_publishing(with_cells(release, rows), tmp_path / "out")
    assert "lie in other cells" in found or "fall into two published cells" in found


def test_exact_counts_labelled_as_noise_are_found(flows, release, written, tmp_path):
    assert findings_of(written, flows) == []
    at = release.cell_of_flow
    bounded = np.bincount(
        at[at >= 0], weights=flows.trips[at >= 0], minlength=len(release.cells)
    ).astype(np.int64)
    exact = dict(zip(rows_of(release), bounded.tolist(), strict=True))
    forged = with_cells(release, {pair: n for pair, n in exact.items() if n})
    (found,) = findings_of(forged.write(tmp_path / "out"), flows)
    assert "these are counts, not noise" in found


FORGED = {
    "less noise on divisions": lambda r: r["guarantee"]["steps"][0].update(scale=1.5),
    "another decay": lambda r: r["parameters"]["options"].update(decay=1.1),
    "one level": lambda r: r["statement"].update(homogeneous=True),
    "other parts": lambda r: r["guarantee"]["steps"][0].update(of="all"),
    "other words": lambda r: r["guarantee"].update(mechanism="noise, and 7 trips to the clinic"),
    "words on pairs": (
        lambda r: r["guarantee"]["domain"].update(pairs="all pairs, and 7 trips to the clinic")
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_report_that_does_not_add_up_is_found(name, written, flows, tmp_path):
    folder = shutil.copytree(written, tmp_path / "copy")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    FORGED[name](report)
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    rehash(folder)
    assert findings_of(folder, flows)


def test_a_map_with_single_children_is_divided_and_checked(tmp_path):
    rng = np.random.default_rng(5)
    parent = [-1, 0, 1, 1, 2, 2, 3, 6, 6, 6]
    tree, _ = Hierarchy.from_parents(parent, np.array([f"n{i}" for i in range(10)]), kind="table")
    place = [rng.integers(0, tree.n_tiles, 4000) for _ in range(2)]
    flows = Flows.from_pairs(*place, origins=tree, destinations=tree, whole_map=tree)
    for more in ({}, {"level": 2}, {"region": "n2,n3"}):
        made = anonymize(flows, "privtree", epsilon=2, **more)
        assert not {"n0", "n3"} & set(made.flows["origin_zone"].to_pylist()) or more == {"level": 2}
        assert findings_of(made.write(tmp_path / str(len(str(more)))), flows) == []
