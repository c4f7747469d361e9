"""The reference page of all settings, in Markdown, generated from `flowveil.request.request`.

``python tools/options_page.py > docs/reference/options.md`` writes it; a test compares the two.
"""

from __future__ import annotations

from flowveil.request.request import SECTIONS, Derive
from flowveil.request.settings import Setting, section_settings

_TIERS = {"common": "`--help`", "all": "`--help-all`", "recipe": "this page"}
_START = """# All settings

For everyone who runs flowveil. One name serves everywhere: `max_suppressed` is the keyword argument in Python,
`--max-suppressed` on the command line, `protection.max_suppressed` for `--set`, and the key `max_suppressed` in the
section `[protection]` of a recipe. Rarely used settings have no option: `--set` and recipes take them. Generated from
`flowveil.request.request`; do not edit.
"""


def options_page() -> str:
    """Returns the page: a table for each section."""
    parts = [_START]
    for name, section in (*SECTIONS.items(), (Derive.key, Derive)):
        rows = [_row(one) for one in section_settings(section)]
        about = " ".join((section.__doc__ or "").split())
        where = f" Section `[{name}]`." if name in SECTIONS else ""
        parts.append(
            f"## {section.heading}\n\n{about}{where}\n\n| setting | meaning | allowed | default |"
            " example | shown in |\n|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return "\n".join(parts)


def _row(one: Setting) -> str:
    option = f"--set {one.path}=" if one.tier == "recipe" else one.flag
    cells = (
        f"`{one.name}`<br>`{option}`",
        one.meaning,
        _allowed(one),
        _default(one),
        _example(one),
        _TIERS[one.tier],
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _allowed(one: Setting) -> str:
    if one.allowed:
        return ", ".join(f"`{choice}`" for choice in one.choices)
    bounds = [
        *([f"from {one.low:g}"] if one.low is not None else []),
        *([f"to {one.high:g}"] if one.high else []),
    ]
    words = {
        "whole": "whole number",
        "number": "number",
        "flag": "true or false",
        "list": "list",
        "pairs": "names",
    }
    return " ".join([words.get(one.kind, "a path" if one.form == "path" else "text"), *bounds])


def _default(one: Setting) -> str:
    if one.kind == "flag":
        return "false"
    return (
        ""
        if one.default is None
        else one.default
        if isinstance(one.default, str)
        else f"`{one.default}`"
    )


def _example(one: Setting) -> str:
    return f"`{one.example}`" if one.example else ""


if __name__ == "__main__":
    print(options_page(), end="")
