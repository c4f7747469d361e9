"""What the operator declares about a release: title, source, period, licence, publisher, ...

No recount can check free text. So it is short, one line of visible characters, and escaped in every
file.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from datetime import date
from typing import Any

from flowveil.core.errors import ParameterError, did_you_mean, option
from flowveil.published.language import DEFAULT, Say, languages, texts

#: The entries in the order of pages, with what a page calls them.
ENTRIES = {
    "title": "Title",
    "source": "Source",
    "period": "Period",
    "licence": "Licence",
    "publisher": "Publisher",
    "contact": "Contact",
    "issued": "Issued",
    "modified": "Modified",
    "base_url": "Address",
    "language": "Language",
}
LONGEST = 200
#: The address of a published folder: a host, a path, no query.
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%-]*)*")
#: A day, or the first and the last day, as ISO 8601 writes them.
PERIOD = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(/[0-9]{4}-[0-9]{2}-[0-9]{2})?")


def checked(about: Mapping[str, Any]) -> dict[str, str]:
    """Returns the given entries, stripped.

    ParameterError for unknown, long or invisible ones and wrong periods.
    """
    given: dict[str, str] = {}
    for name, text in about.items():
        if name not in ENTRIES:
            raise ParameterError(
                f"A release is described by {', '.join(ENTRIES)}; found '{name}'."
                + did_you_mean(name, ENTRIES)
            )
        if text is None:
            continue
        if not isinstance(text, str) or not text.strip() or len(text.strip()) > LONGEST:
            raise ParameterError(
                f"--{name} is a text of 1 to {LONGEST} signs. Hint: leave it out, or shorten it."
            )
        if any(
            unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
            for sign in text.strip()
        ):
            raise ParameterError(
                f"--{name} is one line of visible signs; it has others. Hint: type it again."
            )
        given[name] = text.strip()
    period = given.get("period")
    if period is not None:
        try:
            days = (
                [date.fromisoformat(day) for day in period.split("/")]
                if PERIOD.fullmatch(period)
                else []
            )
        except ValueError:
            days = []
        if not days or days[0] > days[-1]:
            raise ParameterError(
                "--period is the first and the last day, like 2024-01-01/2024-03-31, or one day;"
                f" found '{period}'."
            )
    language = given.get("language")
    if language is not None and language not in languages():
        raise ParameterError(
            f"--language is one of {', '.join(languages())}; found '{language}'."
            + did_you_mean(language, languages())
        )
    for name in ("issued", "modified"):
        if name in given and not _is_day(given[name]):
            raise ParameterError(f"{option(name)} is a day like 2024-04-15; found '{given[name]}'.")
    address = given.get("base_url")
    if address is not None and not _ADDRESS.fullmatch(address):
        raise ParameterError(
            f"{option('base_url')} is the https address of the folder that will hold the release; "
            f"found '{address}'. Hint: for example https://data.example.org/trips/."
        )
    return {name: given[name] for name in ENTRIES if name in given}


def _is_day(text: str) -> bool:
    """Whether a text is a day in ISO 8601."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def title(report: Mapping[str, Any], area: str | None = None) -> str:
    """Returns the title that was given, or one from the area's name, or one from the number of
    zones.
    """
    given = report["statement"]["about"].get("title")
    if given is not None:
        return str(given)
    if area is not None:
        return texts(report["statement"]["about"].get("language", DEFAULT))("title_area", area=area)
    published = report["published"]
    return (
        f"Trips between {published['origin_zones']:,} and {published['destination_zones']:,} areas"
    )


def described(about: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns names and texts of all entries but the title; the period is spelled out."""
    others = {name: about[name] for name in ENTRIES if name in about and name != "title"}
    return [
        (ENTRIES[name], period_in_words(text) if name == "period" else text)
        for name, text in others.items()
    ]


def one_line(about: Mapping[str, str]) -> str:
    """Returns all entries in one line."""
    return ". ".join(
        f"{called}: {about[name]}" for name, called in ENTRIES.items() if name in about
    )


def period_in_words(text: str, language: str = DEFAULT) -> str:
    """Returns a period like "1 January 2024 to 31 March 2024"."""
    say = Say(language)
    months = say("months").split()
    days = [
        say("day", day=day.day, month=months[day.month - 1], year=day.year)
        for day in map(date.fromisoformat, text.split("/"))
    ]
    return days[0] if days[0] == days[-1] else say("days", first=days[0], last=days[-1])
