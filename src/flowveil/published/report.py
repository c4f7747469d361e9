"""A release as plain data: what report.json and manifest.json say.

Everything here is published. What may be said of the input is decided in `flowveil.disclosure`.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from flowveil import __version__
from flowveil.analysis.measures.closeness import published_closeness
from flowveil.disclosure.areas import published_areas
from flowveil.disclosure.withholding import AND, REASONS, disclose
from flowveil.guarantee import UNITS
from flowveil.published.about import checked
from flowveil.published.overlaps import count_overlaps
from flowveil.published.sentences import statement
from flowveil.published.user_outlines import CONTEXT
from flowveil.slices import TIME

if TYPE_CHECKING:
    from flowveil.release.release import Publishable
    from flowveil.release.sliced import SlicedRelease

__all__ = [
    "AND",
    "FORMAT",
    "REASONS",
    "cross_check",
    "json_text",
    "manifest",
    "published_parameters",
    "summarize",
    "words",
]

#: What a manifest.json of ours says of itself; a folder without it is never overwritten.
FORMAT = "flowveil release"


def summarize(
    release: Publishable,
    *,
    formats: Sequence[str] = (),
    basemap: str | None = None,
    outlines: bool = False,
    replace_stronger: bool = False,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The content of report.json: plain, finite, and safe to publish. Its form is that of report.schema.json.

    Args:
        release: what is published.
        formats: exports that are written beside it; they are part of the command only.
        basemap: address of the tile server of the report's background map.
        outlines: whether context.geojson is written beside it.
        replace_stronger: whether it was confirmed that a stronger release may be replaced.
        about: what the release is about; see `flowveil.published.about`.

    Returns:
        ``version``, ``about``, ``kind``, ``method``, ``parameters``, ``guarantee``, ``homogeneous``,
        ``overlapping_outlines`` (pairs; None where zones may overlap), ``boxes`` (None, or their grid and whether a
        flow may lie in two), ``suppression``, ``measures`` (by basis), ``withheld`` (None, or which measures are
        withheld and why), ``notes``, ``closeness`` (of one matrix; None where zones overlap), ``between_areas``
        (of one matrix, or of the finest slices: ``level`` and ``error`` of each level of areas), ``basemap``,
        ``context`` and ``replace_stronger`` where given, and the `words`.
        Where there are slices, the measures are those of all finest slices together (of all matrices, where no finest
        slice can be published), and there are ``slice_columns``, ``slices`` (``slice``, ``measures``, ``withheld`` of
        each published slice), ``unpublished_slices`` (how many hold too little; None for steps of time) and
        ``differencing``.
    """
    disclosed = disclose(release)
    plans = [part.plan for _, part in release.parts]
    homogeneous = all(plan.homogeneous for plan in plans)
    report: dict[str, Any] = {
        "version": __version__,
        "about": checked(about or {}),
        "kind": release.kind,
        "method": release.method,
        "parameters": published_parameters(release.parameters),
        "guarantee": disclosed.guarantee,
        "homogeneous": homogeneous,
        "overlapping_outlines": (
            count_overlaps(release.flows, release.zones, release.slice_columns) if homogeneous else None
        ),
        "boxes": plans[-1].boxes and plans[-1].boxes.to_dict(),
        "suppression": plans[-1].suppression.to_dict(),
        "measures": disclosed.measures,
        "withheld": disclosed.withheld.to_dict(),
        "notes": {},
    }
    if release.kind == "plain":
        report["closeness"] = published_closeness(release)
    if release.kind in ("plain", "sliced"):
        report["between_areas"] = published_areas(release, disclosed.measures)
    if release.slice_columns:
        names = release.slice_columns
        report["slice_columns"] = list(names)
        report["slices"] = [
            {"slice": dict(zip(names, key, strict=True)), "measures": measures, "withheld": withheld.to_dict()}
            for (key, _), (measures, withheld) in zip(release.parts, disclosed.parts, strict=True)
        ]
    if release.kind == "sliced":
        sliced = cast("SlicedRelease", release)
        # Which steps of time there are is known to everybody: with their number, those that are missing are not empty.
        counted = None if sliced.input.every is not None else sliced.n_unpublished
        report |= {"unpublished_slices": counted, "differencing": asdict(sliced.differencing)}
    elif not release.slice_columns:
        report["notes"] = _published_notes(plans[0].notes, withhold=bool(disclosed.withheld.reasons))
    beside = {
        "basemap": basemap,
        "context": CONTEXT if outlines else None,
        "replace_stronger": replace_stronger or None,
    }
    plain = _plain(report) | {name: value for name, value in beside.items() if value is not None}
    # In the order of the file, so that whoever reads it finds the same words.
    plain = json.loads(json_text(plain))
    return {**plain, **words(plain, formats)}


