"""The form of report.json, as a JSON Schema made from the registries of measures, units and methods.

It is shipped beside the verification, which reads the file and not this module:

    python -m flowveil.published.schema > src/flowveil/verify/report.schema.json
"""

from __future__ import annotations

import json
import typing
from collections.abc import Sequence
from typing import Any

from flowveil.analysis.measures import MEASURES, listed
from flowveil.analysis.measures.closeness import ROLES, SPREAD
from flowveil.analysis.measures.measure import Measure
from flowveil.disclosure.confirmation import CONFIRMATIONS
from flowveil.guarantee import LOCATIONS, UNITS
from flowveil.methods import METHODS, Method
from flowveil.methods.plugins import NAME
from flowveil.published.about import ENTRIES, LONGEST, PERIOD
from flowveil.published.user_outlines import CONTEXT
from flowveil.reading.columns import ROLES as COLUMNS
from flowveil.zoning.h3 import MAX_RESOLUTION
from flowveil.zoning.places import MOST
from flowveil.zoning.refinement import HIERARCHIES

Schema = dict[str, Any]

KINDS = ("plain", "sliced", "boxed", "noisy", "folded")

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_FLAG: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
#: Options are numbers of the user's own; larger ones, up or down, are none of a run.
_LARGEST_OPTION = 10**12
_OF_TYPE: dict[Any, Schema] = {
    bool: _FLAG,
    int: {"type": "integer", "minimum": -_LARGEST_OPTION, "maximum": _LARGEST_OPTION},
    float: {"type": "number", "minimum": -_LARGEST_OPTION, "maximum": _LARGEST_OPTION},
    type(None): {"type": "null"},
    # The only option that is a text is the region of noise, which is compared with the promise.
    str: _TEXT,
}
#: What each method notes of its run. Numbers are its own: no recount can have them.
_STEPS: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31}
#: Trees whose tiles are not equally deep have a level for each size of a zone (`flowveil.methods.oigh`).
_LEVELS: Schema = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
_PRICE: Schema = {"type": ["number", "null"], "minimum": 0}
_ATG: Schema = {"v_target": _PRICE, "lambda": _PRICE}
_NOTES: dict[str, Schema] = {
    "twincut": {"stopped_early": _FLAG},
    "paircut": {"proven_gap": _PRICE, "time_weight": _PRICE},
    "odkanon": {"steps": _STEPS, "roots_reached": _FLAG},
    "oigh": {"origin_levels_up": _LEVELS, "destination_levels_up": _LEVELS},
    "atg-dual": _ATG,
    "atg-soft": _ATG,
    "mondrian": {"partitioning": {"enum": ["relaxed", "strict"]}, "partitions": _STEPS},
}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _object(properties: Schema, *, optional: Sequence[str] = (), **more: Any) -> Schema:
    """An object of these entries and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(set(properties) - set(optional)),
        "additionalProperties": False,
        **more,
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _some_of(properties: Schema) -> Schema:
    """An object of some of these entries and no others."""
    return _object(properties, optional=list(properties))


def _type(hint: Any) -> Schema:
    """What a hint of a signature allows."""
    if typing.get_origin(hint) is typing.Literal:
        return {"enum": list(typing.get_args(hint))}
    if typing.get_args(hint):
        return {"anyOf": [_type(inner) for inner in typing.get_args(hint)]}
    return _OF_TYPE[hint]


def _of_method(method: Method) -> Schema:
    """The options that a method has, by its signature, and the notes that it makes."""
    hints = typing.get_type_hints(method.plan)
    options = _some_of({name: _type(hints[name]) for name in method.options})
    return {
        "properties": {
            "parameters": {"properties": {"options": options}},
            "notes": _some_of(_NOTES.get(method.name, {})),
        }
    }


def _method(*, noisy: bool) -> Schema:
    """The name of a method: of noise one of ours, else any but those, because users may bring their own."""
    of_noise = [m.name for m in METHODS.values() if m.promises == "epsilon"]
    return {"enum": of_noise} if noisy else {**_TEXT, "pattern": f"^{NAME.pattern}$", "not": {"enum": of_noise}}


def _of_own_method() -> Schema:
    """What a method of the user's own may say of itself: short words and numbers."""
    word = {"type": ["string", "number", "boolean", "null"], "pattern": "^[A-Za-z0-9_.,+-]{0,100}$"}
    number = {"type": ["number", "boolean", "null"]}
    return {
        "properties": {
            "parameters": {"properties": {"options": {"additionalProperties": word}}},
            "notes": {"additionalProperties": number},
        }
    }


