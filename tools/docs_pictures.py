"""The pictures of README, landing page and recipes: `python tools/docs_pictures.py [FOLDER OF PUBLIC DATA]`.

Those of synthetic people are made anywhere. Those of public data need the folder and are not changed without
it; they show published zones only.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import flowveil
from flowveil.reading.sources.synthetic import synthetic_survey

DOCS = Path(__file__).resolve().parents[1] / "docs"
CENTRE = (2.1, 48.72, 2.6, 49.0)


@cache
def drawn_in() -> Any:
    """Returns a Chromium; it ends with the script."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    return (
        sync_playwright()
        .start()
        .chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
    )


def page_picture(
    folder: Path, place: Path, *, size: tuple[int, int], keys: Sequence[str] = ()
) -> None:
    """Saves the map of a release's page as a reader does: moves it with keys, and presses the button PNG."""
    page = drawn_in().new_page(viewport={"width": size[0], "height": size[1]})
    page.goto((folder / "report.html").as_uri())
    page.wait_for_selector("html[data-ready=true]")
    page.locator(".stage > canvas").focus()
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_timeout(200)
    with page.expect_download() as download:
        page.get_by_role("button", name="PNG", exact=True).click()
    download.value.save_as(place)
    page.close()


def shrink(picture: Path) -> None:
    """Stores a picture with 96 colours, which no reader sees and which makes it less than half as large."""
    from PIL import Image

    Image.open(picture).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(
        picture, optimize=True
    )


def map_and_before_after(folder: Path, *, people: int = 20_000) -> None:
    """The map of a finished release (map.png), and the same trips before and after (before-after.png).

    The trips are those of a synthetic survey of the region of Paris. No person took part in it, so the picture of its
    tiles discloses no one.
    """
    import matplotlib.image as images
    import matplotlib.pyplot as plt

    flows = flowveil.read_trips(synthetic_survey(people=people), resolution=8)
    source = "synthetic survey, invented people"
    raw = flowveil.anonymize(flows, "suppression", k=1, protect="trips", allow_small_k=True)
    release = flowveil.anonymize(flows, k=10)
    with tempfile.TemporaryDirectory() as drafts:
        pictures = []
        titles = {
            "Before: every trip by tile": raw,
            "After: at least 10 people behind every number": release,
        }
        for number, (title, what) in enumerate(titles.items()):
            out = what.write(Path(drafts) / f"release-{number}", title=title, source=source)
            pictures.append(Path(drafts) / f"{number}.png")
            page_picture(out, pictures[-1], size=(720, 860), keys=["ArrowUp"] * 2 + ["+"] * 2)
        out = release.write(Path(drafts) / "map", source=source)
        page_picture(out, folder / "map.png", size=(1100, 768))
        drawn = [images.imread(picture) for picture in pictures]
        height, width = drawn[0].shape[:2]
        figure, axes = plt.subplots(1, 2, figsize=(14, 7 * height / width))
        for axis, picture in zip(axes, drawn, strict=True):
            axis.imshow(picture)
            axis.axis("off")
        figure.subplots_adjust(0, 0, 1, 1, wspace=0.02)
        figure.savefig(folder / "before-after.png", dpi=100, metadata={"Software": None})
    for name in ("map.png", "before-after.png"):
        shrink(folder / name)


def survey(place: Path) -> None:
    """The zones that are published of a synthetic survey."""
    flows = flowveil.read_trips(synthetic_survey(people=4000), resolution=8, weight="weight")
    flowveil.picture(flowveil.anonymize(flows, k=10), place, show="origins", bbox=CENTRE)


#: Options of methods whose defaults are not suited for the picture.
OPTIONS: dict[str, dict[str, object]] = {
    "oigh": {"max_suppressed": 0.3},
    "suppression": {"max_suppressed": 0.9},
    "laplace": {"epsilon": 2, "bound": 5, "level": 6, "region": "841fb47ffffffff"},
    "topdown": {"epsilon": 2, "bound": 5, "level": 7, "region": "841fb47ffffffff"},
    "privtree": {"epsilon": 2, "bound": 5, "level": 8, "region": "841fb47ffffffff"},
    "posterior": {"epsilon": 2, "bound": 5, "districts": 7, "region": "841fb47ffffffff"},
}


def methods(folder: Path) -> None:
    """What each method publishes of the same synthetic survey: the zones in which trips begin."""
    flows = flowveil.read_trips(synthetic_survey(people=4000), resolution=8)
    for name in flowveil.METHODS:
        options = OPTIONS.get(name, {})
        promise = {} if "epsilon" in options else {"k": 10}
        release = flowveil.anonymize(flows, name, **promise, **options)
        flowveil.picture(
            release,
            folder / f"{name}.png",
            show="origins",
            bbox=CENTRE,
            title=name,
            width=6,
            dpi=72,
        )


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
            {
                "o": codes[origin],
                "d": codes[destination],
                "person_id": rng.integers(0, 12_000, 30_000).astype(str),
            }
        )
        zones = flowveil.read_zones(path, tile="site_id")
        flows = flowveil.read_trips(
            trips, zones=zones, origin_tile="o", destination_tile="d", same_zones=True
        )
        flowveil.picture(flowveil.anonymize(flows, k=10), place, show="origins")


def bikes(place: Path, data: Path) -> None:
    """The largest flows between zones of Jersey City."""
    trips = data / "citibike_jc" / "trips.parquet"
    flows = flowveil.read_trips(trips, resolution=9, max_dropped=0.2)
    release = flowveil.anonymize(flows, k=10, max_suppressed=0.1)
    flowveil.picture(release, place, show="flows", title="Bike rides, Jersey City")


if __name__ == "__main__":
    map_and_before_after(DOCS / "pictures")
    survey(DOCS / "recipes" / "survey.png")
    methods(DOCS / "methods" / "pictures")
    antennas(DOCS / "recipes" / "base-stations.png")
    if len(sys.argv) > 1:
        bikes(DOCS / "recipes" / "bike-share.png", Path(sys.argv[1]))
