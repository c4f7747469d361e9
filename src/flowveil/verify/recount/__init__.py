"""An independent recount of a release from the raw trips. Imports nothing of flowveil; see recount.py."""

from .recount import Result, recount
from .table import PersonRows, Places, Trips
from .tree import ZoneMap

__all__ = ["PersonRows", "Places", "Result", "Trips", "ZoneMap", "recount"]