def _measure(measure: Measure) -> Schema:
    return {
        "title": measure.title,
        "description": measure.meaning,
        "type": ["integer" if measure.whole else "number", "null"],
    }


def _measures(measures: Sequence[Measure], *, bases: Sequence[str], only_null: Sequence[Measure] = ()) -> Schema:
    """Measures by basis. None is ever left out: one that is withheld or does not exist is null.

    Args:
        measures: the measures that are listed.
        bases: trips, and weight where there are weights.
        only_null: those that are listed, as null, only where others are withheld.
    """
    entries = {m.key: _ref(m.key) for m in measures} | {m.key: {"type": "null"} for m in only_null}
    values = _object(entries, optional=[m.key for m in only_null])
    return _object(dict.fromkeys(bases, values), optional=bases[1:])


def _withheld() -> Schema:
    names = {"type": "array", "items": {"enum": sorted(MEASURES)}, "uniqueItems": True}
    return _object({"measures": _object({"trips": names, "weight": names}, optional=("weight",)), "reason": _TEXT})


def _guarantee() -> Schema:
    thresholds = {
        unit.name: {"title": unit.title, "type": ["number", "null"] if unit.basis == "weight" else "integer"}
        for unit in (*UNITS.values(), LOCATIONS)
    }
    protect = {"type": "array", "items": {"enum": list(UNITS)}, "minItems": 1, "uniqueItems": True}
    whole_k = {"type": ["integer", "null"], "minimum": 1}
    return _object({"k": whole_k, "protect": protect, **thresholds}, optional=list(thresholds))


def _privacy_loss() -> Schema:
    level = {"anyOf": [_COUNT, {"const": "tiles"}]}
    domain = {"level": level, "pairs": _TEXT, "region": _TEXTS, "zones": _COUNT, "zones_from_data": _FLAG}
    step = {"of": _TEXT, "epsilon": _NUMBER, "rho": _NUMBER, "scale": _NUMBER, "deviation": _NUMBER}
    return _object(
        {
            "unit": {"enum": ["person", "trip"]},
            "epsilon": _NUMBER,
            "delta": _NUMBER,
            "bound": _COUNT,
            "mechanism": _TEXT,
            "scale": _NUMBER,
            "deviation": _NUMBER,
            "threshold": _or_null(_COUNT),
            "domain": _object(domain, optional=("region", "zones", "level")),
            "steps": {"type": "array", "items": _object(step, optional=("epsilon", "rho")), "minItems": 1},
            "rho": _NUMBER,
            "layers": {**_COUNT, "minimum": 2},
        },
        optional=("steps", "rho", "layers"),
    )


