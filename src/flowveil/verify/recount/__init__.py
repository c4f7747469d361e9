"""An independent recount of a release from the raw trips. Imports nothing of flowveil; see recount.py."""

from .maps import CannotReadError
from .recount import Result, recount
from .table import PersonRows, Places, Trips, Unread
from .tree import ZoneMap
from .trips import read_trips

__all__ = ["CannotReadError", "PersonRows", "Places", "Result", "Trips", "Unread", "ZoneMap", "read_trips", "recount"]
