"""A standalone Spark cluster on this machine.

A master and workers, each with its own disk folder, on loopback.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 60


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2, memory: str = "900m") -> Iterator[str]:
    """Yields the address of a running cluster.

    Its processes are stopped by their process groups.
    """
    import pyspark

    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = _free_port()
    address = f"spark://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYSPARK_PYTHON": sys.executable,
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        place = folder / name
        place.mkdir(parents=True)
        command = [
            program,
            f"org.apache.spark.deploy.{arguments[0]}",
            "--host",
            "127.0.0.1",
            *arguments[1:],
        ]
        own = {**environment, "SPARK_LOCAL_DIRS": str(place)}
        with open(place / "log", "wb") as log:
            process = subprocess.Popen(
                command, env=own, stdout=log, stderr=log, cwd=place, start_new_session=True
            )
        started.append(process)

    try:
        start("master", "master.Master", "--port", str(port), "--webui-port", "0")
        _wait_for(folder / "master" / "log", "I have been elected leader")
        for number in range(1, workers + 1):
            given = ("--cores", "1", "--memory", memory, "--webui-port", "0")
            start(
                f"worker-{number}",
                "worker.Worker",
                *given,
                "--work-dir",
                str(folder / f"work-{number}"),
                address,
            )
        for number in range(1, workers + 1):
            _wait_for(folder / f"worker-{number}" / "log", "Successfully registered with master")
        yield address
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _wait_for(log: Path, text: str) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        if text in log.read_text(encoding="utf-8", errors="replace"):
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8", errors="replace")[-2000:])
