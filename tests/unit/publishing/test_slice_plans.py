"""A run over slices that is broken off goes on where it stopped, and makes the release that it
would have made."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from flowveil.apps.cli import main
from flowveil.core.errors import OutputError
from flowveil.publishing.anonymization import Run, anonymize_slices
from flowveil.publishing.slice_plans import Checkpoint
from flowveil.reading.engines import read_slices
from samples.segmented import survey


@pytest.fixture(scope="module")
def by_sex():
    return read_slices(survey(), by="sex", resolution=7, weight="weight")


class StoppedError(Exception):
    pass


def test_slices_that_are_decided_are_not_decided_again(by_sex, tmp_path: Path, monkeypatch):
    kept, decide, decided = Checkpoint(tmp_path / "kept"), Run.plan, []

    def stops_at_the_third(run, flows):
        if len(decided) == 2:
            raise StoppedError
        decided.append(len(flows))
        return decide(run, flows)

    asked = {"k": 5, "method": "odkanon"}
    with monkeypatch.context() as patch:
        patch.setattr(Run, "plan", stops_at_the_third)
        with pytest.raises(StoppedError):
            anonymize_slices(by_sex, resume=kept, **asked)
    whole = anonymize_slices(by_sex, **asked)
    decided.clear()
    monkeypatch.setattr(
        Run, "plan", lambda run, flows: decided.append(len(flows)) or decide(run, flows)
    )
    resumed = anonymize_slices(by_sex, resume=kept, **asked)
    assert len(decided) == len(by_sex.slices) - 2
    assert resumed.flows.equals(whole.flows)
    anonymize_slices(by_sex, resume=kept.folder, **{**asked, "k": 6})
    assert len(decided) == 2 * len(by_sex.slices) - 2
    assert kept.folder.stat().st_mode & 0o077 == 0


def test_a_file_that_is_no_plan_is_not_run(by_sex, tmp_path: Path):
    """Nothing in the folder is unpickled: not as a whole, and not as an array of objects inside a
    plan."""
    kept, asked = Checkpoint(tmp_path / "kept"), {"k": 5, "method": "odkanon"}
    whole = anonymize_slices(by_sex, resume=kept, **asked)

    class Harmful:
        def __reduce__(self):
            return Path.touch, (tmp_path / "harm",)

    first, *others = sorted(kept.folder.iterdir())
    with np.load(first, allow_pickle=False) as plan:
        assert sorted(plan.files) == [
            "destination_nodes",
            "destination_zone",
            "fields",
            "kept",
            "origin_nodes",
            "origin_zone",
        ]
        objects = {**plan, "kept": np.array([Harmful()], dtype=object)}
        numbers = {**plan, "origin_zone": plan["origin_zone"] + 10_000}
    np.savez(tmp_path / "objects.npz", **objects)
    np.savez(tmp_path / "numbers.npz", **numbers)
    for content in (pickle.dumps(Harmful()), (tmp_path / "objects.npz").read_bytes(),
                    (tmp_path / "numbers.npz").read_bytes(), first.read_bytes()[:-40], b""):  # fmt: skip
        for file in (first, *others):
            file.write_bytes(content)
        assert anonymize_slices(by_sex, resume=kept, **asked).flows.equals(whole.flows)
    assert not (tmp_path / "harm").exists()


def test_plans_are_kept_in_a_private_folder(by_sex, tmp_path: Path):
    """A prepared folder, open to others or a link, is neither read nor written."""
    asked = {"k": 5, "method": "odkanon"}
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    for name in ("open", "link"):
        with pytest.raises(OutputError, match="others may read it"):
            anonymize_slices(by_sex, resume=tmp_path / name, **asked)
        assert list((tmp_path / name).iterdir()) == []


def test_a_command_leaves_nothing_next_to_its_release(tmp_path: Path, capsys):
    import pyarrow.parquet as pq

    pq.write_table(survey(), tmp_path / "trips.parquet")
    asked = [
        "anonymize",
        str(tmp_path / "trips.parquet"),
        "--k",
        "5",
        "--resolution",
        "7",
        "--method",
        "odkanon",
    ]
    main(
        [
            *asked,
            "--by",
            "sex",
            "--set",
            "resources.resume=true",
            "--out",
            str(tmp_path / "release"),
        ]
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["release", "trips.parquet"]
    with pytest.raises(SystemExit):
        main([*asked, "--set", "resources.resume=true", "--out", str(tmp_path / "other")])
    assert "No slices are requested" in capsys.readouterr().err
