"""Changed trip files are read right or refused.

`python -m benchmarks.fuzz_reading --count 20000` tries more.
"""

import pytest

fuzz = pytest.importorskip(
    "benchmarks.fuzz_reading", reason="needs the repository's folder benchmarks"
)


@pytest.mark.slow
def test_changed_files_are_read_right_or_refused(tmp_path):
    found = {seed: fuzz.one(seed, tmp_path) for seed in range(40)}
    assert {seed: wrong for seed, (_, wrong) in found.items() if wrong} == {}
    # Not everything is refused: a reader that reads nothing would pass otherwise.
    assert sum(how == "read" for how, _ in found.values()) > 8
    assert {path.name for path in tmp_path.iterdir()} <= {"t.csv", "t.parquet"}
