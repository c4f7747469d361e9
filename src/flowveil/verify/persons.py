"""Whether upper and lower case make different persons: the reader says so, not the release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowveil.paths import read_json

#: Said where persons were recounted otherwise than the release counted them.
FOLDED = (
    "Persons that differ in upper and lower case only were counted as one, the safe side; the release counts them as "
    "different persons. Hint: if they are different, say so with --person-case keep (person_case='keep')."
)


def folds_instead(folder: Path, *, expect: Mapping[str, Any] | None, person_case: str | None) -> bool:
    """Whether persons are recounted with upper and lower case as one, although the release distinguishes them.

    Five people spelled in two ways would pass for ten if the release alone decided. So where people are protected, or
    the reader expects them to be, only the reader can distinguish them.

    Args:
        folder: a release whose files are those of its manifest.
        expect: what the reader expects of the guarantee.
        person_case: what the reader says of upper and lower case; None for nothing.
    """
    try:
        report = read_json(folder / "report.json")
        made_with = report["parameters"].get("person_case")
        guarantee = report["guarantee"]
        claimed = "people" in guarantee or guarantee.get("unit") == "person"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # A report that cannot be read is a finding; the verification itself says so.
        return False
    asked = (expect or {}).get("protect") or ()
    expected = "people" in ((asked,) if isinstance(asked, str) else asked)
    return person_case is None and made_with == "keep" and (claimed or expected)
