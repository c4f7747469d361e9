"""Pictures of a nested release for PairCut's page.

All zones, the cells of one place, and the common zoning.

    python -m benchmarks.paircut_pictures DIR

Made with ``flowveil anonymize``, ``picture`` and ``reconstruct`` from the synthetic survey, which
has no real person.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import h3
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

import flowveil
from benchmarks.choosing_pictures import run
from flowveil.published.pictures import draw
from flowveil.reading.sources.synthetic import synthetic_survey
from flowveil.release.folder import zones_in

#: A place in Paris, and the resolution that cells are spread over.
PLACE = "48.853,2.349"
COMMON = 7
STYLE = {"width": 3.4, "dpi": 110}


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        survey, out = str(Path(scratch) / "survey.parquet"), str(Path(scratch) / "release")
        pq.write_table(synthetic_survey(people=4000), survey)
        run(
            "anonymize",
            survey,
            "--method",
            "paircut",
            "--resolution",
            "8",
            "--protect",
            "trips",
            "--out",
            out,
        )
        style = [word for name, value in STYLE.items() for word in (f"--{name}", str(value))]
        run(
            "picture",
            out,
            "--out",
            str(target / "paircut-origins.png"),
            "--title",
            "all origin zones",
            *style,
        )
        for show, title in (
            ("origins", "origin zones of a place"),
            ("destinations", "destinations from there"),
        ):
            picture = str(target / f"paircut-place-{show}.png")
            run(
                "picture",
                out,
                "--out",
                picture,
                "--show",
                show,
                "--place",
                PLACE,
                "--title",
                title,
                *style,
            )
        spread = flowveil.reconstruct(out, COMMON)
        spread = spread.rename_columns({"origin": "origin_zone", "destination": "destination_zone"})
        # A cell of far places is spread over thousands of tiles: less than a trip in each would
        # hide all else.
        emitted = spread.group_by("origin_zone").aggregate([("trips", "sum")])
        seen = emitted.filter(pc.greater_equal(emitted["trips_sum"], 1))["origin_zone"]
        spread = spread.filter(pc.is_in(spread["origin_zone"], value_set=seen.combine_chunks()))
        draw(
            spread,
            zones_in(spread, cells_of(spread)),
            target / "paircut-reconstructed.png",
            title="reconstructed",
            **STYLE,
        )


def cells_of(flows: pa.Table) -> pa.Table:
    """The H3 cells of a reconstruction, as a table of zones."""
    codes = sorted(
        set(flows["origin_zone"].to_pylist()) | set(flows["destination_zone"].to_pylist())
    )
    shapes = [
        shapely.Polygon([(lon, lat) for lat, lon in h3.cell_to_boundary(code)]) for code in codes
    ]
    lat, lon = zip(*(h3.cell_to_latlng(code) for code in codes), strict=True)
    return pa.table(
        {
            "zone": codes,
            "role": ["both"] * len(codes),
            "area_km2": [h3.cell_area(code, unit="km^2") for code in codes],
            "lat": lat,
            "lon": lon,
            "geometry": shapely.to_wkb(shapes),
        }
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
