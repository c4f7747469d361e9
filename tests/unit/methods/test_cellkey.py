"""Cell keys: the same cell has the same value everywhere, the noise is as stated, and the key is shown nowhere."""

from __future__ import annotations

import csv
import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil import InfeasibleError, OutputError, ParameterError, anonymize, anonymize_slices, read_slices, read_trips
from flowveil.cli import main
from flowveil.flows import Flows
from flowveil.hierarchy import Hierarchy
from flowveil.methods.cellkey import cellkey, noise_table, spread
from flowveil.record_keys import MODULUS, create_key, read_key, sum_keys
from flowveil.verify.verification import PrivateFiles, verify_release
from flowveil.zoning.restriction import refined
from reference import cellkey as naive
from samples.keyed import table_of, write_trips


@pytest.fixture
def key(tmp_path) -> Path:
    create_key(tmp_path / "key")
    return tmp_path / "key"


def test_record_keys_are_an_hmac_of_the_id_or_of_all_columns(key, tmp_path):
    rows, secret = write_trips(tmp_path / "trips.csv"), bytes.fromhex(key.read_text().strip())
    columns = sorted(rows[0])
    for how, values in (({"record_id": "trip"}, ["trip"]), ({}, columns)):
        flows = read_trips(tmp_path / "trips.csv", resolution=0, no_person=True, key_file=key, **how)
        want = sum(naive.record_key(secret, [row[name] for name in values]) for row in rows) % MODULUS
        assert (int(flows.keys.sum()) % MODULUS, flows.intake.key) == (want, read_key(key).fingerprint)


def test_record_keys_stay_with_their_flows_on_halves(key, tmp_path):
    write_trips(tmp_path / "trips.csv")
    flows = read_trips(tmp_path / "trips.csv", resolution=8, no_person=True, key_file=key)
    on_halves, _ = refined(flows, "halves")

    def by_pair(some):
        ends = (tree.code[tree.leaf_node[leaf]].tolist() for tree, leaf in some.ends)
        return dict(zip(zip(*ends, strict=True), some.keys.tolist(), strict=True))

    assert not np.array_equal(on_halves.keys, flows.keys)
    assert by_pair(on_halves) == by_pair(flows)


def test_the_same_cell_has_the_same_value_in_every_table(key, tmp_path):
    rows = write_trips(tmp_path / "trips.csv")
    how = {"no_person": True, "key_file": key, "record_id": "trip"}
    trips = read_trips(tmp_path / "trips.csv", resolution=8, **how)
    want = table_of(anonymize(trips, "cellkey", level=6))
    # A later release after an irrelevant correction, in another order.
    write_trips(tmp_path / "later.csv", corrected=True)
    later = read_trips(tmp_path / "later.csv", resolution=8, **how)
    assert table_of(anonymize(later, "cellkey", level=6)) == want
    # The total of slices, and the slices of one sex next to a table of that sex alone.
    sliced = read_slices(tmp_path / "trips.csv", resolution=8, by="sex", **how)
    tables: dict = {}
    for (*pair, sex), n in table_of(anonymize_slices(sliced, "cellkey", total=True, level=6)).items():
        tables.setdefault(sex, {})[tuple(pair)] = n
    assert tables[None] == want
    women = [row for row in rows if row["sex"] == "f"]
    with (tmp_path / "women.csv").open("w", newline="") as file:
        csv.DictWriter(file, list(rows[0])).writerows([dict(zip(rows[0], rows[0], strict=True)), *women])
    alone = read_trips(tmp_path / "women.csv", resolution=8, **how)
    assert table_of(anonymize(alone, "cellkey", level=6)) == tables["f"]
    # Without an id the correction is a change of every record.
    names = ("trips.csv", "later.csv")
    other = [read_trips(tmp_path / name, resolution=8, no_person=True, key_file=key) for name in names]
    assert not np.array_equal(other[0].keys, other[1].keys)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 4), st.integers(0, MODULUS - 1)), min_size=1
    ),
    st.sampled_from([(5, 3.0, 2), (3, 0.2, 0), (4, 2.5, 1), (2, 1.0, 0)]),
    st.sampled_from([None, 1]),
)
@settings(max_examples=60, deadline=None)
def test_the_fast_method_is_the_slow_one(rows, parameters, level):
    tree = Hierarchy.from_parents([-1, 0, 0, 1, 1, 2, 2, 2, 2], np.array([f"n{i}" for i in range(9)]))[0]
    origin, destination, trips, keys = map(np.array, zip(*rows, strict=True))
    flows = Flows.from_pairs(origin, destination, trips, origins=tree, destinations=tree)
    pair = origin * 6 + destination
    flows = replace(flows, keys=sum_keys(np.searchsorted(np.unique(pair), pair), keys, len(flows)))
    maximum, variance, small = parameters
    counts = cellkey(flows, maximum=maximum, variance=variance, small=small, level=level)
    found = {
        (o, d): n
        for o, d, n in zip(
            counts.plan.origin_zones.codes(counts.cells.origin).tolist(),
            counts.plan.destination_zones.codes(counts.cells.destination).tolist(),
            counts.cells.trips.tolist(),
            strict=True,
        )
    }
    leaf = tree.code_text(tree.leaf_node).tolist()
    zone = {i: (("n1" if i < 2 else "n2") if level else leaf[i]) for i in range(6)}
    table = noise_table(maximum, variance, small).tolist()
    want = {c: naive.perturbed(n, k, table) for c, (n, k) in naive.cells(rows, zone).items()}
    assert found == {cell: n for cell, n in want.items() if n}


