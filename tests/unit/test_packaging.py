"""The Dockerfile, the conda recipe and the workflow agree with pyproject.toml and with the files of
the repository."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
#: Names of conda-forge that differ from those of PyPI.
CONDA_NAMES = {"duckdb": "python-duckdb", "h3": "h3-py"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def test_the_conda_recipe_has_the_dependencies_and_the_version_of_the_project(project):
    recipe = yaml.safe_load(
        (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    )
    wanted = {"python " + project["requires-python"]}
    for line in project["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)(.*)", line).groups()
        wanted.add(f"{CONDA_NAMES.get(name, name)} {bounds}")
    assert set(recipe["requirements"]["run"]) == wanted
    assert recipe["context"]["version"] == project["version"]


def test_the_dockerfile_pins_its_images_copies_what_exists_and_drops_root():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#")]
    images = [rest.split()[0] for word, rest in steps if word == "FROM"]
    assert images
    assert all(re.fullmatch(r"python:3\.\d+-slim", image) for image in images), images
    copied = [
        rest.split()[:-1]
        for word, rest in steps
        if word == "COPY" and not rest.startswith("--from")
    ]
    missing = [name for names in copied for name in names if not (ROOT / name).exists()]
    assert missing == []
    assert all("--no-cache-dir" in rest for word, rest in steps if word == "RUN" and "pip " in rest)
    assert "ADD" not in {word for word, _ in steps}
    users = [at for at, (word, _) in enumerate(steps) if word == "USER"]
    assert users
    assert steps[users[-1]][1] != "root"
    assert all(word not in ("RUN", "FROM") for word, _ in steps[users[-1] + 1 :])


def test_the_workflow_runs_the_script_of_the_repository():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        steps = [step for job in content["jobs"].values() for step in job["steps"]]
        assert any(".ci/run" in step.get("run", "") for step in steps)
        assert all(re.search(r"@v\d+$", step["uses"]) for step in steps if "uses" in step)
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], capture_output=True).returncode == 0
