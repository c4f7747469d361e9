"""Two releases of the same data beside each other: measures and maps.

For data that nobody is behind, as the synthetic survey of the demo: of real data, two releases can be subtracted from
each other, so a page for readers shows one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from flowveil.report.document import Part, map_figure, number, text
from flowveil.report.maps import ENDS, Frame, encode_shapes
from flowveil.report.summary import summarize

if TYPE_CHECKING:
    from flowveil.release.release import Release

_ROWS = (
    ("n_cells", "Published cells"),
    ("n_origin_zones", "Origin zones"),
    ("n_destination_zones", "Destination zones"),
    ("mean_generalization_error", "Mean generalisation error (tiles)"),
    ("floor_generalization_error", "Floor of that error"),
    ("floor_ratio", "Error over its floor"),
    ("generalization_distance_m", "Mean distance moved (m)"),
    ("reconstruction_loss", "Reconstruction loss"),
    ("suppressed_share", "Suppressed share"),
)


def beside_part(report: Mapping[str, Any], other: Release, data: dict[str, Any]) -> Part:
    """The other release beside this one; adds its zones to the data of the maps.

    Args:
        report: of the release that is published.
        other: the release to show beside it.
        data: of the page's maps; layers and shapes are added.
    """
    others = summarize(other)
    heads = "".join(f'<th scope="col" class="number">{text(r["method"])}</th>' for r in (report, others))
    body = "\n".join(
        f'<tr><th scope="row">{text(name)}</th>'
        + "".join(f'<td class="number">{_value(r["measures"]["trips"], key)}</td>' for r in (report, others))
        + "</tr>"
        for key, name in _ROWS
    )
    content = [
        f"<p>What {text(others['method'])} makes of the same trips with the same guarantee and the same limit on "
        "suppression. The survey is made up; of real data, publish one release and not two, because two can be "
        "subtracted from each other.</p>",
        f'<div class="scroll"><table><thead><tr><th scope="col">Measure</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>",
    ]
    if data.get("frame") is not None:
        content += _maps(report, others, other, data)
    return Part("beside", f"{report['method']} and {others['method']} beside each other", "\n".join(content))


def _value(measures: Mapping[str, Any], key: str) -> str:
    value = measures.get(key)
    return f"{value:.2%}" if key == "suppressed_share" and value is not None else number(value)


def _maps(report: Mapping[str, Any], others: Mapping[str, Any], other: Release, data: dict[str, Any]) -> list[str]:
    frame = Frame(data["frame"]["west"], data["frame"]["north"], data["frame"]["perUnit"])
    data["layers"], data["shapes"] = dict(data["layers"]), list(data["shapes"])
    content = []
    for end in ENDS:
        look = {
            "title": "Trips per km²",
            "label": f"{end}s",
            "word": "trips per km²",
            "hue": end,
            "scale": f"beside_{end}",
            "fixed": True,
        }
        mine = data["layers"][end]
        data["layers"][f"{end}_mine"] = {
            **{key: mine[key] for key in ("code", "level", "tiles", "area", "lat", "lon", "x", "y", "shape")},
            "values": [v / a if a else 0 for v, a in zip(mine["trips"], mine["area"], strict=True)],
            **look,
        }
        data["layers"][f"{end}_other"] = {**_layer(other, end, frame, data["shapes"]), **look}
        content += [
            f"<h3>{end.capitalize()}s</h3>",
            '<div class="maps">',
            map_figure(f"{end}_mine", report["method"], f"{number(len(mine['code']))} zones", hue=end),
            map_figure(
                f"{end}_other",
                others["method"],
                f"{number(len(data['layers'][f'{end}_other']['code']))} zones",
                hue=end,
            ),
            f'</div><div class="legend" data-scale="beside_{end}"></div>',
        ]
    return content


def _layer(release: Release, end: str, frame: Frame, shapes: list[Any]) -> dict[str, Any]:
    zones = release.zones.filter(pc.is_in(release.zones["role"], value_set=pa.array([end, "both"])))
    at = pc.index_in(release.flows[f"{end}_zone"], value_set=zones["zone"].combine_chunks()).to_numpy()
    trips = np.bincount(at, weights=release.flows["trips"].to_numpy().astype(np.float64), minlength=len(zones))
    area = zones["area_km2"].to_numpy(zero_copy_only=False).astype(np.float64)
    # Large zones first: small ones are drawn on top.
    order = np.lexsort((np.arange(len(zones)), -np.nan_to_num(area)))
    table, area, trips = zones.take(pa.array(order)), area[order], trips[order]
    outlines = np.asarray(shapely.from_wkb(table["geometry"].to_numpy(zero_copy_only=False)), dtype=object)
    has_shape = ~(shapely.is_missing(outlines) | shapely.is_empty(outlines))
    shape = np.full(len(table), -1, dtype=np.int64)
    shape[has_shape] = len(shapes) + np.arange(int(has_shape.sum()))
    shapes += encode_shapes(outlines[has_shape], frame)
    lat, lon = (table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("lat", "lon"))
    units = np.rint(frame.units(np.column_stack((lon, lat)))).astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.nan_to_num(trips / area, posinf=0.0)
    return {
        "code": table["zone"].to_pylist(),
        "level": table["level"].to_pylist(),
        "tiles": table["tiles"].to_pylist(),
        "area": [float(f"{a:.4g}") for a in area.tolist()],
        "lat": np.round(lat, 5).tolist(),
        "lon": np.round(lon, 5).tolist(),
        "x": units[:, 0].tolist(),
        "y": units[:, 1].tolist(),
        "shape": shape.tolist(),
        "values": [float(f"{v:.6g}") for v in density.tolist()],
    }
