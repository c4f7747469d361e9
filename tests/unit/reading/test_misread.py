"""Files that were once published wrong without a word: each is refused with the cause, or read with
its true totals.
"""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pyarrow as pa
import pytest

import flowveil
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from flowveil.zoning import files

MAP = "zone,parent\n0007,d1\n0012,d1\n0130,d2\n1450,d2\nd1,all\nd2,all\nall,\n"


def zones_in(tmp_path, text=MAP):
    path = tmp_path / "zones.csv"
    path.write_text(text)
    return path


def od_in(tmp_path, rows, head="from,to,n"):
    path = tmp_path / "od.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


ENDS = {"origin_tile": "from", "destination_tile": "to", "trips": "n"}


def test_lost_leading_zeros_are_named_and_filled_up(tmp_path):
    zones = flowveil.read_zones(zones_in(tmp_path))
    od = od_in(tmp_path, ["7,12,30", "130,1450,20", "7.0,7,11"])
    with pytest.raises(DataError, match=r"lost their leading zeros.*pad_codes=True"):
        flowveil.read_trips(od, zones=zones, **ENDS)
    flows = flowveil.read_trips(od, zones=zones, pad_codes=True, **ENDS)
    assert int(flows.trips.sum()) == 61
    assert flows.intake.parameters()["pad_codes"] is True


def test_codes_are_compared_before_the_dendrogram_is_built(tmp_path, monkeypatch):
    text = "zone,lat,lon\n" + "".join(f"z{i},{59 + i / 100},{10 + i / 100}\n" for i in range(20))
    zones = flowveil.read_zones(zones_in(tmp_path, text))
    od = od_in(tmp_path, ["a,b,30", "c,d,20"])

    def refuse(*_):
        raise AssertionError("the dendrogram was built")

    monkeypatch.setattr(files, "ward_hierarchy", refuse)
    with pytest.raises(DataError, match=r"No code in columns 'from' and 'to'.*zones"):
        flowveil.read_trips(od, zones=zones, **ENDS)


def test_the_statement_says_how_many_trips_lie_outside_a_map(tmp_path):
    zones = zones_in(tmp_path)
    rows = [f"{o},{d},60" for o in ("0007", "0012") for d in ("0130", "1450")]
    od = od_in(tmp_path, [*rows, "0007,x9,60", "x1,x2,300", "x3,x4,400"])
    flows = flowveil.read_trips(od, zones=zones, outside="keep", **ENDS)
    assert int(flows.trips.sum()) == 300
    assert flows.intake.outside_trips == 700
    folder = flowveil.anonymize(flows, k=10).write(tmp_path / "release")
    shares = json.loads((folder / "report.json").read_text())["statement"]["shares"]
    assert shares["outside"] == pytest.approx(0.70)
    found = flowveil.verify_release(folder, against=od, zones=zones)
    assert found.holds, found.findings


def test_projected_places_of_a_zone_table_are_read_with_the_reference_system(tmp_path):
    import pyproj

    project = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:21781", always_xy=True)
    east, north = project.transform(np.linspace(7.40, 7.48, 6), np.linspace(46.93, 46.97, 6))
    rows = (f"z{i},{x:.1f},{y:.1f}\n" for i, (x, y) in enumerate(zip(east, north, strict=True)))
    path = zones_in(tmp_path, "zone,x,y\n" + "".join(rows))
    with pytest.raises(DataError, match=r"crs='EPSG:21781'.*Bern, Switzerland"):
        flowveil.read_zones(path)
    zones = flowveil.read_zones(path, crs="EPSG:21781")
    lat, lon = zones.hierarchy.geography.centers(zones.hierarchy.leaf_node)
    assert (round(float(lat.mean()), 2), round(float(lon.mean()), 2)) == (46.95, 7.44)
    od = od_in(tmp_path, [f"z{i},z{j},30" for i in range(6) for j in range(6)])
    flows = flowveil.read_trips(od, zones=path, crs="EPSG:21781", **ENDS)
    folder = flowveil.anonymize(flows, k=10).write(tmp_path / "release")
    found = flowveil.verify_release(folder, against=od, zones=path)
    assert found.holds, found.findings


@pytest.mark.parametrize("column", ["perno", "Abo-Nr", "usager", "Kundennummer", "id_usuario"])
def test_persons_are_recognised_in_other_words_and_languages(column):
    cells = ["8a1fb46622dffff", "8a1fb46622d7fff"] * 30
    table = pa.table(
        {"start_h3": cells, "end_h3": cells[::-1], column: [1000 + i % 25 for i in range(60)]}
    )
    with pytest.raises(ParameterError, match="people would not be protected"):
        flowveil.read_trips(table)


