"""Entropy and recursive (c, l)-diversity of sensitive values (Machanavajjhala et al. 2007)."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from math import log

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

from flowveil import InfeasibleError, ParameterError
from flowveil.core.errors import GuaranteeError
from flowveil.tabular.mondrian import anonymize_records
from flowveil.tabular.risk import recheck
from unit.apps.cli.test_cli import run


def table_of(seed: int, n: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    illness = rng.choice(["flu", "cold", "gout", "none"], n, p=[0.5, 0.25, 0.15, 0.1])
    return pa.table({"age": rng.integers(20, 80, n), "illness": illness})


def classes_of(published: pa.Table) -> list[Counter]:
    classes = defaultdict(Counter)
    for row in published.to_pylist():
        classes[row["equivalence_class"]][row["illness"]] += 1
    return list(classes.values())


def effective(values: Counter) -> float:
    """The number of equally frequent values of the same entropy, from the definition."""
    n = values.total()
    return float(np.exp(-sum(c / n * log(c / n) for c in values.values())))


def is_recursive(values: Counter, c: float, l: int) -> bool:  # noqa: E741
    falling = sorted(values.values(), reverse=True)
    return falling[0] < c * sum(falling[l - 1 :])


KEYS = {"quasi_identifiers": ["age"], "sensitive": ["illness"], "direct_identifiers": []}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.sampled_from([2.0, 2.5]), st.sampled_from([2.0, 3.0]), st.booleans())
def test_every_class_is_as_diverse_as_asked(seed, entropy_l, c, strict):
    table = table_of(seed, 400)
    asked = {"k": 4, "strict": strict, **KEYS}
    plain = anonymize_records(table, **asked)
    diverse = anonymize_records(table, **asked, entropy_l=entropy_l)
    recursive = anonymize_records(table, **asked, l=2, recursive_c=c)
    assert all(effective(v) >= entropy_l - 1e-6 for v in classes_of(diverse.table))
    assert all(is_recursive(v, c, 2) for v in classes_of(recursive.table))
    # Not by giving up: classes are finer than the whole, and coarser than without.
    for release in (diverse, recursive):
        assert 1 < release.classes.n_classes <= plain.classes.n_classes
    assert diverse.classes.entropy_l >= entropy_l - 1e-6
    assert recursive.classes.recursive_c < c


def test_the_recount_finds_a_class_that_is_not_diverse():
    table = pa.table({"age": ["a"] * 4 + ["b"] * 4, "illness": list("xxxyxyxy")})
    how = {"quasi_identifiers": ["age"], "k": 4, "sensitive": {"illness": False}}
    recheck(table, **how, entropy_l=1.7, l=2, recursive_c=3.1)
    with pytest.raises(GuaranteeError, match=r"less diverse than 1\.9"):
        recheck(table, **how, entropy_l=1.9)
    # Three records with one value, one without it: 3 is not less than 3 times 1.
    with pytest.raises(GuaranteeError, match="in 3 times the rest"):
        recheck(table, **how, l=2, recursive_c=3.0)


def test_what_cannot_be_asked_or_kept_is_refused():
    table = table_of(0, 100)
    for message, asked in {
        "entropy_l must be a number above 1": {"entropy_l": 1.0},
        "recursive_c must be a number above 0": {"recursive_c": 0.0, "l": 2},
        "recursive_c needs l": {"recursive_c": 2.0},
        "none is named": {"entropy_l": 2.0, "sensitive": (), "keep": ["illness"]},
    }.items():
        with pytest.raises(ParameterError, match=message):
            anonymize_records(table, k=2, **{**KEYS, **asked})
    with pytest.raises(InfeasibleError, match="less diverse"):
        anonymize_records(table, k=2, **KEYS, entropy_l=3.9)


def test_the_command_states_both(tmp_path):
    csv.write_csv(table_of(1, 200), tmp_path / "people.csv")
    asked = ["--k", 4, "--quasi", "age", "--sensitive", "illness", "--no-identifiers"]
    asked += ["--l", 2, "--entropy-l", 2.2, "--recursive-c", 2, "--out", tmp_path / "r.csv"]
    assert run("tabular", "mondrian", tmp_path / "people.csv", *asked) == 0
    report = json.loads((tmp_path / "r.report.json").read_text("utf-8"))
    assert report["guarantee"] == {"k": 4, "l": 2, "entropy_l": 2.2, "recursive_c": 2.0}
    assert "as diverse as 2.2 equally frequent ones" in report["statement"]
    assert "fewer records than 2 times those without its 1 most frequent" in report["statement"]
