"""The words of the page: one catalogue with the same texts in each language."""

from __future__ import annotations

import re

import pytest

import flowveil
from flowveil.core.errors import ParameterError
from flowveil.published.about import period_in_words
from flowveil.published.language import at_most, catalogue, languages, number, share
from samples.drafts import unchecked
from samples.releases import city_flows

FIELD = re.compile(r"\{(\w+)\}")


@pytest.mark.parametrize("language", languages())
def test_each_language_has_every_text_with_the_same_fields(language):
    english, words = catalogue()["en"], catalogue()[language]
    assert list(words) == list(english)
    for key, text in words.items():
        assert text.strip()
        assert set(FIELD.findall(text)) == set(FIELD.findall(english[key])), key
        assert text.count("|") == english[key].count("|")


def test_numbers_follow_the_language():
    assert [number(49_287, language) for language in ("en", "de", "fr")] == [
        "49,300",
        "49.300",
        "49\u202f300",
    ]
    assert (share(0.357, "en"), share(0.357, "fr")) == ("36%", "36\u00a0%")
    assert (number(0), number(7.4), number(451_321.2778)) == ("0", "7", "451,000")


def test_an_upper_bound_is_never_rounded_down():
    assert [at_most(0.0321), at_most(0.01), at_most(0.0321, "fr")] == ["3.3 %", "1 %", "3,3\u00a0%"]


def test_a_period_follows_the_language():
    days = "2024-01-01/2024-03-31"
    assert period_in_words(days) == "1 January 2024 to 31 March 2024"
    assert period_in_words(days, "de") == "1. Januar 2024 bis 31. März 2024"
    assert period_in_words("2024-01-01", "es") == "1 de enero de 2024"


def test_a_page_speaks_the_language_that_was_asked_for(tmp_path):
    release = flowveil.anonymize(city_flows(rows=3_000), k=5, protect="trips")
    with unchecked():
        folder = release.write(tmp_path / "fr", language="fr", title="Déplacements")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert '<html lang="fr">' in page
    assert "couvre au moins 5 d" in page
    below = page.partition('class="answers"')[2].partition("<script")[0]
    for english in ("What is", "within ", "Next to", "All parameters", "at most"):
        assert english not in re.sub(r'<ul lang="en">.*?</ul>', "", below, flags=re.S), english
    with pytest.raises(ParameterError, match="--language is one of en, fr"):
        release.write(tmp_path / "xx", language="xx")