def test_headers_in_spanish_and_of_abbreviations_are_named_and_titles_are_skipped(tmp_path):
    spanish = "fecha|hora|origen|destino|renta|viajes|viajes_km"
    rows = [f"20230101|{i % 24:02}|01001_AM|01002|10-15|{i}.5|{i}.25" for i in range(20)]
    (tmp_path / "spanish.csv").write_text("\n".join([spanish, *rows]))
    with pytest.raises(DataError) as refused:
        flowveil.read_trips(tmp_path / "spanish.csv", resolution=7)
    assert "'origen'" in str(refused.value)
    title = ["Journeys by zone, first quarter", "Source: office", "", "start_h3,end_h3,n"]
    rows = ["8a1fb46622dffff,8a1fb46622d7fff,12"] * 4
    (tmp_path / "titled.csv").write_text("\n".join([*title, *rows]))
    flows = flowveil.read_trips(tmp_path / "titled.csv", trips="n")
    assert int(flows.trips.sum()) == 48


def test_a_record_above_numbers_is_never_quoted(tmp_path):
    rows = [f"Ada,59.{900 + i},10.7{i},59.95,10.8{i}" for i in range(20)]
    (tmp_path / "headless.csv").write_text("\n".join(rows))
    with pytest.raises(DataError) as refused:
        flowveil.read_trips(tmp_path / "headless.csv")
    assert "Ada" not in str(refused.value)


def test_a_number_of_trips_that_no_one_named_is_asked_for(tmp_path):
    od = od_in(tmp_path, ["0007,0012,40", "0012,0130,2.5", "0130,0007,1"])
    zones = flowveil.read_zones(zones_in(tmp_path))
    with pytest.raises(ParameterError, match=r"number of trips of each row.*trips='n'"):
        flowveil.read_trips(od, zones=zones)
    assert float(flowveil.read_trips(od, zones=zones, trips="n").trips.sum()) == 43.5
    one_each = flowveil.read_trips(od, zones=zones, trips="")
    assert float(one_each.trips.sum()) == 3
    assert "trips" not in one_each.intake.columns
    ones = od_in(tmp_path, ["0007,0012,1"] * 4)
    assert int(flowveil.read_trips(ones, zones=zones).trips.sum()) == 4


# ---- every hint of reading leads on when it is pasted -------------------------------------------

OSLO = "start_lat,start_lon,end_lat,end_lon"
GK = "4595000.0,5821000.0,4596000.0,5822000.0"
#: A table, the words that are wrong with it, and the answer that the message must hold.
PASTED = {
    "thousands": ("from,to,n", ['0007,0012,"1,204"'] * 3, "--trips n", "--thousands comma"),
    "decimals": ("from,to,n", ['0007,0012,"1,5"'] * 3, "--trips n", "--set input.decimal_comma"),
    "zeros": ("from,to,n", ["7,12,30"] * 9, "--trips n", "--set input.pad_codes=true"),
    "unknown": (
        "from,to,n",
        ["0007,0012,30"] * 30 + ["0007,x,1"],
        "--trips n",
        "--set input.skip_unknown=true",
    ),
    "ends": ("a,b,n", ["0007,0012,30"] * 9, "--trips n", "--origin-tile a --destination-tile b"),
    "blank": (",a,b", ["0007,0007,0012"] * 30, "", "--origin-tile a --destination-tile b"),
    "person": (
        "from,to,perno",
        [f"0007,0012,{100 + i % 30}" for i in range(90)],
        "",
        "--person perno",
    ),
}


@pytest.mark.parametrize("name", PASTED)
def test_a_hint_works_when_it_is_pasted(tmp_path, capsys, name):
    head, rows, words, answer = PASTED[name]
    od, zones = od_in(tmp_path, rows, head), zones_in(tmp_path)
    base = ["anonymize", str(od), "--zones", str(zones), "--out", str(tmp_path / "r"), "--k", "3"]
    base += shlex.split(words) + (
        ["--origin-tile", "from", "--destination-tile", "to"] * ("from" in head)
    )
    with pytest.raises(SystemExit) as stopped:
        main(base)
    message = capsys.readouterr().err
    assert stopped.value.code == 2
    assert answer in message, message
    pasted = re.search(re.escape(answer) + r"(=true)?", message)[0]
    main([*base, *shlex.split(pasted), "--max-dropped", "0.5"])
    assert (tmp_path / "r" / "report.json").exists()
