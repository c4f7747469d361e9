"""Tasks in other processes: in time, in order, alone, and without a word of the data when they
fail."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing

import pytest

from flowveil.core.errors import InfeasibleError, ParameterError
from flowveil.system import limits, workers
from flowveil.system.workers import DONE, LATE, LOST, Ended, prefetch, run_tasks
from samples.processes import light_sources
from samples.tasks import Slow, nap, work


@pytest.fixture(autouse=True)
def light(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [light_sources(tmp_path / "light"), *sys.path])


def test_results_come_as_they_end_or_in_order(tmp_path):
    there, other = tmp_path / "there", tmp_path / "other"
    with closing(run_tasks(work, 10, [("wait", there), ("add", 1)], workers=2)) as ended:
        assert next(ended) == Ended(1, DONE, 11)
        there.touch()
        assert next(ended) == Ended(0, DONE, "wait")
    ended = list(run_tasks(work, 10, [("wait", other), ("touch", other)], workers=2, in_order=True))
    assert [e.result for e in ended] == ["wait", "touch"]


def test_one_that_is_late_or_dies_takes_no_other_along():
    tasks = [("sleep", 60), ("die", 9), ("print", "x"), ("add", 1)]
    ended = list(run_tasks(work, 10, tasks, time_limit=2.0))
    assert ended == [Ended(0, LATE), Ended(1, LOST), Ended(2, DONE, "x"), Ended(3, DONE, 11)]


def test_the_clock_starts_with_the_task_and_not_with_its_process(monkeypatch):
    assert list(run_tasks(work, Slow(), [("add", 1)], time_limit=1.0)) == [Ended(0, DONE, 8)]
    (napped,) = run_tasks(work, 0, [("sleep", 0.1)], time_limit=2.0, prepare=nap)
    assert napped.how == DONE
    monkeypatch.setattr(workers, "START_LIMIT", 0.2)
    assert list(run_tasks(work, Slow(), [("add", 1)], time_limit=60)) == [Ended(0, LOST)]


@pytest.mark.parametrize(("fresh", "processes"), [(False, 1), (True, 3)])
def test_a_process_serves_one_task_or_all(fresh, processes):
    ended = run_tasks(work, 0, [("sleep", 0)] * 3, fresh=fresh)
    assert len({e.result for e in ended}) == processes


def test_errors_of_ours_come_whole_and_others_are_only_named():
    ours, also_ours, other, after = run_tasks(
        work, 1, [("param", 0), ("infeasible", 0), ("other", 0), ("add", 1)]
    )
    assert isinstance(ours.error, ParameterError)
    assert str(ours.error) == "k must be 5."
    assert isinstance(also_ours.error, InfeasibleError)
    assert str(other.error) == "Unexpected KeyError in a worker process."
    assert {ended.how for ended in (ours, also_ours, other)} == {LOST}
    assert after == Ended(3, DONE, 2)


def test_nothing_runs_on_when_the_iteration_is_left():
    begun = time.monotonic()
    with closing(
        run_tasks(work, 0, [("add", 1), ("sleep", 600), ("sleep", 600)], workers=2)
    ) as ended:
        assert next(ended).result == 1
    assert time.monotonic() - begun < 300


def test_a_script_without_a_guard_is_not_run_again(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import operator\nfrom flowveil.system.workers import run_tasks\n"
        "print([ended.result for ended in run_tasks(operator.add, 1, [2, 3], in_order=True)])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "[3, 4]\n"


@pytest.mark.parametrize(("threads", "waiting"), [(1, 0), (2, 0), (3, 0), (2, 1)])
def test_threads_work_in_advance_and_hand_out_in_order(threads, waiting):
    taken = []

    def pieces():
        for n in range(6):
            taken.append(n)
            yield lambda n=n: 1 // (5 - n)

    with closing(prefetch(pieces(), threads=threads, waiting=waiting)) as results:
        assert next(results) == 0
        assert len(taken) <= threads + waiting
        assert [next(results) for _ in range(4)] == [0, 0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)


def test_threads_have_the_limits_of_their_caller():
    with limits.limits(threads=1):
        assert list(prefetch([limits.threads] * 3, threads=2)) == [1, 1, 1]
