"""One table of truth: spoiled files, what a person would say they contain, and that flowveil reads
this or refuses.

Every file starts as the same 40 trips in Oslo. A case spoils it, and says either how many trips a
careful person would count in it (and between how many hours, if it is sliced), or a part of the
message that it is refused with.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyproj
import pytest

import flowveil
from flowveil.core.errors import FlowveilError

N = 40
ENDS = [(59.90 + i / 2000, 10.70 + i / 1000, 59.95 - i / 2000, 10.80 - i / 1000) for i in range(N)]
HEAD = "start_lat,start_lon,end_lat,end_lon"
UTM = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:25832", always_xy=True)


def rows(
    change: Callable[[int, tuple[float, ...]], str] | None = None,
    *,
    head: str = HEAD,
    end: str = "\n",
) -> str:
    """A text file, each row made from its number and its four coordinates."""
    write = change or (lambda _, ends: ",".join(f"{axis:.4f}" for axis in ends))
    return end.join([head, *(write(i, ends) for i, ends in enumerate(ENDS))]) + end


def more(extra: Callable[[int], object], name: str) -> str:
    """The file with one more column."""
    return rows(
        lambda i, e: ",".join(f"{axis:.4f}" for axis in e) + f",{extra(i)}", head=f"{HEAD},{name}"
    )


def in_utm(_: int, ends: tuple[float, ...]) -> str:
    places = [UTM.transform(ends[j + 1], ends[j])[::-1] for j in (0, 2)]
    return ",".join(f"{axis:.2f}" for place in places for axis in place)


def zipped(text: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("t.csv", text)
    return packed.getvalue()


HOUR = {"time": "at", "every": "hour"}
#: Name: content, options, and the truth: trips, (trips, hours), or a part of the message.
TRUTH: dict[str, tuple[str | bytes, dict[str, object], object]] = {
    "as it should be": (rows(), {}, N),
    "a byte order mark": (b"\xef\xbb\xbf" + rows().encode(), {}, N),
    "lines of Windows": (rows(end="\r\n"), {}, N),
    "semicolons": (rows().replace(",", ";"), {}, N),
    "tabs": (rows().replace(",", "\t"), {}, N),
    "quotes around everything": (
        rows(
            lambda _, e: ",".join(f'"{a:.4f}"' for a in e),
            head='"start_lat","start_lon","end_lat","end_lon"',
        ),
        {},
        N,
    ),
    "blanks around names": (rows(head=" start_lat , start_lon , end_lat , end_lon "), {}, N),
    "UTF-16": (rows().encode("utf-16"), {}, "UTF-16"),
    "a zip named csv": (zipped(rows()), {}, "zip"),
    "an empty file": ("", {}, "empty"),
    "a header alone": (HEAD + "\n", {}, "no rows"),
    "no header": (rows().partition("\n")[2], {}, "not recognised"),
    "a line cut short": (rows()[:-20], {}, "cannot be read as a table"),
    "a decimal comma": (
        rows(
            lambda _, e: ";".join(f"{a:.4f}".replace(".", ",") for a in e),
            head=HEAD.replace(",", ";"),
        ),
        {},
        "decimal_comma",
    ),
    "a decimal comma that is named": (
        rows(
            lambda _, e: ";".join(f"{a:.4f}".replace(".", ",") for a in e),
            head=HEAD.replace(",", ";"),
        ),
        {"decimal_comma": True},
        N,
    ),
    "degrees as text": (rows(lambda _, e: ",".join(f"{a:.4f} N" for a in e)), {}, "not a number"),
    "both axes swapped": (
        rows(lambda _, e: f"{e[1]:.4f},{e[0]:.4f},{e[3]:.4f},{e[2]:.4f}"),
        {},
        "are swapped",
    ),
    "one end swapped": (
        rows(lambda _, e: f"{e[0]:.4f},{e[1]:.4f},{e[3]:.4f},{e[2]:.4f}"),
        {},
        "are swapped",
    ),
    "a lost sign": (
        rows(lambda _, e: f"{e[0]:.4f},{-e[1] - 70:.4f},{e[2]:.4f},{e[3] + 70:.4f}"),
        {},
        "continent",
    ),
    "projected": (rows(in_utm), {}, "crs='EPSG:25832'"),
    "projected, and named": (rows(in_utm), {"crs": "EPSG:25832"}, N),
    "two rows at 0,0": (
        rows(lambda i, e: "0,0,0,0" if i < 2 else ",".join(f"{a:.4f}" for a in e)),
        {},
        N - 2,
    ),
    "five ends missing": (
        rows(lambda i, e: ",,," if i < 5 else ",".join(f"{a:.4f}" for a in e)),
        {},
        "max_dropped",
    ),
    "all ends missing": (rows(lambda _, __: ",,,"), {}, "No trip is left"),
    "counts": (more(lambda i: i % 3, "n"), {"trips": "n"}, sum(i % 3 for i in range(N))),
    "fractions": (more(lambda i: i / 4, "n"), {"trips": "n"}, sum(i / 4 for i in range(N))),
    "a negative count": (more(lambda i: -1 if i == 7 else 2, "n"), {"trips": "n"}, "negative"),
    "a count as a word": (
        more(lambda i: "two" if i == 7 else 2, "n"),
        {"trips": "n"},
        "not a number",
    ),
    "riders": (more(lambda i: f"r{i % 12}", "rider"), {}, "person='rider'"),
    "riders that are named": (more(lambda i: f"r{i % 12}", "rider"), {"person": "rider"}, N),
    "local times": (
        more(lambda i: f"2024-07-01 {8 + i % 2:02}:30", "at"),
        HOUR,
        (N, ["08:00", "09:00"]),
    ),
    "Unix times": (more(lambda _: 1719815400, "at"), HOUR, "Europe/Oslo"),
    "Unix times, and the zone": (
        more(lambda _: 1719815400, "at"),
        {**HOUR, "timezone": "Europe/Oslo"},
        (N, ["08:00"]),
    ),
    "times in UTC": (more(lambda _: "2024-07-01T06:30:00Z", "at"), HOUR, "Europe/Oslo"),
    "times with an offset": (
        more(lambda _: "2024-07-01T08:30:00+02:00", "at"),
        HOUR,
        (N, ["08:00"]),
    ),
    "days and months in doubt": (
        more(lambda i: f"0{1 + i % 9}/02/2024 08:30", "at"),
        HOUR,
        "both fit",
    ),
    "years of two digits": (more(lambda _: "1/2/24 08:30", "at"), HOUR, "time_format"),
}


@pytest.mark.parametrize(("content", "options", "truth"), TRUTH.values(), ids=TRUTH)
def test_a_file_is_read_as_a_person_would_or_refused(
    tmp_path: Path, content, options, truth
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    read = flowveil.read_slices if "time" in options else flowveil.read_trips
    if isinstance(truth, str):
        with pytest.raises(FlowveilError) as caught:
            read(path, resolution=8, **options)
        assert truth in str(caught.value)
        return
    found = read(path, resolution=8, **options)
    if isinstance(truth, tuple):
        assert [key[0] for key in found.slice_keys] == truth[1]
        assert int(found.whole.trips.sum()) == truth[0]
    else:
        assert float(found.trips.sum()) == truth


def test_the_same_file_compressed_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(rows().encode()))
    assert int(flowveil.read_trips(path, resolution=8).trips.sum()) == N
