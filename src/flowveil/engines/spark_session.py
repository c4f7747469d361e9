"""A Spark session: the user's own, or one of ours; what may be said of its errors; and what the driver may hold.

Which cluster works and how much its driver holds are settings of the machine and not of a release: no report records
them, and the release is the same.

Messages of Spark quote the input, so none is let through, as with DuckDB.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from flowveil.errors import DataError, FlowveilError, MissingExtraError, ParameterError

#: Rows that a driver with a few gigabytes of memory takes: about 100 bytes each while they are sorted.
DRIVER_FLOWS = 20_000_000


@dataclass(frozen=True)
class Cluster:
    """Which cluster reads, and what its driver may hold.

    Attributes:
        master: the address of the cluster (``spark://...``, ``yarn``, ``local[4]``); None for the session that is open,
            or what spark-submit and Spark's own settings say.
        driver_flows: rows up to which the driver takes all: flows, and where there are persons, flows times their
            persons. Where they are more, persons stay on the cluster.
    """

    master: str | None = None
    driver_flows: int = DRIVER_FLOWS


_given: ContextVar[Cluster | None] = ContextVar("flowveil_cluster", default=None)


@contextmanager
def cluster(*, master: str | None = None, driver_flows: int | None = None) -> Iterator[None]:
    """Say which Spark cluster reads inside the block: ``with flowveil.cluster(master="local[4]"): ...``.

    Args:
        master: address of the cluster; without it the session that is open, or what Spark's settings say.
        driver_flows: rows of flows and of persons in flows up to which the driver takes all; where they are more,
            persons stay on the cluster and are counted there.

    Raises:
        ParameterError: the master is empty, or the rows are no whole number above 0.
    """
    if master is not None and not master.strip():
        raise ParameterError("The address of the Spark cluster (--spark-master) is empty.")
    rows = driver_flows
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise ParameterError("driver_flows (--driver-flows) must be a whole number of at least 1.")
    outer = chosen()
    token = _given.set(Cluster(master or outer.master, rows or outer.driver_flows))
    try:
        yield
    finally:
        _given.reset(token)


def chosen() -> Cluster:
    """What was said in the innermost block."""
    return _given.get() or Cluster()


def session() -> Any:
    """The Spark session that is open, or a new one.

    Raises:
        MissingExtraError: there is no pyspark, or no Java.
        ParameterError: another session is open than the one asked for, or the cluster cannot be reached.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError(
            "The Spark engine needs pyspark. Hint: pip install 'flowveil[spark]', and Java 17."
        ) from None
    master = chosen().master
    opened = SparkSession.getActiveSession()
    if opened is not None:
        if master is not None and opened.conf.get("spark.master", None) != master:
            raise ParameterError("A Spark session with another master is open. Hint: stop it, or leave the master out.")
        return opened
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise MissingExtraError(
            "The Spark engine needs Java 17, and there is no Java. Hint: install a JRE, set JAVA_HOME."
        )
    settings: dict[str, Any] = {
        "spark.app.name": "flowveil",
        "spark.ui.showConsoleProgress": "false",
        # Spark's own messages quote rows of the input.
        "spark.log.level": "OFF",
        # Shuffles and spills hold identifiers of persons, and a killed executor leaves them on its disk.
        "spark.io.encryption.enabled": "true",
    }
    builder = SparkSession.builder.config(map=settings)
    with _same_python(), _quietly():
        try:
            return (builder if master is None else builder.master(master)).getOrCreate()
        except _spark_errors():
            raise ParameterError(
                "No Spark session could be opened. Hint: is the master (--spark-master) right, does the cluster "
                "answer, and is its Java 17 or later?"
            ) from None


@contextmanager
def _same_python() -> Iterator[None]:
    """Workers take the Python of the driver, where nobody says which: Spark would take whatever ``python3`` is."""
    said = os.environ.get("PYSPARK_PYTHON")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        yield
    finally:
        if said is None:
            del os.environ["PYSPARK_PYTHON"]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what pyspark says of versions of pandas, which is not used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        yield


def _spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises, and the bridge to its Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, ConnectionError)


@contextmanager
def on_the_cluster(label: str) -> Iterator[None]:
    """Turn what Spark raises into a DataError that quotes nothing from the input.

    Raises:
        MissingExtraError: Spark itself lacks a library; it wants pandas wherever it hands rows to Python.
    """
    from pyspark.errors import AnalysisException, PySparkImportError

    with _quietly():
        try:
            yield
        except FlowveilError:
            raise
        except PySparkImportError:
            raise MissingExtraError(
                "The Spark engine needs pyspark with pandas. Hint: pip install 'flowveil[spark]', for workers as well."
            ) from None
        except AnalysisException:
            raise DataError(
                f"{label} cannot be read by Spark as a table. Hint: all files must have columns of the same types, "
                "and every column a name of its own, upper and lower case aside."
            ) from None
        except _spark_errors() as error:
            if "maxResultSize" in str(error) or "OutOfMemoryError" in str(error):
                raise DataError(
                    f"{label} does not fit: the cluster or its driver has too little memory. Nothing was written. "
                    "Hint: give the driver more (spark.driver.memory, spark.driver.maxResultSize); or coarser tiles."
                ) from None
            raise DataError(
                f"The cluster could not finish reading {label}: a task failed each time it was tried, or the cluster "
                "is gone. Nothing was written. Hint: Spark's own log of the failed task says more; flowveil, duckdb "
                "and h3 must be installed for the Python of every worker in the versions of the driver."
            ) from None
