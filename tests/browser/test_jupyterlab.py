"""The view of a release in a real JupyterLab: it is shown by the last line of a cell, and fits it.

JupyterLab is large, so it is not a test dependency: `pip install jupyterlab` has this test run.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from time import monotonic, sleep

import pytest

from browser.pages import keep
from samples.installed import needs

needs("jupyterlab", "ipykernel")

ROOT = Path(__file__).resolve().parents[2]
CELL = """
import sys
sys.path[:0] = [{tests!r}]
import flowveil
from samples.releases import city_flows
flowveil.anonymize(city_flows(), "odkanon", 5, protect="trips")
"""


def notebook() -> dict:
    code = CELL.format(tests=str(ROOT / "tests")).strip().splitlines(keepends=True)
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "id": "a",
        "metadata": {},
        "outputs": [],
        "source": code,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def lab(tmp_path):
    """A server of this test's own, without anything of the user's."""
    (tmp_path / "release.ipynb").write_text(json.dumps(notebook()), "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        name: str(tmp_path / name)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    own |= {
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "s"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "w"),
    }
    own["PYTHONPATH"] = os.pathsep.join(
        [str(tmp_path / "less"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    # Unused checks of addresses would compile grammars for two seconds.
    (tmp_path / "less").mkdir()
    (tmp_path / "less" / "rfc3987_syntax.py").write_text("raise ImportError\n", "utf-8")
    words = [
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--IdentityProvider.token=t",
        "--ServerApp.ip=127.0.0.1",
    ]
    words += ["--LabApp.extension_manager=readonly", "--ServerApp.terminals_enabled=False"]
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *words, f"--notebook-dir={tmp_path}"],
            env={**os.environ, **own},
            stdout=log,
            stderr=log,
        )
        try:
            until = monotonic() + 180
            while monotonic() < until:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token=t", timeout=5).read()
                    break
                except OSError:
                    assert server.poll() is None, (tmp_path / "log").read_text("utf-8")[-2000:]
                    sleep(0.5)
            yield f"http://127.0.0.1:{port}/lab/tree/release.ipynb?token=t&reset"
        finally:
            server.terminate()
            server.wait(30)


def test_the_view_fits_its_cell(lab, chromium):
    context = chromium.new_context(viewport={"width": 1366, "height": 900})
    try:
        page = context.new_page()
        page.goto(lab, timeout=180_000)
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=180_000)
        idle, question = (
            page.get_by_text("| Idle"),
            page.get_by_role("button", name="Select Kernel"),
        )
        # It may ask which kernel to start.
        idle.or_(question).first.wait_for(timeout=180_000)
        if question.is_visible():
            question.click()
        idle.first.wait_for(timeout=180_000)
        page.wait_for_timeout(1_000)
        if question.is_visible():
            question.click()
        # The commands of the menu run whatever has the focus.
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        view = page.locator(".jp-OutputArea iframe").first
        try:
            view.wait_for(timeout=240_000)
        except Exception:
            keep(page, "jupyterlab-without-output")
            raise
        frame = page.frame_locator(".jp-OutputArea iframe").first
        frame.locator("html[data-ready=true]").wait_for(state="attached", timeout=120_000)
        page.wait_for_timeout(500)
        outer, cell = view.bounding_box(), page.locator(".jp-OutputArea").first.bounding_box()
        assert outer["width"] <= cell["width"] + 1
        flows = frame.locator(".stage > canvas").bounding_box()
        assert flows["y"] + flows["height"] <= outer["y"] + outer["height"]
        assert flows["x"] + flows["width"] <= outer["x"] + outer["width"]
        keep(page, "jupyterlab")
    finally:
        context.close()
