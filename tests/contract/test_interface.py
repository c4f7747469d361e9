"""The fixed interface (section 8 of the design).

Commands, Python calls, release folders, exit codes and errors.

Scripts outside rely on it. Each line runs as the design writes it, with other names of files only.
How commands fail is in `test_commands.py`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import geopandas as gpd
import h3.api.basic_str as h3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from shapely.geometry import Polygon

import flowveil
from conftest import trip_table
from flowveil.apps.cli import main
from flowveil.core import errors
from samples.processes import in_this_process

K = "--k 5 --resolution 8"
TILES = "tiles.csv --origin-tile start_h3 --destination-tile end_h3 --trips count --no-person --k 5"
#: Lines of `flowveil anonymize`, and the kind of each release.
ANONYMIZE = {
    "guarantees": (
        f"trips.csv {K} --method twincut --option objective=metres --hierarchy h3 --same-zones "
        f"--protect trips "
        "--protect people --protect population --weight weight --k-population 500 --l 1 "
        "--max-suppressed 0.1",
        "plain",
    ),
    "columns": (
        f"trips.csv {K} --origin start_lat,start_lon --destination end_lat,end_lon --person "
        f"person_id "
        "--hierarchy halves --title T --source S --period 2024-01-01/2024-01-31 --engine duckdb "
        "--memory-limit 4GB --format parquet,csv,geojson,omx,flowmap,kepler --save-recipe "
        "recipe.toml",
        "layered",
    ),
    "random": (f"trips.csv {K} --method glove --seed 0 --no-person", "boxed"),
    "h3 tiles": (TILES, "layered"),
    "zones csv": (f"{TILES} --zones zones.csv", "layered"),
    "zones geojson": (f"{TILES} --zones zones.geojson", "layered"),
    "zones parquet": (f"{TILES} --zones zones.parquet", "layered"),
    "time": (
        f"trips.csv {K} --time t --every 1h --separate --method twincut --timezone Europe/Oslo --ledger ledger",
        "sliced",
    ),
    "folded": (f"trips.csv {K} --time t --every 1h --fold-time --within 2.2,48.7,2.5,49", "folded"),
    "attributes": (f"trips.csv {K} --by sex,age --separate --method twincut", "sliced"),
    "same map": (f"trips.csv {K} --zones-of guarantees --protect people", "plain"),
    "fine": (
        f"trips.csv {K} --method twincut --protect trips --max-suppressed 0.3 --no-person",
        "plain",
    ),
    "noise": (
        "trips.csv --resolution 6 --method laplace --option epsilon=1 --option bound=2 --option "
        "region=observed",
        "noisy",
    ),
}
SLICES = {"time": ["time"], "attributes": ["sex", "age"]}
TYPES = {"origin_zone": "string", "destination_zone": "string", "weight": "double", "layer": "int8"}
#: Other lines that succeed: the exit code, and a file they write. They run after those above.
OTHERS = [
    ("describe trips.csv --k 5", 0, None),
    (
        "compare trips.csv --methods odkanon,twincut --k 5,10 --out comparison --resolution 6",
        0,
        "comparison",
    ),
    (
        "study trips.csv --by sex --by age --out study --resolution 6 --methods twincut --k 5",
        0,
        "study",
    ),
    ("verify columns --against trips.csv", 0, None),
    ("verify broken --against trips.csv", 3, None),
    ("analyze columns --against trips.csv --json --out measures", 0, "measures/measures.json"),
    ("derive columns --out coarser --level 6 --format csv", 0, "coarser/manifest.json"),
    ("derive columns --out like --zones-of guarantees", 0, "like/manifest.json"),
    ("derive attributes --out summed --sum sex --level 5", 0, "summed/manifest.json"),
    ("derive attributes --out picked --pick sex=f", 0, "picked/manifest.json"),
    ("run recipe.toml --out again", 0, "again/manifest.json"),
    ("audit columns", 0, None),
    ("audit columns --against trips.csv", 0, None),
    ("audit guarantees fine", 3, None),
    ("audit random columns", 4, None),
    (
        "series trips.csv --every month --out series --time t --k 5 --resolution 8",
        0,
        "series/index.json",
    ),
    ("freeze guarantees --out map.parquet", 0, "map.parquet"),
    ("reconstruct columns --zones 7 --out od.csv", 0, "od.csv"),
    (
        "tabular mondrian records.csv --k 5 --quasi age --sensitive sex --no-identifiers --out "
        "m.csv",
        0,
        "m.csv",
    ),
    ("tabular ipf records.csv --epsilon 1 --domains-from-data --out ipf.csv", 0, "ipf.csv"),
]


def run(line: str) -> int:
    try:
        main(line.split())
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of inputs; releases are added by the tests, each named after its line."""
    folder = tmp_path_factory.mktemp("interface")
    trips, n = trip_table(600), 600
    trips = trips.append_column("sex", pa.array(["f", "m"] * (n // 2)))
    trips = trips.append_column(
        "age", pa.array(["old" if i % 4 < 2 else "young" for i in range(n)])
    )
    trips = trips.append_column(
        "t", pa.array([f"2024-01-{1 + i % 28:02d} {8 + i % 2:02d}:10:00+01:00" for i in range(n)])
    )
    csv.write_csv(trips, folder / "trips.csv")
    csv.write_csv(trips.select(["age", "sex"]), folder / "records.csv")
    tiles = {
        f"{end}_h3": [
            h3.latlng_to_cell(lat, lon, 8)
            for lat, lon in zip(
                trips[f"{end}_lat"].to_pylist(), trips[f"{end}_lon"].to_pylist(), strict=True
            )
        ]
        for end in ("start", "end")
    }
    csv.write_csv(pa.table({**tiles, "count": [1 + i % 3 for i in range(n)]}), folder / "tiles.csv")
    codes = sorted({code for column in tiles.values() for code in column})
    parents = [h3.cell_to_parent(code, 6) for code in codes]
    rows = {
        "zone": [*codes, *sorted(set(parents))],
        "parent": [*parents, *("city" for _ in set(parents))],
    }
    csv.write_csv(pa.table(rows), folder / "zones.csv")
    outlines = [Polygon([(lon, lat) for lat, lon in h3.cell_to_boundary(code)]) for code in codes]
    zones = gpd.GeoDataFrame({"zone": codes}, geometry=outlines, crs="EPSG:4326")
    zones.to_file(folder / "zones.geojson")
    zones.to_parquet(folder / "zones.parquet")
    return folder


@pytest.fixture(autouse=True)
def inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def publish(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Runs a line, unless it was run before, and returns the printed report."""
    out = Path(name.replace(" ", "-"))
    if not out.exists():
        capsys.readouterr()
        assert run(f"anonymize {ANONYMIZE[name][0]} --out {out} --json") == 0, (
            capsys.readouterr().err
        )
        assert json.loads(capsys.readouterr().out) == json.loads((out / "report.json").read_text())
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@pytest.mark.parametrize("name", ANONYMIZE)
def test_anonymize_writes_the_folder_that_scripts_read(name, capsys):
    if name == "same map":
        publish("guarantees", capsys)
    report = publish(name, capsys)
    out = Path(name.replace(" ", "-"))
    assert set(report) == {
        "version",
        "kind",
        "method",
        "parameters",
        "guarantee",
        "statement",
        "published",
    }
    assert report["kind"] == ANONYMIZE[name][1]
    hashes = json.loads((out / "manifest.json").read_text())["sha256"]
    files = {file.name for file in out.iterdir()} - {"manifest.json"}
    assert files >= {"flows.parquet", "zones.parquet", "report.json", "report.html"}
    assert hashes == {file: hashlib.sha256((out / file).read_bytes()).hexdigest() for file in files}
    flows, zones = pq.read_table(out / "flows.parquet"), gpd.read_parquet(out / "zones.parquet")
    allowed = [
        "origin_zone",
        "destination_zone",
        "trips",
        "weight",
        "layer",
        "time_from",
        "time_to",
    ]
    columns = flows.column_names
    assert columns == [one for one in allowed if one in columns] + SLICES.get(name, [])
    assert all(str(flows.schema.field(one).type) == TYPES[one] for one in columns if one in TYPES)
    assert ("layer" in columns, "time_from" in columns) == (
        report["kind"] in ("layered", "folded"),
        report["kind"] == "folded",
    )
    if "layer" in columns:
        assert min(flows["layer"].to_pylist()) == 1
    if report["kind"] != "noisy":
        assert min(flows["trips"].to_pylist()) >= 5
    assert list(zones.columns)[:7] == ["zone", "role", "level", "tiles", "area_km2", "lat", "lon"]
    assert set(zones.columns) <= {*list(zones.columns)[:7], "geometry", "name", "h3_cells"}
    assert set(zones["role"]) <= {"origin", "destination", "both"}
    assert {*flows["origin_zone"].to_pylist(), *flows["destination_zone"].to_pylist()} == set(
        zones["zone"]
    )


@pytest.mark.parametrize(
    ("line", "code", "file"), OTHERS, ids=[" ".join(line.split()[:4]) for line, _, _ in OTHERS]
)
def test_other_commands_run_as_written(line, code, file, capsys):
    for name in ANONYMIZE:
        if name in line.split():
            publish(name, capsys)
    if "broken" in line:
        publish("columns", capsys)
        shutil.copytree("columns", "broken")
        Path("broken/flows.parquet").write_bytes(
            Path("broken/flows.parquet").read_bytes()[:-1] + b"0"
        )
    if "recipe" in line:
        publish("columns", capsys)
    capsys.readouterr()
    # What worker processes compute is tested with the commands that start them.
    with in_this_process():
        assert run(line) == code, capsys.readouterr().err
    printed = capsys.readouterr()
    assert file is None or Path(file).exists()
    if code:
        assert printed.err.strip()
    if line.startswith("run"):
        assert (
            Path("again/flows.parquet").read_bytes() == Path("columns/flows.parquet").read_bytes()
        )
    if "--json" in line:
        measures = json.loads(printed.out)["measures"]
        assert set(measures) == {"trips"}
        assert {
            "c_dm",
            "c_avg",
            "mean_generalization_error",
            "reconstruction_loss",
            "misplaced",
            "area_error",
        } <= set(measures["trips"])


def test_prepare_knows_the_named_sources():
    from flowveil.reading.sources import SOURCES

    assert {"netmob25", "porto", "nyc-tlc", "gps"} <= set(SOURCES)


def test_serve_prints_one_line_with_address_and_token():
    words = [sys.executable, "-m", "flowveil", "serve", "--port", "0", "--no-open"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        server.terminate()
        rest = server.stdout.read()
    assert re.search(r"http://127\.0\.0\.1:\d+/\S*[\w-]{16,}", line)
    assert rest == ""


def test_python_names_and_signatures():
    reading = inspect.signature(flowveil.read_trips).parameters
    first, *named = [(one.name, one.default) for one in reading.values()][:6]
    assert first[0] == "source"
    assert named == [
        ("resolution", 10),
        *((name, None) for name in ("origin", "destination", "person", "weight")),
    ]
    assert all(reading[name].kind is inspect.Parameter.KEYWORD_ONLY for name, _ in named)
    asked = list(inspect.signature(flowveil.anonymize).parameters.values())
    assert [one.name for one in asked[:5]] == ["flows", "method", "k", "protect", "max_suppressed"]
    assert [one.default for one in asked[1:5]] == [None, 10, None, None]
    flows = flowveil.read_trips("trips.csv", resolution=8, weight="weight")
    assert len(flows.origin) == len(flows.destination) == len(flows.trips) == len(flows.weight)
    assert isinstance(flows.origins, flowveil.Hierarchy)
    assert isinstance(flows.destinations, flowveil.Hierarchy)
    release = flowveil.anonymize(flows, None, 5, "people", None, hierarchy="h3")
    assert isinstance(release.guarantee, flowveil.Guarantee)
    assert (release.method, release.parameters["max_suppressed"]) == ("layercut", 0.01)
    assert flowveil.anonymize(flows, "twincut").parameters["max_suppressed"] == 0.1
    assert set(release.metrics()) == {"trips", "weight"}
    assert release.flows.column_names[:2] == ["origin_zone", "destination_zone"]
    assert "geometry" in release.zones.column_names
    assert "<" in release._repr_html_()
    assert release.write("python") == Path("python")
    with pytest.raises(flowveil.ParameterError, match="k"):
        flowveil.anonymize(flows, "laplace", k=10, epsilon=1)


def test_errors_form_the_documented_tree():
    parents = {
        "ParameterError": {"FlowveilError", "ValueError"},
        "DataError": {"FlowveilError", "ValueError"},
        "HierarchyError": {"DataError"},
        "InfeasibleError": {"FlowveilError"},
        "MissingExtraError": {"FlowveilError", "ImportError"},
        "GuaranteeError": {"FlowveilError"},
    }
    assert {
        name: {base.__name__ for base in getattr(errors, name).__bases__} for name in parents
    } == parents
    codes = {
        "ParameterError": 2,
        "DataError": 2,
        "InfeasibleError": 3,
        "MissingExtraError": 2,
        "GuaranteeError": 3,
    }
    assert {name: getattr(errors, name).exit_code for name in codes} == codes
    assert errors.InfeasibleError("x", best={"k": 3}).best == {"k": 3}