def words(report: Mapping[str, Any], formats: Sequence[str]) -> dict[str, Any]:
    """The entries of report.json that follow from the others: whoever checks a report writes them again.

    Args:
        report: the other entries.
        formats: exports that are written beside it, in the order of `flowveil.published.exports.FORMATS`.

    Returns:
        ``statement``; ``command``, which makes the release again; and, but for noise, ``cross_check``.
    """
    # Paths are not published; a word stands for them.
    drawn = {"basemap": report.get("basemap"), "context": "CONTEXT" if report.get("context") else None}
    written = {"format": ",".join(formats), **drawn, **report["about"]}
    confirmed = ["replace-stronger"] if report.get("replace_stronger") else []
    said = {
        "command": command(report["method"], report["parameters"], written, confirmed),
        "statement": statement(report),
    }
    return said if report["kind"] == "noisy" else {**said, "cross_check": cross_check(report)}


def cross_check(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Who is hidden, protected or not: for each unit the data knows, the k that is reached and the cells short of it.

    Protecting trips does not protect people or the population, nor the other way round; this is where it shows. It is
    over all matrices: a total may have few people in a cell where the slice that would have them is not published.
    """
    guarantee, parts = report["guarantee"], report["slices"] if report["kind"] == "sliced" else [report]
    # What units are held against, also where nothing that is protected may be called k.
    k = report["parameters"]["k"] if guarantee["k"] is None else guarantee["k"]
    rows = []
    for unit in UNITS.values():
        reached = [part["measures"]["trips"][f"k_{unit.name}"] for part in parts]
        short = [part["measures"]["trips"][f"cells_under_k_{unit.name}"] for part in parts]
        known = [value for value in reached if value is not None]
        if known:
            rows.append(
                {
                    "unit": unit.name,
                    "protected": unit.name in guarantee["protect"],
                    "threshold": guarantee.get(unit.name, k if unit.asks_k else None),
                    "k": min(known),
                    "cells_short": None if None in short else sum(short),
                }
            )
    return rows


def command(
    method: str, parameters: Mapping[str, Any], written: Mapping[str, str | None], confirmed: Sequence[str] = ()
) -> str:
    """The command that makes this release again, for whoever holds the trips; the input's own name is not published.

    Made from the published parameters, so it reveals nothing that they do not.
    """
    chosen = ["--zones-of", "EARLIER"] if parameters.get("zones_of") else ["--method", method]
    chosen += ["--revision", "EARLIER"] * len(parameters.get("revision_of", ()))
    words = ["flowveil", "anonymize", "INPUT", *chosen]
    thresholds = ("k", "k_population", "l", "max_suppressed", "dominance")
    for name in (*thresholds, "resolution", "within", "outside", "max_dropped", "hierarchy"):
        if parameters.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(parameters[name])]
    if parameters.get("stricter") is not None:
        words += ["--stricter", "PLACES"]
    if parameters.get("l_places") is not None:
        words += ["--l-places", "PLACES"]
    protect = parameters.get("protect") or []
    for unit in [protect] if isinstance(protect, str) else protect:
        words += ["--protect", unit]
    if parameters.get("skip_unknown"):
        words.append("--skip-unknown")
    words += [f"--{name.replace('_', '-')}" for name in ("same_zones", "wide") if parameters.get(name)]
    if parameters.get("matrix"):
        words += ["--matrix", ",".join(parameters["matrix"])]
    if parameters.get("lookup"):
        words += ["--lookup", parameters["lookup"]]
    if parameters.get("audit") is not None:
        words.append("--audit")
    if parameters.get("ledger") is not None:
        words += ["--ledger", "LEDGER"]
        total = parameters["ledger"].get("epsilon_total")
        words += [] if total is None else ["--epsilon-total", f"{total:g}"]
    if parameters.get("person_case") == "keep":
        words += ["--person-case", "keep"]
    for name in ("time_format", "timezone", "during"):
        if parameters.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", parameters[name]]
    if parameters.get("partition_columns"):
        words += ["--partition-columns", ",".join(parameters["partition_columns"])]
    for role, column in _named(parameters, "columns"):
        words += [f"--{role.replace('_', '-')}", column]
    words += _slice_words(parameters.get("slices") or {})
    if parameters.get("zones"):
        words += ["--zones", "MAP"]
    for name, value in _named(parameters, "zones"):
        words += [f"--zones-{name}", _word(value)]
    # Common zones have no options: those that stand there are defaults.
    own = [] if (parameters.get("slices") or {}).get("common_zones") else _named(parameters, "options")
    for name, value in own:
        if value is not None:
            words += ["--option", f"{name}={_word(value)}"]
    for name, text in written.items():
        if text:
            words += [f"--{name}", text]
    words += [f"--{name}" for name in (*parameters.get("confirmed", ()), *confirmed)]
    return " ".join(shlex.quote(word) for word in [*words, "--out", "DIR"])


def _slice_words(slices: Mapping[str, Any]) -> list[str]:
    """The options of a family of slices."""
    words = []
    for step in [slices.get("every"), *slices.get("also_every", ())]:
        words += ["--every", step] if step else []
    words += [
        f"--{name.replace('_', '-')}" for name in ("by_many", "total", "common_zones", "fold_time") if slices.get(name)
    ]
    for name, values in slices.get("values", {}).items():
        words += ["--values", f"{name}={','.join(values)}"]
    words += ["--values", f"{TIME}={'/'.join(slices['period'])}"] if slices.get("period") else []
    return words


def _named(parameters: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    values = parameters.get(name)
    return list(values.items()) if isinstance(values, Mapping) else []


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def manifest(report: Mapping[str, Any], sha256: Mapping[str, str]) -> dict[str, Any]:
    """The content of manifest.json: the hash of every other file, and what is and is not protected."""
    return {
        "format": FORMAT,
        "version": report["version"],
        "about": dict(report["about"]),
        "sha256": dict(sha256),
        "statement": list(report["statement"]),
    }


def json_text(content: Mapping[str, Any]) -> str:
    """The text of report.json or manifest.json; there is one way to write zero."""
    return json.dumps(_unsigned(content), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _unsigned(content: Any) -> Any:
    """The same with 0.0 instead of -0.0."""
    if isinstance(content, float):
        return content + 0.0
    if isinstance(content, Mapping):
        return {name: _unsigned(value) for name, value in content.items()}
    return [_unsigned(value) for value in content] if isinstance(content, list | tuple) else content


def _published_notes(notes: Mapping[str, Any], *, withhold: bool) -> dict[str, Any]:
    """A method's notes, without numbers where something is withheld: a method cannot know what they reveal.

    Fractions are rounded to three digits: exact, a ratio of sums can be taken apart into the sums.
    """
    shown = {k: v for k, v in notes.items() if not withhold or v is None or isinstance(v, str | bool | np.bool_)}
    return {k: float(f"{v:.3g}") if isinstance(v, float | np.floating) else v for k, v in shown.items()}


def published_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters without any path of the machine that ran.

    Names of columns, formats of times and time zones stay as they are, slashes and all: whoever verifies the release
    needs them to read the input.
    """
    kept = ("columns", "time_format", "timezone")
    return {name: value if name in kept else _without_paths(value) for name, value in parameters.items()}


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_paths(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    is_path = isinstance(value, PathLike) or (isinstance(value, str) and ("/" in value or "\\" in value))
    return "(a path; not published)" if is_path else value


def _plain(value: Any) -> Any:
    """JSON types only; no NaN and no infinity."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(v) for v in ordered]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return str(value)
