"""A folder with small files under the names that the documents use, so that their commands run as
they stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

SIDE = 8
SOUTH, WEST, STEP_LAT, STEP_LON = 48.77, 2.23, 0.02, 0.03


def city_trips(
    n: int = 1200, *, seed: int = 0, months: tuple[str, ...] = ("2024-01", "2024-02")
) -> pa.Table:
    """Trips of a survey: coordinates, zones, persons, weights, attributes and times, in no
    order."""
    rng = np.random.default_rng(seed)
    # The same city in every month; places close together, so that a small file has cells to
    # publish.
    spots = np.random.default_rng(0).normal((48.85, 2.35), (0.012, 0.02), size=(4, 2))
    ends = [
        np.clip(
            spots[rng.integers(0, len(spots), n)] + rng.normal(0, 0.0002, (n, 2)),
            (48.78, 2.24),
            (48.92, 2.46),
        )
        for _ in range(2)
    ]
    person = rng.integers(0, n // 3, n)
    # More in the second month, so that the zones of the first do for it.
    month = np.minimum(person % 3, len(months) - 1)
    days = np.array(
        [f"{months[i]}-{d:02d}" for i, d in zip(month, 1 + rng.integers(0, 3, n), strict=True)]
    )
    clock = zip(rng.choice([8, 18], n), rng.integers(0, 60, n), strict=True)
    hours = np.array([f"{h:02d}:{m:02d}:00" for h, m in clock])
    times = pa.array(np.char.add(np.char.add(days, "T"), hours).astype("datetime64[s]"))
    return pa.table(
        {
            "start_lat": ends[0][:, 0].round(6),
            "start_lon": ends[0][:, 1].round(6),
            "end_lat": ends[1][:, 0].round(6),
            "end_lon": ends[1][:, 1].round(6),
            "person_id": [f"P{p:05d}" for p in person],
            "weight": (100 + 50 * np.sin(person)).round(2),
            "sex": np.where(person % 2, "woman", "man"),
            "age": np.array(["16-29", "30-64", "65 and over"])[person % 3],
            "profession": np.array(["employed", "student", "retired"])[person % 3],
            "start_time": times,
            "trip_id": np.arange(len(times)),
            "home_iris": zone_codes(ends[0]),
            "work_iris": zone_codes(ends[1]),
        }
    )


def zone_codes(points: np.ndarray) -> list[str]:
    """The zone of each point on the map of squares.

    Region, département, commune and zone are its first signs.
    """
    row = ((points[:, 0] - SOUTH) // STEP_LAT).astype(int)
    column = ((points[:, 1] - WEST) // STEP_LON).astype(int)
    return [zone_code(r, c) for r, c in zip(row, column, strict=True)]


def zone_code(row: int, column: int) -> str:
    return f"1{row // 4}{column // 4}{row // 2 % 2}{column // 2 % 2}{row % 2}{column % 2}"


def map_of_squares() -> dict:
    """A GeoJSON map with nested codes."""
    features = []
    for r in range(SIDE):
        for c in range(SIDE):
            code = zone_code(r, c)
            south, west = SOUTH + r * STEP_LAT, WEST + c * STEP_LON
            north, east = south + STEP_LAT, west + STEP_LON
            ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
            names = {"region": code[:1], "departement": code[:3], "commune": code[:5], "iris": code}
            features.append(
                {
                    "type": "Feature",
                    "properties": names | {"county": code[:3], "tract": code, "taz": code},
                    "geometry": {"type": "Polygon", "coordinates": [ring]},
                }
            )
    return {"type": "FeatureCollection", "features": features}


def build(folder: Path) -> None:
    """Writes every file."""
    trips = city_trips()
    no_zones = trips.drop_columns(["home_iris", "work_iris"])
    csv.write_csv(no_zones, folder / "trips.csv")
    csv.write_csv(no_zones, folder / "survey.csv")
    rng = np.random.default_rng(4)
    measured: dict[str, Any] = {
        name: rng.gamma(2, mean / 2, len(no_zones)).round(1)
        for name, mean in (("minutes", 20), ("km", 6))
    }
    measured["purpose"] = rng.choice(["work", "study", "shop"], len(no_zones))
    (folder / "purposes.csv").write_text(
        "value,parent\nwork,work or study\nstudy,work or study\nshop,\n"
    )
    (folder / "ages.csv").write_text("class,age\nadult,16-29\nadult,30-64\nold,65 and over\n")
    pq.write_table(
        pa.table({**dict(zip(no_zones.column_names, no_zones.columns, strict=True)), **measured}),
        folder / "trips.parquet",
    )
    (folder / "trips").mkdir()
    pq.write_table(no_zones, folder / "trips" / "part-0.parquet")
    rides = no_zones.drop_columns(["person_id", "weight", "sex", "age", "profession"])
    csv.write_csv(
        rides.rename_columns(
            ["started_at" if n == "start_time" else n for n in rides.column_names]
        ),
        folder / "rides.csv",
    )
    # More trips in February, enough for the zones of January.
    for name, n, months in (("january", 1200, ("2024-01",)), ("february", 1800, ("2024-02",))):
        month = city_trips(n, seed=n, months=months).drop_columns(["home_iris", "work_iris"])
        csv.write_csv(month, folder / f"{name}.csv")
        pq.write_table(month, folder / f"{name}.parquet")
    more = pa.concat_tables(
        [city_trips(seed=1200, months=("2024-01",)), city_trips(300, seed=3, months=("2024-01",))]
    )
    csv.write_csv(more.drop_columns(["home_iris", "work_iris"]), folder / "january-corrected.csv")
    csv.write_csv(trips.select(["home_iris", "work_iris", "person_id"]), folder / "commuters.csv")
    (folder / "iris.geojson").write_text(json.dumps(map_of_squares()), encoding="utf-8")
    (folder / "clinics.csv").write_text("lat,lon,k\n48.85,2.35,12\n", encoding="utf-8")
    places = np.random.default_rng(7).normal((48.85, 2.35), (0.02, 0.03), size=(600, 2)).round(5)
    csv.write_csv(pa.table({"lat": places[:, 0], "lon": places[:, 1]}), folder / "places.csv")
    _matrices(trips, folder)
    _months(no_zones, folder)
    _calls(folder)
    _records(folder)


def _matrices(trips: pa.Table, folder: Path) -> None:
    import geopandas
    import h5py

    squares = geopandas.GeoDataFrame.from_features(map_of_squares(), crs="EPSG:4326")
    squares.to_file(folder / "taz.gpkg")
    squares.to_file(folder / "census_tracts.gpkg")
    squares.dissolve().to_file(folder / "city.gpkg")
    codes = sorted(set(squares["taz"]))
    number = {code: i for i, code in enumerate(codes)}
    matrix = np.zeros((len(codes), len(codes)))
    for o, d in zip(trips["home_iris"].to_pylist(), trips["work_iris"].to_pylist(), strict=True):
        matrix[number[o], number[d]] += 1
    with h5py.File(folder / "demand.omx", "w") as file:
        file.attrs["OMX_VERSION"] = b"0.2"
        file.attrs["SHAPE"] = np.array(matrix.shape, dtype=np.int32)
        file["data/trips"] = matrix
        file["lookup/zone"] = np.array(codes, dtype="S")
    rows = [",".join(["", *codes])] + [
        ",".join([c, *map(str, matrix[i].astype(int))]) for i, c in enumerate(codes)
    ]
    (folder / "od_wide.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _months(trips: pa.Table, folder: Path) -> None:
    half = trips.num_rows // 2
    for number, part in enumerate((trips.slice(0, half), trips.slice(half)), 1):
        (folder / "data" / f"month={number}").mkdir(parents=True)
        pq.write_table(part, folder / "data" / f"month={number}" / "trips.parquet")


def _calls(folder: Path) -> None:
    rng = np.random.default_rng(5)
    sites = rng.normal((48.85, 2.35), (0.03, 0.05), size=(40, 2)).round(5)
    codes = [f"S{i:02d}" for i in range(len(sites))]
    csv.write_csv(
        pa.table({"site_id": codes, "lat": sites[:, 0], "lon": sites[:, 1]}), folder / "sites.csv"
    )
    people, records = 400, 6
    home, work = rng.integers(0, 6, people), rng.integers(6, 12, people)
    start = np.datetime64("2024-01-08T07:00:00")
    person, number = np.divmod(np.arange(people * records), records)
    seconds = 7200 * number + rng.integers(0, 1800, len(person))
    site = np.where(number % 2, work[person], home[person])
    calls = pa.table(
        {
            "user_id": [f"U{p:04d}" for p in person],
            "timestamp": pa.array(start + seconds.astype("timedelta64[s]")),
            "site_id": np.array(codes)[site],
        }
    )
    csv.write_csv(calls, folder / "calls.csv")
    pq.write_table(calls, folder / "calls.parquet")
    # Three people who stay for half an hour, go north for half an hour and stay there.
    user, minute = np.divmod(np.arange(3 * 120), 120)
    lat = 48.85 + 0.01 * user + 0.0024 * np.clip(minute - 30, 0, 30)
    when = start + (60 * minute).astype("timedelta64[s]")
    points = {"uid": user, "datetime": pa.array(when), "lat": lat, "lng": np.full(len(lat), 2.35)}
    pq.write_table(pa.table(points), folder / "points.parquet")


def _records(folder: Path) -> None:
    rng = np.random.default_rng(6)
    n = 600
    job = rng.choice(["none", "part time", "full time"], n)
    people = {
        "name": [f"N{i}" for i in range(n)],
        "phone": [f"T{i}" for i in range(n)],
        "age": rng.integers(18, 90, n),
        "sex": rng.choice(["f", "m"], n),
        "job": job,
        "education": rng.choice(["none", "school", "university"], n),
        "income": rng.integers(200, 5000, n),
        "illness": rng.choice(["flu", "cold", "other"], n),
    }
    table = pa.table(people)
    csv.write_csv(table.drop_columns(["income"]), folder / "people.csv")
    ill = pa.array(np.where(rng.random(n) < 0.3, "ill", "well"))
    patients = table.select(["age", "sex", "job"]).append_column("illness", ill)
    csv.write_csv(patients, folder / "patients.csv")
    csv.write_csv(table.select(["age", "sex", "job", "income"]), folder / "earners.csv")
    bins = {"age": [0, 18, 30, 45, 65, 120], "income": [0, 1000, 2000, 5000, 1000000]}
    domains = {"sex": ["f", "m", None], "job": ["none", "part time", "full time"]}
    (folder / "bins.json").write_text(json.dumps(bins), encoding="utf-8")
    (folder / "domains.json").write_text(json.dumps(domains), encoding="utf-8")
    (folder / "jobs.csv").write_text(
        "none;not working;*\npart time;working;*\nfull time;working;*\n", encoding="utf-8"
    )


class _Names(dict):
    """What the pages take as given in Python: made when it is first used."""

    def __init__(self, folder: Path) -> None:
        super().__init__(__name__="page")
        self._folder = folder

    def __missing__(self, name: str):
        import flowveil

        if name == "flowveil":
            self[name] = flowveil
        elif name == "flows":
            self[name] = flowveil.read_trips(self._folder / "trips.parquet", resolution=9)
        elif name == "release":
            self[name] = flowveil.anonymize(self["flows"], k=5)
        elif name == "table":
            self[name] = csv.read_csv(self._folder / "people.csv").select(
                ["name", "age", "job", "illness"]
            )
        else:
            raise KeyError(name)
        return self[name]


def names(folder: Path) -> dict:
    """The names that blocks of Python start with."""
    return _Names(folder)
