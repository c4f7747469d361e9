"""Static maps for papers: PNG, SVG or PDF, drawn with matplotlib from the published tables.

The same release gives the same bytes: no date is written, and the names inside an SVG do not depend
on chance.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.core.errors import MissingExtraError, ParameterError, did_you_mean, option
from flowveil.published.document import fill
from flowveil.published.exports import centers
from flowveil.published.maps import (
    ENDS,
    floats,
    geometries,
    placed,
    shifted_eastward,
    volume_of,
    zones_of,
)
from flowveil.system.output import check_file, write_files

#: What a picture may show, with its title for those who do not see it.
_TITLES = {
    "origins": "Map of origin zones",
    "destinations": "Map of destination zones",
    "both": "Maps of origin zones and of destination zones",
    "flows": "Map of the largest flows",
}
SHOWS = tuple(_TITLES)
SUFFIXES = (".png", ".svg", ".pdf")

_COLOURS = {
    "origin": ("#deebf8", "#b5d1ee", "#7fb0df", "#4488c9", "#1f5fa8", "#0b3570"),
    "destination": ("#fdeadb", "#fbcfa6", "#f5a667", "#e27a2c", "#b9500b", "#7a2f04"),
}
_LINE = {"origin": "#1f5fbf", "destination": "#c2510c"}
_OUTLINE, _INK, _GREY = "#8795a8", "#17202c", "#566274"
#: Points of the curve of a flow.
_CURVE = 48
#: How many zones are named on a map, letters of a name, and its size in points.
_MOST_NAMES, _LONGEST_NAME, _NAME_SIZE = 12, 30, 6.0


@dataclass(frozen=True)
class Style:
    """How a picture is drawn."""

    # ``origins``, ``destinations``, ``both`` (next to each other, one colour scale) or ``flows``
    show: str = "origins"
    basis: str = "trips"  # ``trips`` or ``weight``
    lines: int = 200  # how many of the largest flows to draw
    width: float | None = None  # of the picture, in inches; 5 for one map and 10 for two by default
    dpi: int = 200  # of a PNG
    title: str | None = None  # text above the map; none by default
    caption: str | None = None  # text below it: the guarantee, and where the data come from
    # West, south, east and north of the map, in degrees; the extent of nearly all trips by default.
    bbox: Sequence[float] | None = None
    zoom: float = 1.0  # factor by which the middle of that extent is enlarged
    over: pa.Table | None = None  # zones of another release, whose outlines are drawn over the map


def draw(flows: pa.Table, zones: pa.Table, path: str | PathLike[str], **style: Any) -> Path:
    """Draws a map of published tables into a ``.png``, ``.svg`` or ``.pdf`` file.

    For ``style`` see `Style`.

    Raises ParameterError for a wrong argument and zones without a place, MissingExtraError without
    matplotlib.
    """
    how, target = Style(**style), Path(path)
    show, basis = how.show, how.basis
    _check_picture(flows, zones, target, show, basis)
    check_file(path)
    matplotlib, figure_of = load_matplotlib()
    zones = shifted_eastward(placed(zones))
    over = None if how.over is None else shifted_eastward(placed(how.over))
    ends = {"both": ENDS, "flows": ("flows",)}.get(show, (show.removesuffix("s"),))
    with matplotlib.rc_context(
        {"svg.hashsalt": "flowveil", "svg.fonttype": "none", "font.size": 8}
    ):
        extent = (
            Extent.of(flows, zones, basis) if how.bbox is None else Extent.given(how.bbox)
        ).nearer(how.zoom)
        figure = figure_of(
            figsize=_size_of(extent, len(ends), how.width), layout="constrained", dpi=how.dpi
        )
        places = figure.subplots(1, len(ends), squeeze=False)[0]
        if show == "flows":
            sentences = [_draw_flows(places[0], flows, zones, basis, how.lines, extent)]
        else:
            sentences = _draw_zones(figure, places, flows, zones, basis, ends)
        for place, end in zip(places, ends, strict=True):
            listed, other = (
                t if t is None or end == "flows" else zones_of(t, end) for t in (zones, over)
            )
            notes = []
            if other is not None:
                place.add_collection(_patches(geometries(other), "none", _INK, 0.9, zorder=5))
                notes.append(
                    f"Dark outlines: {len(other):,} {'zone' if len(other) == 1 else 'zones'} of"
                    " another release."
                )
            volume = np.sum(
                [volume_of(flows, listed, e, basis) for e in (ENDS if end == "flows" else (end,))],
                axis=0,
            )
            sentences += _name_zones(
                place, listed, volume, extent, figure.get_figwidth() / len(ends)
            )
            sentences += _framed(place, extent, extent.outside(listed), notes)
        if how.title:
            figure.suptitle(how.title, parse_math=False)
        if how.caption:
            below = {
                "x": 0.01,
                "ha": "left",
                "fontsize": 6.5,
                "color": _GREY,
                "parse_math": False,
                "wrap": True,
            }
            figure.supxlabel(how.caption, **below)
            sentences.append(how.caption)
        content = rendered(
            figure, target.suffix.lower(), how.title or _TITLES[show], " ".join(sentences)
        )
    write_files({path: lambda file: file.write_bytes(content)})
    return target


def cells_from(flows: pa.Table, zones: pa.Table, place: tuple[float, float]) -> pa.Table:
    """The cells whose origin zone holds a place, given as latitude and longitude.

    Where zones nest, these are cells of several sizes. A large one also has the trips of other
    places in its zone.
    """
    lat, lon = place
    origins = zones_of(zones, "origin")
    inside = shapely.intersects(geometries(origins), shapely.Point(lon, lat))
    if not inside.any():
        raise ParameterError(
            f"No origin zone of this release holds the place {lat:g}, {lon:g} (latitude,"
            " longitude)."
        )
    return flows.filter(
        pc.is_in(flows["origin_zone"], value_set=origins.filter(pa.array(inside))["zone"])
    )


def rendered(figure: Any, suffix: str, title: str, description: str) -> bytes:
    """Returns the content of the file; an SVG has a title and a description for screen readers."""
    from markupsafe import Markup

    metadata = {
        ".png": {"Software": "flowveil"},
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None},
    }
    sink = io.BytesIO()
    figure.savefig(sink, format=suffix[1:], metadata=metadata[suffix])
    if suffix != ".svg":
        return sink.getvalue()
    before, _, rest = sink.getvalue().decode().partition("<svg")
    attributes, _, inside = rest.partition(">")
    drawn = {"before": Markup(before), "attributes": Markup(attributes), "content": Markup(inside)}
    return fill("picture.svg", **drawn, title=title, said=description).encode()


def _check_picture(flows: pa.Table, zones: pa.Table, target: Path, show: str, basis: str) -> None:
    """Raise ParameterError for what cannot be drawn."""
    if show not in SHOWS:
        raise ParameterError(
            f"Cannot show '{show}'; allowed: {', '.join(SHOWS)}." + did_you_mean(show, SHOWS)
        )
    if target.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"A picture is a file {' or '.join(SUFFIXES)}; found '{target.name}'.")
    if basis not in ("trips", "weight") or basis not in flows.column_names:
        raise ParameterError(
            f"The release has no '{basis}' to draw; allowed: trips, or weight where there are"
            " weights."
        )
    if zones["lat"].null_count == len(zones) or zones["geometry"].null_count == len(zones):
        raise ParameterError(
            "The zones of this release have no place on a map, so there is nothing to draw."
        )


def load_matplotlib() -> tuple[Any, Any]:
    """The library and its class of figures."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            "Pictures need matplotlib, which is not installed. Hint: pip install"
            " 'flowveil[pictures]'."
        ) from None
    return matplotlib, Figure


