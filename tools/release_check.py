"""Installs the wheel into empty environments and runs the demo: `python tools/release_check.py dist [--offline]`.

Three environments: the oldest and the newest supported Python of this machine with the newest dependencies, and the
oldest Python with the lowest versions of pyproject.toml (resolved by uv). In each, demo and verify run. The wheel must
be below 6 MB and contain the package only.

With ``--offline``, one environment: dependencies are downloaded first, then installed without an index, and the demo
runs without a network where the system can separate one (``unshare -n``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 6_000_000
#: The trips of the demo, which are the same on every machine.
SURVEY = """
import sys
import pyarrow.parquet as pq
from flowveil.reading.sources.synthetic import synthetic_survey
pq.write_table(synthetic_survey(), sys.argv[1])
"""


def main(dist: Path, *, offline: bool = False) -> None:
    """Runs all checks; exits with a message at the first failure."""
    (wheel,) = dist.glob("*.whl")
    check_wheel(wheel)
    if offline:
        try_wheel(wheel, sys.executable, offline=True)
        return
    found = pythons()
    print("Pythons:", ", ".join(f"{'.'.join(map(str, version))}" for version in found))
    oldest, newest = found[min(found)], found[max(found)]
    try_wheel(wheel, oldest)
    if newest != oldest:
        try_wheel(wheel, newest)
    try_wheel(wheel, oldest, lowest=True)
    print("The release holds in all of them.")


def check_wheel(wheel: Path) -> None:
    """Checks size and version, and that it holds nothing but the package."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    names = zipfile.ZipFile(wheel).namelist()
    strange = [
        n for n in names if not n.startswith(("flowveil/", f"flowveil-{version}.dist-info/"))
    ]
    if strange or wheel.stat().st_size > LARGEST:
        sys.exit(f"{wheel.name}: {wheel.stat().st_size:,} bytes, strange files: {strange[:5]}")
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(names)} files")


def pythons() -> dict[tuple[int, int], str]:
    """The supported Pythons of this machine, by version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    supported = {
        tuple(map(int, v))
        for v in re.findall(r"Python :: (\d)\.(\d+)", " ".join(project["classifiers"]))
    }
    folders = sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    found: dict[tuple[int, int], str] = {}
    for major, minor in sorted(supported):
        for program in (
            shutil.which(f"python{major}.{minor}"),
            *(str(f / f"python{major}.{minor}") for f in folders),
        ):
            if (
                program
                and Path(program).exists()
                and (major, minor) not in found
                and _runs(program, major, minor)
            ):
                found[major, minor] = program
    return found or {sys.version_info[:2]: sys.executable}


def _runs(program: str, major: int, minor: int) -> bool:
    asked = subprocess.run(
        [program, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True
    )
    return asked.stdout.split() == [str(major), str(minor)]


def try_wheel(wheel: Path, python: str, *, lowest: bool = False, offline: bool = False) -> None:
    """Installs the wheel into an empty environment, publishes the demo and verifies it."""
    alone = ["unshare", "-n"] if offline and can_unshare() else []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run(python, "-m", "venv", folder / "venv")
        here = str(folder / "venv" / "bin" / "python")
        if lowest:
            run(here, "-m", "pip", "install", "--quiet", "uv")
            run(
                here,
                "-m",
                "uv",
                "pip",
                "install",
                "--quiet",
                "--python",
                here,
                "--resolution",
                "lowest-direct",
                wheel,
            )
        elif offline:
            run(
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--dest",
                folder / "wheels",
                wheel,
            )
            run(
                *alone,
                here,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-index",
                "--find-links",
                folder / "wheels",
                wheel,
            )
        else:
            run(here, "-m", "pip", "install", "--quiet", wheel)
        flowveil = folder / "venv" / "bin" / "flowveil"
        run(*alone, flowveil, "demo", "--out", folder / "release")
        run(*alone, here, "-c", SURVEY, folder / "trips.parquet")
        run(
            *alone,
            flowveil,
            "verify",
            folder / "release",
            "--against",
            folder / "trips.parquet",
            "--strict",
        )
        how = ", lowest versions" if lowest else ", without an index" if offline else ""
        how += " or a network" if alone else ""
        print(f"{Path(python).name}{how}: demo and verify hold")


def can_unshare() -> bool:
    """Whether this user can start a process without a network."""
    program = shutil.which("unshare")
    return (
        program is not None
        and subprocess.run([program, "-n", "true"], capture_output=True).returncode == 0
    )


def run(*words: object) -> None:
    """Runs a command; leaves with what it printed if it fails."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, words))}: exit"
            f" {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), offline="--offline" in sys.argv)
