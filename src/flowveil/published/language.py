"""The words of the page in the languages that it speaks, from one catalogue.

The catalogue is ``page/words.json``: the same keys for each language (a test holds it). Numbers
follow the language.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from flowveil.published.document import asset

#: Signs between thousands.
_THOUSANDS = {"en": ",", "fr": "\u202f", "es": ".", "de": ".", "it": ".", "pt": "."}
DEFAULT = "en"
#: The word for trips in English texts, not the name of a value.
_TRIPS = re.compile(r"(?<!\{)\b[Tt]rips\b")


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """The texts of each language by key."""
    return dict(json.loads(asset("words.json")))


def languages() -> tuple[str, ...]:
    """The languages of pages."""
    return tuple(catalogue())


def words_of(language: str, counted: str = "trips") -> dict[str, str]:
    """Returns the texts of a language; the English ones with a name for what was counted."""
    words = catalogue()[language]
    if counted == "trips" or language != DEFAULT:
        return words
    return {
        key: _TRIPS.sub(
            lambda found: counted if found[0] == "trips" else counted.capitalize(), text
        )
        for key, text in words.items()
    }


def texts(language: str, counted: str = "trips") -> Callable[..., str]:
    """Returns a function that fills the text of a key with values."""
    words = words_of(language, counted)
    return lambda key, **values: words[key].format_map(values)


def number(value: float, language: str = DEFAULT, *, digits: int = 3) -> str:
    """Returns a number for people: a few digits, thousands separated."""
    step = 10.0 ** max(0, math.floor(math.log10(value)) - digits + 1) if value > 0 else 1.0
    return f"{round(value / step) * step:,.0f}".replace(",", _THOUSANDS[language])


@dataclass(frozen=True)
class Say:
    """The texts of the page around the answer, in a language."""

    language: str = DEFAULT
    counted: str = "trips"

    def __call__(self, key: str, **values: object) -> str:
        """Returns the text of a key, filled with values."""
        return texts(self.language, self.counted)(f"page_{key}", **values)

    def word(self, key: str) -> str:
        """Returns a word of the answer."""
        return texts(self.language, self.counted)(key)

    def at_most(self, value: float) -> str:
        """Returns a share in per cent, rounded up to tenths."""
        return at_most(value, self.language)


def at_most(value: float, language: str = DEFAULT) -> str:
    """Returns an upper bound of a share in per cent, rounded up to tenths."""
    text = f"{math.ceil(value * 1000 - 1e-9) / 10:g}"
    return f"{text} %" if language == DEFAULT else f"{text.replace('.', ',')}\u00a0%"


def share(value: float, language: str = DEFAULT) -> str:
    """Returns a share in whole per cent."""
    sign = "%" if language in ("en", "it", "pt") else "\u00a0%"
    return f"{100 * value:.0f}{sign}"
