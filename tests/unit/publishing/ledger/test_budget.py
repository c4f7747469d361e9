"""Noisy releases in a ledger: ε adds up, and a total is kept."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import h3
import pytest

from conftest import trip_table
from flowveil import InfeasibleError, ParameterError, anonymize, read_trips, verify_release
from flowveil.publishing.ledger.ledger import withdraw
from flowveil.publishing.ledger.ledger_file import LEDGER, open_ledger
from flowveil.release.noisy import NothingLeftError
from samples.drafts import unchecked
from unit.apps.cli.test_cli import run

TRIPS = trip_table(2000)


@pytest.fixture(scope="module", autouse=True)
def drafts_are_not_recounted():
    """Publishes without the recount: the ledger is under test, and two releases are verified
    separately."""
    with unchecked():
        yield


@pytest.fixture(scope="module")
def flows():
    return read_trips(TRIPS, resolution=8, weight="weight")


def new_release(flows, **asked):
    return anonymize(
        flows, **{"method": "paircut", "k": 5, "protect": "trips", "max_suppressed": 0.3, **asked}
    )


#: Of one way of asking there is one release, which many tests write.
release = cache(new_release)


def lines_of(ledger):
    return [json.loads(line) for line in (ledger / LEDGER).read_bytes().splitlines()]


@cache
def coarse_flows(*, persons: bool):
    flows = read_trips(TRIPS if persons else TRIPS.drop_columns("person_id"), resolution=6)
    return flows, ",".join(
        sorted({h3.cell_to_parent(c, 4) for c in flows.origins.code_text(flows.origins.leaf_node)})
    )


def noise(**asked):
    flows, region = coarse_flows(persons="bound" in asked)
    for _ in range(100):
        try:
            return anonymize(
                flows, "topdown", **{"epsilon": 0.1, "region": region, "level": 5, **asked}
            )
        except NothingLeftError:
            # This much noise may leave nothing: draw again.
            continue
    raise AssertionError("nothing is ever left")


def test_a_withdrawn_noisy_release_still_costs(tmp_path):
    ledger = tmp_path / "ledger"
    noise(bound=3, epsilon=0.1).write(tmp_path / "a", ledger=ledger)
    with open_ledger(ledger) as book:
        assert withdraw(book, "a") == 1
    noise(bound=3, epsilon=0.2).write(tmp_path / "b", ledger=ledger)
    report = json.loads((tmp_path / "b" / "report.json").read_text())
    assert report["statement"]["ledger"]["epsilon"] == 0.3


def test_noise_is_added_up_and_not_subtracted(tmp_path):
    ledger = tmp_path / "ledger"
    noise(bound=3, epsilon=0.1).write(tmp_path / "a", ledger=ledger)
    made = noise(bound=3, epsilon=0.2, delta=1e-6)
    made.write(tmp_path / "b", ledger=ledger, epsilon_total=0.4)
    said = json.loads((tmp_path / "b" / "report.json").read_text())
    assert said["statement"]["ledger"] == {
        "releases": 1,
        "epsilon": 0.3,
        "delta": 1e-6,
        "epsilon_total": 0.4,
    }
    assert any(
        "ε sums to 0.3, of 0.4 that are allowed" in line for line in said["published"]["sentences"]
    )
    assert verify_release(tmp_path / "b", against=TRIPS).findings == ()
    assert [line["spent"]["epsilon"] for line in lines_of(ledger)] == [0.1, 0.2]
    release(read_trips(TRIPS, resolution=8)).write(tmp_path / "exact", ledger=ledger)
    assert (
        json.loads((tmp_path / "exact" / "report.json").read_text())["statement"]["ledger"][
            "overlapping"
        ]
        == 0
    )
    # The same counts again may be another draw.
    with pytest.raises(
        InfeasibleError, match=r"would sum to 0\.5, and the total is 0\.4; 0\.1 is left"
    ):
        made.write(tmp_path / "c", ledger=ledger)
    with pytest.raises(InfeasibleError, match="cannot be added"):
        noise(epsilon=0.01).write(tmp_path / "c", ledger=ledger)
    with pytest.raises(ParameterError, match="lowered and not raised"):
        noise(bound=3, epsilon=0.1).write(tmp_path / "c", ledger=ledger, epsilon_total=0.5)
    noise(bound=3, epsilon=0.05).write(tmp_path / "c", ledger=ledger, epsilon_total=0.36)
    with pytest.raises(InfeasibleError, match=r"the total is 0\.36; 0\.01 is left"):
        noise(bound=3, epsilon=0.05).write(tmp_path / "d", ledger=ledger)
    assert len(lines_of(ledger)) == 4
    assert not (tmp_path / "d").exists()


def test_of_two_noisy_runs_at_once_only_one_fits_into_the_total(tmp_path):
    made = [noise(bound=3, epsilon=0.6) for _ in range(2)]

    def write(i):
        try:
            made[i].write(tmp_path / f"release-{i}", ledger=tmp_path / "ledger", epsilon_total=1)
        except InfeasibleError:
            return "refused"
        return "written"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(write, range(2))) == ["refused", "written"]


def test_a_total_needs_a_ledger_and_noise(flows, tmp_path):
    with pytest.raises(ParameterError, match=r"epsilon_total is given without ledger"):
        noise(bound=3).write(tmp_path / "a", epsilon_total=1)
    with pytest.raises(ParameterError, match="cannot be combined with exact counts"):
        release(flows).write(tmp_path / "a", ledger=tmp_path / "ledger", epsilon_total=1)
    with pytest.raises(ParameterError, match="above 0"):
        noise(bound=3).write(tmp_path / "a", ledger=tmp_path / "ledger", epsilon_total=float("nan"))


def test_noise_that_leaves_nothing_has_cost_its_epsilon(trips_csv, tmp_path):
    asked = (
        "anonymize",
        trips_csv,
        "--method",
        "laplace",
        "--resolution",
        6,
        "--out",
        tmp_path / "a",
    )
    options = ("--option", "epsilon=0.001", "--option", "delta=1e-9", "--option", "bound=1")
    assert (
        run(*asked, *options, "--ledger", tmp_path / "ledger", "--set", "output.epsilon_total=1")
        == 3
    )
    assert lines_of(tmp_path / "ledger")[0]["spent"] == {
        "unit": "person",
        "epsilon": 0.001,
        "delta": 1e-9,
    }
    assert not (tmp_path / "a").exists()


def test_releases_are_recorded_and_compared_after_noise_that_left_nothing(
    flows, trips_csv, tmp_path
):
    ledger = tmp_path / "ledger"
    noisy = (
        "anonymize",
        trips_csv,
        "--method",
        "laplace",
        "--resolution",
        6,
        "--out",
        tmp_path / "a",
    )
    options = ("--option", "epsilon=0.001", "--option", "delta=1e-9", "--option", "bound=1")
    assert run(*noisy, *options, "--ledger", ledger) == 3
    for _ in range(2):
        release(flows).write(tmp_path / "first", ledger=ledger)
    assert ["facts" in line for line in lines_of(ledger)] == [False, True]
    with pytest.raises(InfeasibleError, match="same trips as 'first'"):
        release(flows, k=6).write(tmp_path / "second", ledger=ledger)


def test_what_the_total_does_not_allow_does_not_show_whether_anything_is_left(
    trips_csv, tmp_path, capsys
):
    """The total is stored with the first draw under it, and the one that exceeds it is refused
    whatever its result."""
    ledger = tmp_path / "ledger"
    asked = (
        "anonymize",
        trips_csv,
        "--method",
        "laplace",
        "--resolution",
        6,
        "--out",
        tmp_path / "a",
    )
    options = (
        "--option",
        "epsilon=0.001",
        "--option",
        "delta=1e-9",
        "--option",
        "bound=1",
        "--ledger",
        ledger,
    )
    assert run(*asked, *options, "--set", "output.epsilon_total=0.0015") == 3
    assert "is left to publish" in capsys.readouterr().err
    assert lines_of(ledger)[0]["epsilon_total"] == 0.0015
    assert run(*asked, *options) == 3
    said = capsys.readouterr().err
    assert "would sum to 0.002, and the total is 0.0015" in said
    assert "is left to publish" not in said
    assert run(*asked, *options, "--set", "output.epsilon_total=1") == 2
    assert "lowered and not raised" in capsys.readouterr().err
    assert len(lines_of(ledger)) == 1