@dataclass(frozen=True)
class Extent:
    """What a picture shows, in degrees.

    A few far zones would make all others tiny: then the picture holds the zones of 97 % of the
    volume in each direction, and says how many lie outside.
    """

    west: float
    south: float
    east: float
    north: float

    @classmethod
    def of(cls, flows: pa.Table, zones: pa.Table, basis: str) -> Extent:
        """The extent of the zones, without far ones where leaving them out makes the map less than
        0.4 of its size.
        """
        bounds = shapely.bounds(geometries(zones))
        whole = cls(*bounds[:, :2].min(axis=0).tolist(), *bounds[:, 2:].max(axis=0).tolist())
        volume = volume_of(flows, zones, "origin", basis) + volume_of(
            flows, zones, "destination", basis
        )

        def reached(edge: NDArray[np.float64]) -> float:
            """The edge that zones with 98.5 % of the volume do not lie beyond."""
            order = np.argsort(edge, kind="stable")
            enough = np.cumsum(volume[order]) >= 0.985 * volume.sum()
            return float(edge[order][int(np.argmax(enough))])

        inner = cls(
            *(sign * reached(sign * bounds[:, axis]) for axis, sign in enumerate((-1, -1, 1, 1)))
        )
        smaller = (inner.east - inner.west) * (inner.north - inner.south)
        return (
            inner
            if smaller < 0.4 * (whole.east - whole.west) * (whole.north - whole.south)
            else whole
        )

    @classmethod
    def given(cls, bbox: Sequence[float]) -> Extent:
        """Returns the extent of a bounding box, or raises ParameterError."""
        if len(bbox) != 4 or not (
            -180 <= bbox[0] < bbox[2] <= 180 and -90 <= bbox[1] < bbox[3] <= 90
        ):
            raise ParameterError(
                "--bbox is west, south, east and north in degrees, west before east, south before"
                " north."
            )
        return cls(*map(float, bbox))

    def nearer(self, zoom: float) -> Extent:
        """Returns the middle of the extent, enlarged by a factor, or raises ParameterError."""
        if not 1 <= zoom <= 1000:
            raise ParameterError(
                f"{option('zoom', flag='--style zoom')} is 1 to 1,000; found {zoom:g}."
            )
        x, y = (self.west + self.east) / 2, (self.south + self.north) / 2
        wide, high = (self.east - self.west) / 2 / zoom, (self.north - self.south) / 2 / zoom
        return Extent(x - wide, y - high, x + wide, y + high)

    @property
    def narrowing(self) -> float:
        """How much shorter a degree of longitude is than one of latitude, in the middle of the
        map.
        """
        return float(np.cos(np.radians((self.south + self.north) / 2)))

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """The extent with a margin: west, south, east, north."""
        margin = 0.03 * max(self.east - self.west, self.north - self.south)
        return self.west - margin, self.south - margin, self.east + margin, self.north + margin

    def outside(self, zones: pa.Table) -> int:
        """How many zones have no part in the picture."""
        return int(
            shapely.disjoint(shapely.envelope(geometries(zones)), shapely.box(*self.frame)).sum()
        )


