"""Steps of time that trips are sliced by, and the labels of these steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flowveil.errors import ParameterError

#: Name of the slice column with the step of time.
TIME = "time"
MINUTES_OF_DAY = 24 * 60
_STEP = re.compile(r"^(\d+)\s*(min|h)$")


@dataclass(frozen=True)
class Every:
    """A step of time.

    Attributes:
        name: as users write it: ``15min``, ``1h``, ``day``, ``month``, ``hour``, ``weekday``, ``weekday-hour``.
        minutes: length of a step that runs on and on; None for those that follow the calendar or come round.
    """

    name: str
    minutes: int | None = None

    @classmethod
    def parse(cls, text: str) -> Every:
        """Read a step of time.

        Raises:
            ParameterError: it is not one of these.
        """
        name = text.strip().lower()
        if name in _LABELS:
            return cls(name)
        step = _STEP.match(name)
        minutes = int(step[1]) * (60 if step[2] == "h" else 1) if step else 0
        if minutes == MINUTES_OF_DAY:
            return cls("day")
        if not 0 < minutes < MINUTES_OF_DAY or MINUTES_OF_DAY % minutes:
            raise ParameterError(
                f"'{text}' is not a step of time. Allowed: minutes or hours that divide a day (15min, 1h, 6h), "
                f"{', '.join(_LABELS)}."
            )
        return cls(name.replace(" ", ""), minutes)

    @property
    def label_length(self) -> int:
        """How long this step's labels are. Labels of a step that holds another are how that one's labels begin."""
        return _LABELS.get(self.name, len("2022-11-14T08:15"))

    @property
    def is_periodic(self) -> bool:
        """Whether a slice collects the same hour or weekday of many weeks."""
        return self.name in ("hour", "weekday", "weekday-hour")

    def holds(self, other: Every) -> bool:
        """Whether each step of this kind is made of whole steps of the other kind."""
        if self.name == "hour" or other.name == "hour" or self.is_periodic != other.is_periodic:
            return False
        return self.label_length < other.label_length


#: Length of the labels of the named steps: '2022-11', '2022-11-14', '08:00', '1 Mon', '1 Mon 08:00'.
_LABELS = {"month": 7, "day": 10, "hour": 5, "weekday": 5, "weekday-hour": 11}
