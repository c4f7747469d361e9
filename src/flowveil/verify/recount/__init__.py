"""An independent recount of a release from the raw trips.

Imports nothing of flowveil; see recount.py.
"""

from .inputs import PersonRows, Places, Trips
from .recount import Result, recount
from .tree import ZoneMap
from .values import ValueRows

__all__ = ["PersonRows", "Places", "Result", "Trips", "ValueRows", "ZoneMap", "recount"]
