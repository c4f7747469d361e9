"""The text of a data protection impact assessment (Article 35 GDPR) for one release, in Markdown.

Private.

Entries come from the release's statement, its measures and its audit. What these do not contain is
marked as to be filled in by the controller; nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from flowveil.analysis.areas import main_accuracy, misplaced_text
from flowveil.analysis.audit import Audit, audit, audit_lines
from flowveil.analysis.release_analysis import Analysis
from flowveil.analysis.uniqueness import uniqueness
from flowveil.published.about import ENTRIES
from flowveil.published.sentences import sentences
from flowveil.release.folder import ReleaseFolder
from flowveil.request.keywords import ReadingKeywords
from flowveil.system.paths import named_path

if TYPE_CHECKING:
    from flowveil.release.statement import Statement

#: Marks an entry that flowveil cannot know.
TO_FILL = "**[to be filled in by the controller]**"
#: Parts of an assessment that only the controller can write.
_BY_CONTROLLER = (
    "Controller and processors",
    "Legal basis of the processing and of the publication",
    "Necessity and proportionality",
    "Recipients, and how the release is published",
    "How long the raw trips are kept, and who has access",
    "Information and rights of the persons concerned",
    "Views of the persons concerned, or why they were not asked",
)


def dpia_text(
    folder: str | PathLike[str],
    analysis: Analysis,
    *,
    against: Any,
    **reading: Unpack[ReadingKeywords],
) -> str:
    """Returns the assessment of a published release from its folder, its measures and its trips.

    Runs the audit.
    """
    place = ReleaseFolder(named_path(folder, what="the release"))
    statement = place.statement
    title = statement.about.get("title")
    parts: list[tuple[str, Iterator[str]]] = [
        ("Purpose", _purpose(statement)),
        ("Data", _data(statement, analysis)),
        ("Measures taken", _measures_taken(statement)),
        ("Risks", _risks(statement, analysis, audit([place.path], against=against, **reading))),
        ("Residual risk", _residual_risk(statement, analysis)),
        ("Usefulness of the release", _usefulness(analysis)),
        ("By the controller", (f"{name}: {TO_FILL}" for name in _BY_CONTROLLER)),
    ]
    lines = [
        f"# Data protection impact assessment: {title or TO_FILL}",
        "",
        (
            "Private: this text contains figures computed from raw trips. It was made by `flowveil"
            " analyze --dpia` from the release, its statement and its audit. What they do not"
            f" contain is marked {TO_FILL}."
        ),
    ]
    for number, (head, content) in enumerate(parts, 1):
        lines += [
            "",
            f"## {number}. {head}",
            "",
            *(f"- {' '.join(line.split())}" for line in content),
        ]
    return "\n".join(lines) + "\n"


def _purpose(statement: Statement) -> Iterator[str]:
    yield f"Purpose of the publication: {TO_FILL}"
    yield (
        "Published: an origin-destination matrix, counts of trips between zones. It contains no"
        " record of a person."
    )
    for name, head in ENTRIES.items():
        yield f"{head}: {statement.about.get(name) or TO_FILL}"


def _data(statement: Statement, analysis: Analysis) -> Iterator[str]:
    flows: Any = analysis.release.input
    whole = flows.whole
    summary, columns = whole.intake, statement.parameters.get("columns") or {}
    used = ", ".join(f"{role} from `{name}`" for role, name in columns.items() if name)
    yield f"Columns read: {used or 'given as flows'}. Other columns of the input were not used."
    yield f"Rows read: {summary.rows:,}. Trips used: {int(whole.trips.sum()):,}."
    for reason, count in sorted(summary.left_out.items()):
        yield f"Rows not used: {count:,} {reason}."
    if whole.people is None:
        yield (
            "Persons: not known from the input, or not read. Trips of one person cannot be"
            " distinguished."
        )
    else:
        yield f"Persons: {whole.people.total():,}. Their identifiers are not published."
    yield "Weights: " + ("none." if whole.weight is None else f"sum {whole.total('weight'):,.0f}.")
    yield f"Special categories of data (Article 9), children, vulnerable persons: {TO_FILL}"
    yield f"How the trips were collected: {TO_FILL}"


def _measures_taken(statement: Statement) -> Iterator[str]:
    yield f"Method: {statement.method}, kind of release: {statement.kind}."
    for line in sentences(statement):
        if not line.startswith(("Not protected", "Not claimed")):
            yield line
    limit = statement.parameters.get("max_suppressed")
    if limit is not None:
        yield f"Limit of suppression: {limit:.1%} of the volume."
    if statement.slice_columns:
        yield (
            f"The matrix is divided by {', '.join(statement.slice_columns)}; slices share no trip,"
            " and no total is published."
        )
    if not statement.facets.is_noisy:
        yield (
            "Recount: flowveil recounts every cell before it writes a folder; `flowveil verify`"
            " repeats this."
        )
    earlier = "Earlier releases of the same trips"
    accepted = statement.differencing_accepted
    kept = (
        "; that readers can subtract releases was accepted."
        if accepted
        else ", which refuses overlapping releases."
    )
    ledger = statement.ledger is not None
    yield (
        f"{earlier}: a ledger was kept{kept}"
        if ledger
        else f"{earlier} (no ledger was used): {TO_FILL}"
    )
    yield f"Technical and organisational measures around the raw trips: {TO_FILL}"


def _risks(statement: Statement, analysis: Analysis, audited: Audit) -> Iterator[str]:
    yield f"Audit of the release: {audited.sentence}."
    yield from (f"Audit, not compared: {line}" for line in audited.not_compared)
    yield from (f"Audit: {line}" for line in (*audited.failures, *audit_lines(audited)))
    flows: Any = analysis.release.input
    for one in uniqueness(flows.whole):
        yield f"Without these measures, in the raw trips: {one.line().strip()}."
    yield from (
        line for line in sentences(statement) if line.startswith(("Not protected", "Not claimed"))
    )
    yield f"Likelihood and severity for the persons concerned: {TO_FILL}"


def _residual_risk(statement: Statement, analysis: Analysis) -> Iterator[str]:
    units = {"k_trips": "trips", "k_people": "people", "k_population": "represented inhabitants"}
    for key, value in analysis.measures.get("trips", {}).items():
        if key in units and value is not None:
            yield f"Smallest number of {units[key]} in a published cell: {value:,.0f}."
    for name in statement.confirmed:
        yield f"Confirmed by the operator although it is refused by default: `--{name}`."
    if statement.differencing_accepted:
        yield "Subtraction of releases was accepted by the operator (`--accept-differencing`)."
    yield from (f"Not measured: {note}" for note in analysis.notes)
    yield f"Assessment of the residual risk, and whether it is acceptable: {TO_FILL}"
    yield f"Opinion of the data protection officer, date and signature: {TO_FILL}"


def _usefulness(analysis: Analysis) -> Iterator[str]:
    for basis, values in analysis.measures.items():
        share = values.get("suppressed_share")
        if share is not None:
            yield f"Published: {1 - share:.2%} of the {basis}."
    first = main_accuracy([one for one in analysis.areas if one.basis == "trips"])
    if first is not None:
        yield (
            f"Between areas ({first.areas}), {misplaced_text(first)}, and misses"
            f" {first.area_error:.1%}."
        )
    yield f"Why less data, or a coarser release, would not serve the purpose: {TO_FILL}"