def _parameters(*, sliced: bool, noisy: bool, folded: bool) -> Schema:
    """What the user chose; what was not chosen may be left out."""
    entries: Schema = {
        "columns": _object(dict.fromkeys(COLUMNS, _or_null(_TEXT)), optional=COLUMNS),
        "max_dropped": _SHARE,
        "options": {"type": "object"},
        "partition_columns": _TEXTS,
        "person_case": {"enum": ["fold", "keep"]},
        "resolution": _or_null({**_COUNT, "maximum": MAX_RESOLUTION}),
        "skip_unknown": _FLAG,
        "during": {**_TEXT, "pattern": r"^\d{4}-\d{2}(-\d{2})?$"},
        "time_format": {**_TEXT, "maxLength": 120},
        "timezone": {**_TEXT, "pattern": r"^[A-Za-z0-9_+/-]{1,64}$"},
        "within": _or_null(_TEXT),
        "outside": {"enum": ["keep"]},
        "same_zones": _FLAG,
        "matrix": _TEXTS,
        "lookup": _or_null(_TEXT),
        "wide": _FLAG,
        "zones": _some_of(dict.fromkeys(("tile", "parent", "levels", "lat", "lon", "name", "root"), _TEXT)),
    }
    if not noisy:
        entries |= {
            "hierarchy": {"enum": list(HIERARCHIES)},
            "k": {"type": "integer", "minimum": 1},
            "k_population": _or_null(_NUMBER),
            "l": {"type": ["integer", "null"], "minimum": 1},
            "max_suppressed": _SHARE,
            "zones_of": _SHA256,
            "audit": _object({"suppressed": {"const": 0}, "homogeneity": _homogeneity()}),
            "ledger": _object(
                dict.fromkeys(("releases", "groups", "single_cells", "single_trips", "unchecked"), _COUNT)
            ),
            "confirmed": {"type": "array", "items": {"enum": list(CONFIRMATIONS)}, "uniqueItems": True},
            "protect": {"type": "array", "items": {"enum": list(UNITS)}},
        }
    if noisy:
        sums = {"releases": _COUNT, "epsilon": _NUMBER, "delta": _NUMBER, "epsilon_total": _or_null(_NUMBER)}
        entries["ledger"] = _object(sums)
        values = {"type": "object", "additionalProperties": {**_TEXTS, "minItems": 1}}
        chosen = {"by_many": _FLAG, "total": _FLAG, "every": _or_null(_TEXT), "also_every": _TEXTS, "values": values}
        day = {**_TEXT, "pattern": r"^\d{4}-\d{2}-\d{2}$"}
        chosen["period"] = {"type": ["array", "null"], "items": day, "minItems": 1, "maxItems": 2}
        entries["slices"] = _object(chosen)
    if not (noisy or sliced or folded):
        entries["dominance"] = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
        highest = {"type": ["integer", "null"], "minimum": 1, "maximum": MOST}
        entries["stricter"] = _object({"places": {**_COUNT, "minimum": 1}, "k": highest, "l": highest})
        entries["l_places"] = _object({"places": {**_COUNT, "minimum": 1}})
        entries["revision_of"] = {"type": "array", "items": _SHA256, "minItems": 1, "uniqueItems": True}
    optional = list(entries)
    if sliced:
        flags = dict.fromkeys(("by_many", "total", "common_zones"), _FLAG)
        entries["slices"] = _object({**flags, "every": _or_null(_TEXT), "also_every": _TEXTS})
    if folded:
        entries["slices"] = _object({"every": _TEXT, "fold_time": {"const": True}})
    return _object(entries, optional=optional)


def _homogeneity() -> Schema:
    """Of each end: its zones that reach the guarantee, and those that send or receive nearly all to or from one."""
    ends = [_object({"end": {"const": end}, "zones": _COUNT, "above": _COUNT}) for end in ("origin", "destination")]
    return {"type": "array", "prefixItems": ends, "items": False, "minItems": 2}


def _suppression(*, noisy: bool) -> Schema:
    if noisy:
        return _object({"rule": {"const": "noise"}})
    short = _object({"rule": {"const": "short cells"}})
    hopeless = _object({"rule": {"const": "hopeless flows"}, "levels": _COUNT, "beta": _NUMBER})
    return {"anyOf": [short, hopeless]}


def _cross_check() -> Schema:
    row = {
        "unit": {"enum": list(UNITS)},
        "protected": _FLAG,
        "threshold": _or_null(_NUMBER),
        "k": _or_null(_NUMBER),
        "cells_short": _or_null(_COUNT),
    }
    return {"type": "array", "items": _object(row)}


def _closeness() -> Schema:
    """The distribution of two distances over the zones of each end."""
    spread = _object({name: {"type": "number", "minimum": 0} for name in SPREAD})
    distances = {"total_variation": spread, "metres": {"anyOf": [{"type": "null"}, spread]}}
    return _object(dict.fromkeys(ROLES, _object(distances)))


def _boxes() -> Schema:
    return _object({"grid_lon": _NUMBER, "grid_lat": _NUMBER, "disjoint": _FLAG, "finer_than_tiles": _FLAG})


def _about() -> Schema:
    """The words of whoever publishes the release: short texts, and a period of days."""
    text = {**_TEXT, "minLength": 1, "maxLength": LONGEST}
    return _some_of(
        {name: {**text, "pattern": f"^{PERIOD.pattern}$"} if name == "period" else text for name in ENTRIES}
    )


