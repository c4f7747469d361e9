"""One line on what was read, by which an operator notices a misread file: rows, trips, people and
the place.
"""

from __future__ import annotations

from flowveil.core.flows import Flows, People
from flowveil.core.unit_names import unit_words
from flowveil.reading.plausibility import place_of

#: Digits that are shown: enough to notice a factor of ten, and no exact total in a log.
_DIGITS = 3


def overview(flows: Flows) -> str:
    """Returns rows, trips and people as read, rounded, and where the trips lie."""
    summary, people = flows.intake, flows.people
    # The people of a cluster are counted where they are needed.
    persons = unit_words("people", summary.parameters())
    by = f" by {_rounded(people.total())} {persons}" if isinstance(people, People) else ""
    weight = summary.input_weight
    of = f" that represent {_rounded(weight)}" if summary.columns.get("weight") and weight else ""
    trips = f"{_rounded(float(flows.trips.sum()))} {unit_words('trips', summary.parameters())}"
    line = f"Read {_rounded(summary.rows)} rows: {trips}{by}{of}."
    place = place_of(flows)
    return line if place is None else f"{line} {place}"


def _rounded(number: float) -> str:
    """Returns a number with three significant digits, and ``about`` where it was rounded."""
    if number < 10**_DIGITS:
        return f"{number:,.0f}"
    scale = 10 ** (len(f"{number:.0f}") - _DIGITS)
    shown = round(number / scale) * scale
    return f"{'' if shown == number else 'about '}{shown:,}"