@pytest.mark.parametrize(("maximum", "variance", "small"), [(5, 3.0, 2), (3, 0.2, 0), (4, 2.5, 1), (8, 7.5, 3)])
def test_the_table_has_the_largest_entropy(maximum, variance, small):
    table, noise = noise_table(maximum, variance, small), np.arange(-maximum, maximum + 1)
    assert (table.sum(axis=1) == MODULUS).all()
    assert not (table @ noise).any()
    assert np.allclose(table @ noise**2 / MODULUS, variance, atol=1e-6)
    for count, row in enumerate(table, start=1):
        want = naive.distribution(count, maximum, variance, small)
        assert np.allclose(row / MODULUS, [want.get(x, 0) for x in noise.tolist()], atol=2e-3)


@pytest.mark.parametrize(
    "options",
    [{"variance": 5}, {"variance": 2}, {"variance": 0}, {"maximum": 0}, {"maximum": 21}, {"small": 4}, {"small": -1}],
    ids=str,
)
def test_a_table_that_does_not_exist_is_refused(options):
    with pytest.raises(ParameterError):
        noise_table(**{"maximum": 5, "variance": 3.0, "small": 2, **options})


def test_the_noise_has_the_stated_variance_and_maximum_and_unions_have_their_own():
    rng, n = np.random.default_rng(2), 200_000
    table = np.cumsum(noise_table(5, 3.0, 2), axis=1)[-1]
    keys = rng.integers(0, MODULUS, (2, n))
    noise = [
        np.searchsorted(table, spread(k % MODULUS), side="right") - 5 for k in (keys[0], keys[1], keys[0] + keys[1])
    ]
    for one in noise:
        assert abs(one).max() == 5
        assert abs(one.mean()) < 6 * np.sqrt(3 / n)
        assert abs(one.var() - 3) < 0.1
    # What two disjoint cells say together is independent of what their union says.
    for x, y in ((noise[0], noise[1]), (noise[0], noise[2]), (noise[0] + noise[1], noise[2])):
        assert abs(np.corrcoef(x, y)[0, 1]) < 6 / np.sqrt(n)


def shown_values(table: np.ndarray) -> dict[int, dict[int, float]]:
    """What is published of each count, with its probability."""
    noise, shares = np.arange(table.shape[1]) - table.shape[1] // 2, table / MODULUS
    shown = {n: {int(n + x): p for x, p in zip(noise, shares[min(n, len(table)) - 1], strict=True) if p}
             for n in range(1, 40)}  # fmt: skip
    return {0: {0: 1.0}, **shown}


