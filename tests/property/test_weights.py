"""Published weights are clean decimals, and no order of the rows leaves a trace in them."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction

import h3
import numpy as np
import pyarrow as pa
import pytest

from flowveil import anonymize, read_trips
from flowveil.methods import k_methods
from samples.drafts import unchecked

CELLS = sorted(h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 8), 2))
#: Decimals of which no sum is exact as a sum of doubles; 61.65 also as a 32-bit number holds it.
DECIMALS = (0.1, 0.2, 0.3, 1.1, 61.65, float(np.float32(61.65)), 1234.567891)


def _rows(n: int) -> dict[str, list]:
    rng = np.random.default_rng(7)
    return {
        "o": [CELLS[i] for i in rng.integers(0, len(CELLS), n)],
        "d": [CELLS[i] for i in rng.integers(0, len(CELLS), n)],
        "w": [DECIMALS[i] for i in rng.integers(0, len(DECIMALS), n)],
    }


def _read(rows: dict[str, list], order: np.ndarray, *, parts: int = 1):
    table = pa.table(rows).take(pa.array(order))
    # Engines see the parts as separate batches.
    table = pa.concat_tables(
        [table.slice(i * len(order) // parts, len(order) // parts) for i in range(parts)]
    )
    return read_trips(table, origin_tile="o", destination_tile="d", weight="w")


@pytest.mark.parametrize("method", k_methods())
def test_the_order_of_the_rows_leaves_no_trace_and_weights_are_clean(method):
    rows, rng = _rows(600), np.random.default_rng(1)
    asked = {"method": method, "k": 5, "protect": ["trips", "population"]}
    one, other = (
        anonymize(_read(rows, rng.permutation(600), parts=parts), **asked) for parts in (1, 4)
    )
    assert one.flows.equals(other.flows)
    weights = one.flows.column("weight").to_pylist()
    assert weights
    assert all(Decimal(repr(w)).as_tuple().exponent >= -6 for w in weights)


def test_the_order_of_the_rows_leaves_no_trace_in_a_folder(tmp_path):
    rows, rng = _rows(600), np.random.default_rng(2)
    for name in "ab":
        flows = _read(rows, rng.permutation(600))
        # The second is to have the bytes of the first, which was recounted.
        with unchecked() if name == "b" else nullcontext():
            anonymize(flows, k=5, protect=["trips", "population"]).write(tmp_path / name)
    for file in sorted(p for p in (tmp_path / "a").rglob("*") if p.is_file()):
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()


def test_k_trips_of_one_weight_reach_k_mean_weights():
    """Added up as doubles, ten times 0.1 is less than 1, and k times the mean may be more."""
    rows = {"o": [CELLS[0]] * 10 + [CELLS[1]] * 30, "d": [CELLS[0]] * 40, "w": [0.1] * 40}
    release = anonymize(
        _read(rows, np.arange(40)),
        method="suppression",
        k=10,
        protect="population",
        max_suppressed=0,
    )
    assert sorted(release.cells.weight.tolist()) == [1.0, 3.0]
    assert release.guarantee.population == 1.0


def test_a_weight_is_the_sum_of_its_decimals():
    rows = _rows(500)
    exact = sum(Fraction(str(round(w, 6))) for w in rows["w"])
    assert _read(rows, np.arange(500)).total("weight") == float(exact)


@pytest.mark.parametrize(
    ("weight", "is_said"), [([61.65, 0.000001, 8589934.123456], False), ([61.65, 1 / 3], True)]
)
def test_rounding_is_never_silent(weight, is_said):
    place = {
        f"{end}_{axis}": [value] * len(weight)
        for end in "od"
        for axis, value in (("lat", 48.8), ("lon", 2.3))
    }
    notes = read_trips(pa.table({**place, "w": weight}), weight="w").intake.notes
    assert any("more than six decimals" in note for note in notes) == is_said
