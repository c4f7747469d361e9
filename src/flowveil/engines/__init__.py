"""Engines: trips in, flows out. The only part of flowveil that reads trips.

An engine is a module with a function ``read`` that has the signature of `Read`. Engines are named here and
loaded when they are asked for, so that ``import flowveil`` loads none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from flowveil.errors import ParameterError, did_you_mean
from flowveil.flows import Flows
from flowveil.reading.columns import ColumnMap
from flowveil.slices import Every, SlicedFlows

if TYPE_CHECKING:
    from flowveil.zoning.files import ZoneMap

#: The module of each engine, by the name users give.
ENGINES: dict[str, str] = {"duckdb": "flowveil.engines.duckdb"}


class Read(Protocol):
    """What every engine offers: the trips of a source as flows, whatever the order of its rows."""

    def __call__(
        self,
        source: Any,
        *,
        columns: ColumnMap,
        resolution: int = 10,
        zones: ZoneMap | None = None,
        max_dropped: float = 0.05,
        skip_unknown: bool = False,
        partition_columns: Sequence[str] = (),
        person_case: str = "fold",
        threads: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> Flows:
        """Read the source; see `flowveil.trips.read_trips` for the arguments and what is guaranteed."""
        ...


class ReadSlices(Protocol):
    """The same for slices; engines that cannot cut trips into slices do not have it."""

    def __call__(
        self,
        source: Any,
        *,
        columns: ColumnMap,
        every: Every | None = None,
        by_many: bool = False,
        resolution: int = 10,
        zones: ZoneMap | None = None,
        max_dropped: float = 0.05,
        skip_unknown: bool = False,
        partition_columns: Sequence[str] = (),
        person_case: str = "fold",
        threads: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> SlicedFlows:
        """Read the source; see `flowveil.trips.read_slices`."""
        ...


def load_engine(name: str) -> Read:
    """The ``read`` function of an engine.

    Raises:
        ParameterError: there is no engine of that name.
    """
    read: Read = _module(name).read
    return read


def load_slicing_engine(name: str) -> ReadSlices:
    """The ``read_slices`` function of an engine.

    Raises:
        ParameterError: there is no engine of that name, or it cannot cut trips into slices.
    """
    read: ReadSlices | None = getattr(_module(name), "read_slices", None)
    if read is None:
        raise ParameterError(f"The engine '{name}' cannot cut trips into slices. Hint: use --engine duckdb.")
    return read


def _module(name: str) -> ModuleType:
    if name not in ENGINES:
        known = ", ".join(sorted(ENGINES))
        raise ParameterError(
            f"There is no engine {name!r}. The engines are: {known}.{did_you_mean(str(name), ENGINES)}"
        )
    return import_module(ENGINES[name])
