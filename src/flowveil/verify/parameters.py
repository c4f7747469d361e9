"""The parameters of report.json that say how the input was read, held against how it was read for the recount.

Whoever changes them changes what people read, and what the page draws. Names of columns are texts of the user's own:
nothing but the input can say that they are names and not messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flowveil.flows import Flows
from flowveil.slices import SlicedFlows

#: What stands for a text that looks like a path, which no report shows.
_PATH = "(a path; not published)"
#: What changes the trips that are counted, or when: left out or put in, it misleads.
_ALWAYS = ("time_format", "timezone", "during", "outside")
#: What subtraction finds that has to be confirmed: inside a release, and against the earlier ones of a ledger.
_REVEALING = ("short", "groups", "unchecked")


def check_reading(report: Mapping[str, Any], flows: Flows | SlicedFlows) -> Iterator[str]:
    """Compare what a report says of the reading with the reading itself; what it leaves out cannot mislead.

    Args:
        report: the content of report.json; it has the form that the schema asks for.
        flows: the input as it was read.
    """
    said = report["parameters"]
    read = flows.intake.parameters()
    for name in _ALWAYS:
        if said.get(name) != read.get(name):
            yield f"report.json: its parameters say another '{name}' than the input was read with"
    for name, value in read.items():
        # Upper and lower case of persons is the reader's choice, whatever the release says; see `persons`.
        if (
            name not in ("person_case", *_ALWAYS)
            and name in said
            and not _same(said[name], value, is_column=name == "columns")
        ):
            yield f"report.json: its parameters say another '{name}' than the input was read with"
    if said.get("confirmed", []) != _confirmed(report, flows):
        yield "report.json: its parameters say that something else was confirmed than had to be"
    region = said.get("options", {}).get("region")
    if isinstance(region, str) and region.strip() != "observed" and region != _PATH:
        named = [name.strip() for name in region.split(",") if name.strip()]
        if named != report["guarantee"]["domain"].get("region"):
            yield "report.json: its parameters say another region than its promise"
    if isinstance(flows, Flows) and flows.times is not None and said["slices"]["every"] != flows.times.every:
        yield "report.json: its times have another 'every' than the input was read with"
    if isinstance(flows, SlicedFlows) and "slices" in said:
        every = flows.every.name if flows.every else None
        for name, value in {"every": every, "by_many": flows.intake.by_many}.items():
            if said["slices"][name] != value:
                yield f"report.json: its slices have another '{name}' than the input was read with"


def _confirmed(report: Mapping[str, Any], flows: Flows | SlicedFlows) -> list[str]:
    """What had to be confirmed: a small k, the population alone where persons are known, what subtraction reveals."""
    said, found = report["parameters"], report.get("differencing") or {}
    whole = flows.whole if isinstance(flows, SlicedFlows) else flows
    needed = {
        "yes-k-below-3": said.get("k") is not None and said["k"] < 3,
        "population-only": said.get("protect") == ["population"] and whole.people is not None,
        "accept-differencing": any(of.get(n) for of in (found, said.get("ledger", {})) for n in _REVEALING),
    }
    return [name for name, is_needed in needed.items() if is_needed]


def _same(said: Any, read: Any, *, is_column: bool) -> bool:
    if isinstance(read, Mapping):
        return (
            isinstance(said, Mapping)
            and set(said) == set(read)
            and all(_same(said[role], read[role], is_column=is_column) for role in read)
        )
    if isinstance(read, list):
        return (
            isinstance(said, list)
            and len(said) == len(read)
            and all(_same(a, b, is_column=is_column) for a, b in zip(said, read, strict=True))
        )
    if isinstance(read, str) and not is_column and ("/" in read or "\\" in read):
        return bool(said == _PATH)
    return type(said) is type(read) and bool(said == read)