def _size_of(extent: Extent, n: int, width: float | None) -> tuple[float, float]:
    """Returns width and height, in inches, of ``n`` maps in a row."""
    across = width if width is not None else 5.0 * n
    ratio = (extent.north - extent.south) / max(
        (extent.east - extent.west) * extent.narrowing, 1e-9
    )
    return across, float(np.clip(across / n * ratio, across / n * 0.4, across / n * 1.6)) + 0.5


def class_limits(values: NDArray[np.float64], *, most: int = 6) -> list[float]:
    """Edges of at most that many classes, at 1, 2 or 5 times a power of ten."""
    low, high = float(values.min()), float(values.max())
    steps = [m * 10.0**e for e in range(-6, 16) for m in (1, 2, 5)]
    inside = [s for s in steps if low < s < high]
    if len(inside) > most - 1:
        inside = [
            inside[round((i + 0.5) * len(inside) / (most - 1) - 0.5)] for i in range(most - 1)
        ]
    return [low, *dict.fromkeys(inside), max(high, low * (1 + 1e-9), low + 1e-9)]


def _draw_zones(
    figure: Any, places: Any, flows: pa.Table, zones: pa.Table, basis: str, ends: Any
) -> list[str]:
    """Zones coloured by volume per km², a map for each end, on one scale; returns a description."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    tables = {end: zones_of(zones, end) for end in ends}
    areas = {end: floats(tables[end], "area_km2") for end in ends}
    volumes = {end: volume_of(flows, tables[end], end, basis) / areas[end] for end in ends}
    limits = class_limits(np.concatenate(list(volumes.values())))
    for place, end in zip(places, ends, strict=True):
        steps = (
            np.rint(np.linspace(0, 5, len(limits) - 1)).astype(int)
            if len(limits) > 2
            else np.array([4])
        )
        colours = ListedColormap([_COLOURS[end][i] for i in steps])
        norm = BoundaryNorm(limits, colours.N)
        # Large zones first, below smaller ones.
        order = np.lexsort((np.arange(len(areas[end])), -areas[end]))
        shapes = geometries(tables[end])[order]
        edge = 0.35 if len(shapes) < 3000 else 0.1
        place.add_collection(_patches(shapes, colours(norm(volumes[end][order])), _OUTLINE, edge))
        place.set_title(f"{end.capitalize()}s", loc="left")
        bar = figure.colorbar(
            ScalarMappable(norm=norm, cmap=colours), ax=place, shrink=0.75, pad=0.01
        )
        bar.set_label(f"{basis} per km²")
        # The ends are those of the data, and no round numbers.
        bar.ax.set_yticks(limits, ["", *(_number(limit) for limit in limits[1:-1]), ""])
    return [
        f"{len(tables[end]):,} {end} zones, coloured by {basis} per km²:"
        f" {_number(volumes[end].min())} to {_number(volumes[end].max())}; large zones lie below"
        " small ones."
        for end in ends
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.3g}"


def _patches(shapes: Any, face: Any, edge: str, width: float, **look: Any) -> Any:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Outline

    paths = []
    for shape in shapes:
        rings = [
            shapely.get_coordinates(ring)
            for part in shapely.get_parts(shape)
            for ring in shapely.get_rings(part)
        ]
        codes = [np.r_[1, np.full(len(ring) - 2, 2), 79].astype(np.uint8) for ring in rings]
        paths.append(Outline(np.concatenate(rings), np.concatenate(codes)))
    return PathCollection(paths, facecolors=face, edgecolors=edge, linewidths=width, **look)


def _draw_flows(
    place: Any, flows: pa.Table, zones: pa.Table, basis: str, lines: int, extent: Extent
) -> str:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    place.add_collection(_patches(geometries(zones), "none", "#c4ccd6", 0.25))
    # What lies outside the area has no place, and no line.
    known = zones["zone"].combine_chunks()
    everywhere = len(flows)
    for end in ENDS:
        flows = flows.filter(pc.is_in(flows[f"{end}_zone"], value_set=known))
    ends = centers(flows, zones)
    volume = flows[basis].to_numpy().astype(np.float64)
    apart = np.flatnonzero((ends[0] != ends[1]).any(axis=1))
    chosen = apart[np.lexsort((apart, -volume[apart]))[:lines]][::-1]
    if len(chosen) == 0:
        return "No flow goes from one zone to another."
    chosen, (start, stop) = _shorter_ways(chosen, ends)
    stretch = [extent.narrowing, 1]
    points = _curves(start * stretch, stop * stretch) / stretch
    share = volume[chosen] / volume[chosen].max()
    colours = LinearSegmentedColormap.from_list("way", [_LINE["origin"], _LINE["destination"]])
    pieces = np.stack((points[:, :-1], points[:, 1:]), axis=2).reshape(-1, 2, 2)
    rgb = colours(np.tile(np.linspace(0, 1, _CURVE - 1), len(chosen)))[:, :3]
    # Mixed with the paper instead of transparent: where the pieces of a transparent line overlap or
    # leave a gap, a wide line has stripes.
    ink = np.repeat(0.25 + 0.65 * np.sqrt(share), _CURVE - 1)[:, None]
    widths = np.repeat(_line_width(share), _CURVE - 1)
    place.add_collection(
        LineCollection(
            list(pieces), colors=1 - ink * (1 - rgb), linewidths=widths, capstyle="round"
        )
    )
    place.set_title(f"The {len(chosen):,} largest flows, from blue to orange", loc="left")
    _width_legend(place, volume[chosen], basis)
    return (
        f"The {len(chosen):,} largest of {everywhere:,} flows as curves from their origin, blue, to"
        f" their destination, orange: {_number(volume[chosen].min())} to"
        f" {_number(volume[chosen].max())} {basis}; wider curves carry more."
    )


def _shorter_ways(
    chosen: NDArray[np.int64], ends: Sequence[Any]
) -> tuple[NDArray[np.int64], list[Any]]:
    """The ends of chosen flows.

    Those whose shorter way leaves a map of the world are drawn on both of its sides.
    """
    start, stop = (end[chosen].astype(np.float64) for end in ends)
    turn = np.zeros_like(start)
    turn[:, 0] = np.where(
        np.abs(stop[:, 0] - start[:, 0]) > 180, np.sign(start[:, 0] - stop[:, 0]) * 360, 0
    )
    again = np.flatnonzero(turn[:, 0])
    starts = np.concatenate((start, start[again] - turn[again]))
    return np.concatenate((chosen, chosen[again])), [
        starts,
        np.concatenate((stop + turn, stop[again])),
    ]


def _width_legend(place: Any, volume: NDArray[np.float64], basis: str) -> None:
    """Lines as wide as flows of a few round volumes.

    Of the smallest and the largest where none lies between.
    """
    from matplotlib.lines import Line2D

    low, *between, high = class_limits(volume, most=4)
    shown = between if len(between) > 1 else dict.fromkeys((low, high))
    lines = [
        Line2D([], [], color=_GREY, linewidth=_line_width(v / volume.max()), label=_number(v))
        for v in shown
    ]
    place.legend(
        handles=lines, title=basis, loc="upper right", frameon=True, framealpha=0.85, fontsize=7
    )


def _line_width(share: Any) -> Any:
    return 0.3 + 3.2 * share**0.8


def _curves(start: NDArray[np.float64], stop: NDArray[np.float64]) -> NDArray[np.float64]:
    """Curves bent to the right of the way, so that there and back are two lines.

    Flows × points × 2.
    """
    way = stop - start
    bend = (start + stop) / 2 + 0.18 * np.column_stack((way[:, 1], -way[:, 0]))
    t = np.linspace(0, 1, _CURVE)[None, :, None]
    return np.asarray(
        (1 - t) ** 2 * start[:, None] + 2 * t * (1 - t) * bend[:, None] + t**2 * stop[:, None]
    )


def _name_zones(
    place: Any, zones: pa.Table, volume: NDArray[np.float64], extent: Extent, inches: float
) -> list[str]:
    """Writes names of the largest zones on a map so many inches wide, without overlaps.

    Returns a description.
    """
    import matplotlib.patheffects as effects

    known = zones["name"].to_pylist() if "name" in zones.column_names else [None] * len(zones)
    middle = shapely.get_coordinates(shapely.point_on_surface(geometries(zones)))
    # Degrees that a line of type is high, and that half a letter is wide.
    across = _NAME_SIZE * (extent.east - extent.west) / (inches * 72 * 0.8)
    high, half_letter = 1.5 * across * extent.narrowing, 0.28 * across
    frame = shapely.box(extent.west, extent.south, extent.east, extent.north)
    taken: dict[str, shapely.Polygon] = {}
    for row in np.argsort(-volume, kind="stable").tolist():
        if len(taken) == _MOST_NAMES or not known[row] or volume[row] <= 0:
            continue
        (x, y), text = middle[row].tolist(), known[row]
        text = text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1].rstrip() + "…"
        half = len(text) * half_letter
        box = shapely.box(x - half, y - high / 2, x + half, y + high / 2)
        if frame.covers(box) and not shapely.intersects(list(taken.values()), box).any():
            taken[known[row]] = box
            halo = [effects.withStroke(linewidth=1.6, foreground="white")]
            look = {
                "ha": "center",
                "va": "center",
                "fontsize": _NAME_SIZE,
                "color": _INK,
                "zorder": 7,
            }
            place.text(x, y, text, parse_math=False, path_effects=halo, **look)
    return [f"Named on the map: {'; '.join(taken)}."] if taken else []


def _framed(place: Any, extent: Extent, outside: int, notes: Sequence[str]) -> list[str]:
    """Draws limits, north and a scale bar of a map, and notes below it; returns the notes."""
    west, south, east, north = extent.frame
    place.set(
        xlim=(west, east), ylim=(south, north), aspect=1 / extent.narrowing, xticks=[], yticks=[]
    )
    for side in place.spines.values():
        side.set_color("#d6dce4")
    _scale_bar(place, extent)
    arrow = {"arrowstyle": "-|>", "color": _INK, "linewidth": 0.8}
    place.annotate(
        "N",
        (0.03, 0.985),
        (0.03, 0.91),
        xycoords="axes fraction",
        ha="center",
        fontsize=7,
        arrowprops=arrow,
        zorder=6,
    )
    away = (
        [f"{outside:,} {'zone lies' if outside == 1 else 'zones lie'} outside this map."]
        if outside
        else []
    )
    below = [*notes, *away]
    place.set_xlabel("\n".join(below), loc="left", fontsize=7, color=_GREY)
    return below


def _scale_bar(place: Any, extent: Extent) -> None:
    west, south, km = extent.west, extent.south, extent.narrowing * 111.32
    raw = (extent.east - west) * km / 4
    power = 10.0 ** np.floor(np.log10(raw))
    length = max(m * power for m in (1, 2, 5) if m * power <= raw)
    east = west + length / km
    place.plot([west, east], [south, south], color=_INK, linewidth=1.2)
    name = f"{length:g} km" if length >= 1 else f"{length * 1000:g} m"
    place.annotate(
        name,
        ((west + east) / 2, south),
        (0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=7,
    )