@pytest.mark.parametrize(("maximum", "variance", "small"), [(5, 3.0, 2), (3, 1.5, 1)])
def test_one_table_never_reveals_a_count_of_one(maximum, variance, small):
    """Brute force: whatever is published of a cell of one trip, other counts explain it as well."""
    shown = shown_values(noise_table(maximum, variance, small))
    for value in shown[1]:
        assert len([n for n in shown if value in shown[n]]) >= (2 if value == 0 else maximum - small)
    assert all(value == 0 or value > small for values in shown.values() for value in values)


def test_nested_tables_determine_a_count_of_one_rarely():
    """Brute force over two disjoint cells and their union: extreme noise determines a count, as the docs say."""
    shown = shown_values(noise_table(5, 3.0, 2))
    worlds: dict[tuple[int, int, int], set[int]] = {}
    for a, b in itertools.product(range(16), repeat=2):
        for seen in itertools.product(shown[a], shown[b], shown[a + b]):
            worlds.setdefault(seen, set()).add(a)
    chance = {}
    for b in range(8):
        triples = itertools.product(shown[1].items(), shown[b].items(), shown[1 + b].items())
        chance[b] = sum(p * q * r for (x, p), (y, q), (z, r) in triples if worlds[x, y, z] == {1})
    assert 0 < max(chance.values()) < 1e-4


def test_verification_needs_the_key_and_notices_a_changed_cell(key, tmp_path):
    write_trips(tmp_path / "trips.csv")
    how = {"resolution": 7, "no_person": True, "key_file": key}
    for flows, make in (
        (read_trips(tmp_path / "trips.csv", **how), anonymize),
        (read_slices(tmp_path / "trips.csv", by="sex", **how), anonymize_slices),
    ):
        folder = make(flows, "cellkey").write(tmp_path / make.__name__)
        private = PrivateFiles(key_file=key)
        assert verify_release(folder, against=tmp_path / "trips.csv", private=private).findings == ()
        without = verify_release(folder, against=tmp_path / "trips.csv")
        assert without.findings == ()
        assert "only the form" in without.not_compared[0]
        create_key(tmp_path / f"other-{make.__name__}")
        other = PrivateFiles(key_file=tmp_path / f"other-{make.__name__}")
        assert "another key" in verify_release(folder, against=tmp_path / "trips.csv", private=other).findings[0]


@pytest.mark.parametrize("change", ["more", "fewer", "missing"])
def test_a_changed_cell_is_found(key, tmp_path, change):
    from samples.verified import findings_of

    write_trips(tmp_path / "trips.csv")
    flows = read_trips(tmp_path / "trips.csv", resolution=7, no_person=True, key_file=key)
    release = anonymize(flows, "cellkey")
    cells = release.cells
    at = int(np.argmax(cells.trips))
    kept = np.ones(len(cells), bool)
    trips = cells.trips.copy()
    trips[at] += {"more": 1, "fewer": -1, "missing": 0}[change]
    kept[at] = change != "missing"
    false = replace(cells, trips=trips).select(kept)
    from flowveil.errors import GuaranteeError

    with pytest.raises(GuaranteeError, match="the key and the trips give"):
        replace(release, cells=false).write(tmp_path / "out")
    assert findings_of(release.write(tmp_path / "out"), flows) == []


def test_the_ledger_accepts_further_tables_with_the_same_key_only(key, tmp_path):
    write_trips(tmp_path / "trips.csv")
    create_key(tmp_path / "key2")
    how = {"resolution": 7, "no_person": True}
    ids = {"record_id": "trip"}
    flows = read_trips(tmp_path / "trips.csv", key_file=key, **ids, **how)
    ledger = tmp_path / "ledger"
    anonymize(flows, "cellkey").write(tmp_path / "a", ledger=ledger)
    anonymize(flows, "cellkey", level=5).write(tmp_path / "b", ledger=ledger)
    sliced = read_slices(tmp_path / "trips.csv", by="sex", key_file=key, **ids, **how)
    anonymize_slices(sliced, "cellkey").write(tmp_path / "c", ledger=ledger)
    refused = {
        "another key": anonymize(
            read_trips(tmp_path / "trips.csv", key_file=tmp_path / "key2", **ids, **how), "cellkey"
        ),
        "another variance": anonymize(flows, "cellkey", variance=2.5),
        "other keys": anonymize(read_trips(tmp_path / "trips.csv", key_file=key, **how), "cellkey"),
        "exact counts next to perturbed ones": anonymize(flows, "suppression", k=5),
    }
    for reason, release in refused.items():
        with pytest.raises(InfeasibleError, match=reason):
            release.write(tmp_path / "d", ledger=ledger)


