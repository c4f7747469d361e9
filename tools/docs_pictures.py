"""The pictures of the landing page and the recipes: `python tools/docs_pictures.py [FOLDER OF PUBLIC DATA]`.

Those of synthetic people are made anywhere. Those of public data need the folder and are left as they are without
it; they show published zones only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import flowveil
from flowveil.sources.synthetic import synthetic_survey

DOCS = Path(__file__).resolve().parents[1] / "docs"
CENTRE = (2.1, 48.72, 2.6, 49.0)


def before_and_after(place: Path) -> None:
    """Tiles of a synthetic survey, and the zones that are published of it, side by side."""
    import matplotlib.image as images
    import matplotlib.pyplot as plt

    flows = flowveil.read_trips(synthetic_survey(people=4000), resolution=8, weight="weight")
    # Nobody took part in this survey, so its tiles may be shown as they are.
    raw = flowveil.anonymize(flows, "suppression", k=1, protect="trips", allow_small_k=True)
    release = flowveil.anonymize(flows, k=10)
    with tempfile.TemporaryDirectory() as folder:
        for name, what, title in (
            ("a", raw, "Before: tiles"),
            ("b", release, "After: at least 10 people in every cell"),
        ):
            flowveil.picture(what, Path(folder) / f"{name}.png", show="origins", bbox=CENTRE, title=title, caption="")
        figure, axes = plt.subplots(1, 2, figsize=(12, 6))
        for axis, name in zip(axes, "ab", strict=True):
            axis.imshow(images.imread(Path(folder) / f"{name}.png"))
            axis.axis("off")
        figure.subplots_adjust(0, 0, 1, 1, wspace=0.02)
        figure.savefig(place, dpi=100, metadata={"Software": None})
    flowveil.picture(release, DOCS / "recipes" / "survey.png", show="origins", bbox=CENTRE)


#: How each method is asked for its picture, where the defaults do not do.
OPTIONS: dict[str, dict[str, object]] = {
    "oigh": {"max_suppressed": 0.3},
    "suppression": {"max_suppressed": 0.9},
    "laplace": {"epsilon": 2, "bound": 5, "level": 6, "region": "841fb47ffffffff"},
    "topdown": {"epsilon": 2, "bound": 5, "level": 7, "region": "841fb47ffffffff"},
    "privtree": {"epsilon": 2, "bound": 5, "level": 8, "region": "841fb47ffffffff"},
}


def methods(folder: Path) -> None:
    """What each method publishes of the same synthetic survey: the zones in which trips begin."""
    flows = flowveil.read_trips(synthetic_survey(people=4000), resolution=8)
    for name in flowveil.METHODS:
        options = OPTIONS.get(name, {})
        promise = {} if "epsilon" in options else {"k": 10}
        release = flowveil.anonymize(flows, name, **promise, **options)
        flowveil.picture(release, folder / f"{name}.png", show="origins", bbox=CENTRE, title=name, width=6, dpi=72)


def antennas(place: Path) -> None:
    """Zones made of 300 invented antennas."""
    rng = np.random.default_rng(0)
    sites = rng.normal((48.86, 2.35), (0.06, 0.1), size=(300, 2))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sites.csv"
        lines = [f"S{i:03d},{lat:.5f},{lon:.5f}" for i, (lat, lon) in enumerate(sites)]
        path.write_text("site_id,lat,lon\n" + "\n".join(lines) + "\n", encoding="utf-8")
        near = 1 / (1 + ((sites - (48.86, 2.35)) ** 2).sum(1) * 900)
        origin, destination = (rng.choice(300, 30_000, p=near / near.sum()) for _ in range(2))
        codes = np.array([f"S{i:03d}" for i in range(300)])
        trips = pa.table(
            {"o": codes[origin], "d": codes[destination], "person_id": rng.integers(0, 12_000, 30_000).astype(str)}
        )
        zones = flowveil.read_zones(path, tile="site_id")
        flows = flowveil.read_trips(trips, zones=zones, origin_tile="o", destination_tile="d", same_zones=True)
        flowveil.picture(flowveil.anonymize(flows, k=10), place, show="origins")


def bikes(place: Path, data: Path) -> None:
    """The largest flows between zones of Jersey City."""
    trips = data / "citibike_jc" / "trips.parquet"
    flows = flowveil.read_trips(trips, resolution=9, max_dropped=0.2)
    release = flowveil.anonymize(flows, k=10, max_suppressed=0.1)
    flowveil.picture(release, place, show="flows", title="Bike rides, Jersey City")


if __name__ == "__main__":
    before_and_after(DOCS / "pictures" / "before-after.png")
    methods(DOCS / "methods" / "pictures")
    antennas(DOCS / "recipes" / "base-stations.png")
    if len(sys.argv) > 1:
        bikes(DOCS / "recipes" / "bike-share.png", Path(sys.argv[1]))
