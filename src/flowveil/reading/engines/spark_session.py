"""Spark sessions, their error messages, and the limit of the driver.

The cluster and the limit are settings of the machine: the release does not depend on them, and no
report records them. Messages of Spark quote the input, so they are replaced by flowveil's.
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

from flowveil.core.errors import DataError, FlowveilError, MissingExtraError, ParameterError, option
from flowveil.request.request import find_setting

#: Rows for a driver with a few gigabytes of memory, at about 100 bytes each.
DRIVER_FLOWS = 20_000_000


@dataclass(frozen=True)
class Cluster:
    """The arguments of `cluster`."""

    master: str | None = None
    driver_flows: int = DRIVER_FLOWS


_given: ContextVar[Cluster | None] = ContextVar("flowveil_cluster", default=None)


@contextmanager
def cluster(*, master: str | None = None, driver_flows: int | None = None) -> Iterator[None]:
    """Chooses the Spark cluster for the block: ``with flowveil.cluster(master="local[4]"): ...``.

    Args:
        master: address of the cluster; by default the open session, or the settings of Spark.
        driver_flows: upper bound for the rows on the driver: flows, or pairs of flow and person.
            Beyond it, persons stay on the cluster and are counted there.

    Raises:
        ParameterError: the master is empty, or the rows are not a whole number above 0.
    """
    if master is not None and not master.strip():
        raise ParameterError(f"The address of the Spark cluster ({_master()}) is empty.")
    find_setting("driver_flows").check(driver_flows)
    outer = chosen()
    token = _given.set(Cluster(master or outer.master, driver_flows or outer.driver_flows))
    try:
        yield
    finally:
        _given.reset(token)


def chosen() -> Cluster:
    """Returns the cluster of the innermost block."""
    return _given.get() or Cluster()


def _master() -> str:
    """Returns the name of the option for the cluster's address, in the current interface."""
    return option("master", flag=option("spark_master"))


def session() -> Any:
    """Returns the open Spark session, or a new one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError(
            "The Spark engine needs pyspark. Hint: pip install 'flowveil[spark]', and Java 17."
        ) from None
    master, opened = chosen().master, SparkSession.getActiveSession()
    if (
        opened is not None
        and master is not None
        and opened.conf.get("spark.master", None) != master
    ):
        raise ParameterError(
            "A Spark session with another master is open. Hint: stop it, or leave the master out."
        )
    if opened is not None:
        return opened
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise MissingExtraError(
            "The Spark engine needs Java 17, which was not found. Hint: install a JRE, set"
            " JAVA_HOME."
        )
    settings: dict[str, Any] = {
        "spark.app.name": "flowveil",
        "spark.ui.showConsoleProgress": "false",
        # Spark's own messages quote rows of the input.
        "spark.log.level": "OFF",
        # Shuffles and spills hold identifiers of persons, and a killed executor leaves them on its
        # disk.
        "spark.io.encryption.enabled": "true",
    }
    if master is not None:
        settings["spark.master"] = master
    # Workers use the Python of the driver, unless the environment names another.
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with _quietly():
            return SparkSession.builder.config(map=settings).getOrCreate()
    except _spark_errors():
        raise ParameterError(
            "No Spark session could be opened. Hint: is the address of the cluster "
            f"({_master()}) right, does it answer, and is its Java 17 or later?"
        ) from None
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]


def context_of(opened: Any) -> Any:
    """Returns the context of a session; None for Spark Connect, which has none."""
    from pyspark.errors import PySparkException

    try:
        return opened.sparkContext
    except PySparkException:
        return None


@contextmanager
def _quietly() -> Iterator[None]:
    """Ignores warnings of pyspark about versions of pandas, which is not used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        yield


def _spark_errors() -> tuple[type[Exception], ...]:
    """Returns the exceptions of Spark and of its bridge to Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, ConnectionError)


@contextmanager
def on_the_cluster(label: str) -> Iterator[None]:
    """Replaces errors of Spark by a DataError that quotes nothing from the input."""
    from pyspark.errors import AnalysisException, PySparkImportError

    with _quietly():
        try:
            yield
        except FlowveilError:
            raise
        except PySparkImportError:
            raise MissingExtraError(
                "The Spark engine needs pyspark with pandas. Hint: pip install 'flowveil[spark]',"
                " for workers as well."
            ) from None
        except AnalysisException:
            raise DataError(
                f"{label} cannot be read by Spark as a table. Hint: all files must have columns of"
                " the same types, and names that differ in more than upper and lower case."
            ) from None
        except _spark_errors() as error:
            if "maxResultSize" in str(error) or "OutOfMemoryError" in str(error):
                raise DataError(
                    f"{label} does not fit: the cluster or its driver has too little memory."
                    " Nothing was written. Hint: give the driver more (spark.driver.memory,"
                    " spark.driver.maxResultSize); or coarser tiles."
                ) from None
            raise DataError(
                f"The cluster could not finish reading {label}: a task failed repeatedly, or the"
                " connection was lost. Nothing was written. Hint: see Spark's log of the failed"
                " task; flowveil, duckdb and h3 must be installed for the Python of every worker"
                " in the versions of the driver."
            ) from None
