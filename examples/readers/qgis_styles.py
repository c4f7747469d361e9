"""Check the GeoPackage of a release as QGIS opens it, and write its styles as .qml files.

    python examples/readers/qgis_styles.py release styles

In QGIS, drag `release.gpkg` into the map: both layers come with their style, flows as wide as the root of their trips.
The .qml files are for other layers, such as a selection: Layer properties, Style, Load style.
"""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pyogrio

release, styles = map(Path, sys.argv[1:])
package = release / "release.gpkg"
styles.mkdir(exist_ok=True)

# QGIS takes the row of layer_styles that names the layer and its geometry column and is the default.
with closing(sqlite3.connect(package)) as base:
    rows = base.execute(
        "SELECT f_table_name, styleQML FROM layer_styles JOIN gpkg_geometry_columns "
        "ON f_table_name = table_name AND f_geometry_column = column_name WHERE useAsDefault"
    ).fetchall()

geometry = {"fill": "Polygon", "line": "LineString"}
for layer, qml in rows:
    info = pyogrio.read_info(package, layer=layer)
    symbol = ElementTree.fromstring(qml).find("renderer-v2/symbols/symbol")
    assert info["geometry_type"].endswith(geometry[symbol.get("type")]), f"the style of {layer} is for another geometry"
    (styles / f"{layer}.qml").write_text(qml, encoding="utf-8")
    print(f"{layer}: {info['features']} features, {symbol.get('type')} style in {styles / layer}.qml")
assert {layer for layer, _ in rows} == {"zones", "flows"}