def test_tables_of_almost_the_same_trips_need_record_ids(key, tmp_path):
    """With a new column every record has a new key: the mean of a hundred such tables would be the true counts."""
    write_trips(tmp_path / "trips.csv")
    lines = (tmp_path / "trips.csv").read_text().splitlines()
    (tmp_path / "wider.csv").write_text("\n".join([f"{lines[0]},x", *(f"{line},0" for line in lines[1:-1])]) + "\n")
    how = {"resolution": 7, "no_person": True, "key_file": key}
    for ids in ({}, {"record_id": "trip"}):
        first, wider = (
            anonymize(read_trips(tmp_path / name, **how, **ids), "cellkey") for name in ("trips.csv", "wider.csv")
        )
        ledger = tmp_path / f"ledger{len(ids)}"
        first.write(tmp_path / "a", ledger=ledger, overwrite=True)
        if ids:
            wider.write(tmp_path / "b", ledger=ledger)
            continue
        with pytest.raises(InfeasibleError, match=r"without input\.record_id"):
            wider.write(tmp_path / "b", ledger=ledger)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_key_files_are_private_and_never_quoted(key, tmp_path):
    secret = key.read_text()
    assert key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OutputError, match="never overwritten"):
        create_key(key)
    bad = tmp_path / "bad"
    for content, mode, match in (
        (secret, 0o640, "read by others"), (secret[:40], 0o600, "64 hexadecimal"), ("ab" * 32, 0o600, "at random"),
    ):  # fmt: skip
        bad.write_text(content)
        bad.chmod(mode)
        with pytest.raises(ParameterError, match=match) as caught:
            read_key(bad)
        assert content.strip() not in str(caught.value)
    with pytest.raises(ParameterError, match="cannot be read"):
        read_key(tmp_path / "none")


def test_the_key_is_in_no_file_and_no_output(key, tmp_path, capfd):
    write_trips(tmp_path / "trips.csv")
    secret, out = key.read_text().strip(), tmp_path / "out"
    call = ["anonymize", f"{tmp_path}/trips.csv", "--method", "cellkey", "--key-file", f"{key}", "--resolution", "7",
            "--no-person", "--out", f"{out}", "--format", "csv,geojson"]  # fmt: skip
    main(call)
    main(["verify", f"{out}", "--against", f"{tmp_path}/trips.csv", "--key-file", f"{key}"])
    with pytest.raises(SystemExit):
        main([*call, "--k", "5"])
    with pytest.raises(SystemExit):
        main([word for word in call if word not in ("--key-file", f"{key}")])
    said = "".join(capfd.readouterr())
    content = b"".join(path.read_bytes() for path in out.iterdir())
    assert "perturbed" in said
    assert "at least k" not in said
    assert all(form not in said for form in (secret, secret.upper()))
    assert all(form not in content for form in (secret.encode(), bytes.fromhex(secret)))
    assert read_key(key).fingerprint.encode() in content
    assert secret not in repr(read_key(key))
    assert pq.read_table(out / "flows.parquet").column_names == ["origin_zone", "destination_zone", "trips"]


def test_keys_of_merged_cells_add_up():
    keys = np.random.default_rng(0).integers(0, MODULUS, 100_000)
    row = np.arange(100_000) % 7 - 1
    want = [sum(keys[row == i].tolist()) % MODULUS for i in range(6)]
    assert sum_keys(row, keys, 6).tolist() == want
