"""``flowveil picture``: a map of a release for a paper."""

from __future__ import annotations

from typing import Any

import click

from flowveil.cli.by_method import bbox_of
from flowveil.cli.from_request import PLACE
from flowveil.cli.output import Output, with_output
from flowveil.errors import ParameterError


@click.command()
@click.argument("directory", type=PLACE, metavar="DIR")
@click.option("--out", type=PLACE, required=True, metavar="FILE", help="The picture: .png, .svg or .pdf.")
@click.option("--show", default="origins", show_default=True, help="origins, destinations, both or flows.")
@click.option("--place", metavar="LAT,LON", help="Only the cells whose origin zone holds this place.")
@click.option(
    "--style",
    multiple=True,
    metavar="NAME=VALUE",
    help="basis=trips|weight, lines=200 (largest flows), width (inches), dpi=200, zoom=1 (repeatable).",
)
@click.option("--title", help="Text above the map [default: the title of the release].")
@click.option("--bbox", metavar="W,S,E,N", help="What to show, in degrees [default: what holds nearly all trips].")
@click.option("--over", type=PLACE, metavar="DIR", help="Another release, whose zones are outlined over the map.")
@with_output
def picture(output: Output, directory: str, out: str, **style: Any) -> None:
    """Draw a map of the release in DIR for a paper; the published files are all it needs."""
    from flowveil.api import picture as draw

    place, bbox = style.pop("place"), style.pop("bbox")
    style |= _parsed(style.pop("style"))
    style["bbox"] = None if bbox is None else bbox_of(bbox)
    path = draw(directory, out, place=None if place is None else _degrees(place), **style)
    output.result({"picture": str(path)})
    output.say(f"Picture: {path}")


def _parsed(texts: tuple[str, ...]) -> dict[str, Any]:
    """The style from NAME=VALUE."""
    kinds: dict[str, Any] = {"basis": str, "lines": int, "width": float, "dpi": int, "zoom": float}
    found: dict[str, Any] = {"lines": 200, "dpi": 200}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise ParameterError(
                f"--style is one of {', '.join(kinds)} with a value, like dpi=300; found '{text}'."
            ) from None
    return found


def _degrees(text: str) -> tuple[float, float]:
    try:
        lat, lon = (float(part) for part in text.split(","))
    except ValueError:
        raise ParameterError(f"--place must be a latitude and a longitude, comma-separated; found '{text}'.") from None
    return lat, lon