def _report(kind: str) -> Schema:
    """The entries of the report of a kind of release."""
    noisy, sliced, folded = kind == "noisy", kind == "sliced", kind == "folded"
    bases = ("trips",) if noisy else ("trips", "weight")
    own = listed(noisy=noisy, folded=folded)
    alone = [m for m in own if sliced and m.combine is None]
    all_listed = _measures([m for m in own if m not in alone], bases=bases, only_null=alone)
    no_or_some_withheld: Schema = {"anyOf": [{"type": "null"}, _ref("withheld")]}
    entries: Schema = {
        "kind": {"const": kind},
        "version": _TEXT,
        "about": _ref("about"),
        "method": _method(noisy=noisy),
        "parameters": _parameters(sliced=sliced, noisy=noisy, folded=folded),
        "guarantee": _ref("privacy_loss" if noisy else "guarantee"),
        "homogeneous": _FLAG,
        "overlapping_outlines": _or_null(_COUNT),
        "boxes": _ref("boxes") if kind == "boxed" else {"type": "null"},
        "suppression": _suppression(noisy=noisy),
        "measures": all_listed if noisy or sliced or folded else _ref("measures"),
        "withheld": _ref("withheld") if noisy else no_or_some_withheld,
        "notes": {"type": "object"},
        "command": _TEXT,
        "statement": {**_TEXTS, "minItems": 1},
        "basemap": _TEXT,
        "context": {"const": CONTEXT},
        "replace_stronger": {"const": True},
    }
    if kind == "plain":
        entries["closeness"] = {"anyOf": [{"type": "null"}, _ref("closeness")]}
    if kind in ("plain", "sliced"):
        of_level = _object({"level": {"type": "integer", "minimum": -1}, "error": _or_null(_SHARE)})
        entries["between_areas"] = {"type": ["array", "null"], "items": of_level, "minItems": 1, "maxItems": 4}
    if not noisy:
        entries["cross_check"] = _ref("cross_check")
    optional = ["basemap", "context", "replace_stronger"]
    if sliced or noisy:
        # The names of slices are the user's: columns of the input.
        named = {"type": "object", "additionalProperties": _or_null(_TEXT)}
        part = {"slice": named, "measures": all_listed if noisy else _ref("measures")}
        part["withheld"] = _ref("withheld") if noisy else no_or_some_withheld
        entries |= {
            "slice_columns": {**_TEXTS, "minItems": 1},
            "slices": {"type": "array", "items": _object(part), "minItems": 1},
        }
    if noisy:
        optional += ["slice_columns", "slices"]
    if sliced:
        entries |= {
            "unpublished_slices": _or_null(_COUNT),
            "differencing": _object(dict.fromkeys(("comparisons", "differences", "short", "unchecked"), _COUNT)),
        }
    return _object(entries, optional=optional)


def report_schema() -> Schema:
    """The JSON Schema of report.json: for each kind of release, what it says and nothing else."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "report.json of a flowveil release",
        "description": "What a release says of itself. A measure that is withheld, or does not exist, is null.",
        "type": "object",
        "properties": {"kind": {"enum": list(KINDS)}},
        "required": ["kind"],
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": _ref(kind),
            }
            for kind in KINDS
        ]
        + [
            {
                "if": {"properties": {"method": {"const": name}}, "required": ["method"]},
                "then": _of_method(method),
            }
            for name, method in METHODS.items()
        ]
        + [
            {
                "if": {"properties": {"method": {"enum": list(METHODS)}}, "required": ["method"]},
                "else": _of_own_method(),
            }
        ],
        "$defs": {
            **{kind: _report(kind) for kind in KINDS},
            "guarantee": _guarantee(),
            "privacy_loss": _privacy_loss(),
            "boxes": _boxes(),
            "about": _about(),
            "cross_check": _cross_check(),
            "closeness": _closeness(),
            "withheld": _withheld(),
            "measures": _measures(listed(noisy=False), bases=("trips", "weight")),
            **{key: _measure(measure) for key, measure in MEASURES.items()},
        },
    }


def schema_text() -> str:
    """The text of report.schema.json."""
    return json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
