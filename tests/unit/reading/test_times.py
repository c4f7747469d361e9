"""Times are read as Python's datetime reads them, or refused; never otherwise."""

import json
import re
import shlex
from datetime import UTC, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowveil import read_slices
from flowveil.apps.cli import main
from flowveil.core.errors import DataError, ParameterError
from flowveil.reading import Reading
from flowveil.reading.times import MICROSECONDS, check_time_options, decide
from flowveil.zoning.gazetteer import guess_timezone
from samples.drafts import unchecked
from samples.verified import findings_of

CON = duckdb.connect(config={"threads": 1})
EPOCH = datetime(1970, 1, 1)
CELL = "8a1fb46622dffff"


def read(values, **options):
    """The column as datetimes, None for invalid times; and its problem."""
    CON.register("source", pa.table({"c": values}))
    kind = CON.execute("DESCRIBE source").fetchall()[0][1]
    form = decide(CON, "source", "c", kind, **options)
    rows = CON.execute(f"SELECT {MICROSECONDS}, {form.state} FROM {form.over('source')}").fetchall()
    return [None if us is None else EPOCH + timedelta(microseconds=us) for us, _ in rows], form


def run(*arguments):
    main([str(a) for a in arguments])


def trips(times, **columns):
    n = len(times)
    return pa.table({"o_h3": [CELL] * n, "d_h3": [CELL] * n, "at": times, **columns})


#: Forms as Python writes and reads them.
FORMS = (
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S",
    "%Y/%m/%d %H:%M:%S.%f",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%m/%d/%Y %I:%M%p",
    "%d-%m-%Y",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M %z",
)
#: A day that leaves no doubt between day-first and month-first.
CLEAR = datetime(2019, 1, 31, 15, 9)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 12, 31, 23, 59))
offsets = st.integers(-12 * 60, 14 * 60)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FORMS), st.lists(st.tuples(moments, offsets), min_size=1, max_size=5))
def test_recognised_texts_are_what_python_reads(form, drawn):
    zone = "%z" in form
    # An offset may move a time in the last hours out of the years that are read.
    inside = [(m, o) for m, o in [*drawn, (CLEAR, 60)] if not zone or 1900 < m.year < 2100]
    texts = [m.replace(tzinfo=ZoneInfo("UTC") if zone else None).strftime(form) for m, _ in inside]
    if zone:
        spelled = [f"{'-' if o < 0 else '+'}{abs(o) // 60:02}:{abs(o) % 60:02}" for _, o in inside]
        texts = [text.replace("+0000", offset) for text, offset in zip(texts, spelled, strict=True)]
    expected = [datetime.strptime(text, form) for text in texts]
    found, how = read(texts, **({"timezone": "UTC"} if zone else {}))
    assert found == [e.astimezone(UTC).replace(tzinfo=None) if zone else e for e in expected]
    if zone and any(e.utcoffset() for e in expected):
        # Without a zone of the user's, the local time is the one written.
        found, how = read(texts)
        assert found == [e.replace(tzinfo=None) for e in expected]
        assert how.needs_timezone is None


# Each example is a dozen statements.
@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.from_regex(
            r"\A[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}( [0-9]{1,2}:[0-9]{2}( [AP]M)?)?\Z"
        ),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_is_accepted_is_a_reading_of_python(texts):
    dates = (
        "%Y-%m-%d",
        "%Y/%m/%d",
        "%Y.%m.%d",
        "%d.%m.%Y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d-%m-%Y",
        "%m-%d-%Y",
    )
    clocks = ("", " %H:%M", " %I:%M %p")

    def reads(text, form):
        try:
            return datetime.strptime(text, form)
        except ValueError:
            return None

    found, form = read(texts)
    accepted = [
        (text, moment) for text, moment in zip(texts, found, strict=True) if moment is not None
    ]
    if accepted:
        assert form.problem is None
        # One form of Python reads every text that was accepted, to the same time: nothing is read
        # by chance.
        assert any(
            all(reads(t, d + c) == moment for t, moment in accepted) for d in dates for c in clocks
        )
        assert all(1900 <= moment.year <= 2100 for _, moment in accepted)


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()])
def test_unix_numbers_of_each_size(unit, kind):
    seconds = [1_546_300_800, 1_700_000_123, 315_532_800]
    found, form = read(
        pa.array([str(s * unit) if kind == pa.string() else s * unit for s in seconds], kind)
    )
    assert found == [EPOCH + timedelta(seconds=s) for s in seconds]
    assert form.needs_timezone == "Unix times"


@pytest.mark.parametrize(
    "numbers",
    [[61_200], [20190102], [201901021509], [20190102150900], [43466.5], [0]],
    ids=["seconds of the day", "date", "date and time", "date and seconds", "days", "zero"],
)
def test_numbers_that_are_no_unix_times_are_refused(numbers):
    with pytest.raises(DataError, match="not Unix seconds"):
        read_slices(trips(numbers), time="at", every="1h")


@pytest.mark.parametrize(
    "times",
    [
        [8, 17, 0],
        [8.0, 17.0, 0.0],
        ["8.0", "17.0", "0"],
        ["8:15", "17:59:59", "00:00"],
        [time(8), time(17), time(0)],
    ],
    ids=["hours", "floats", "texts", "clock", "type"],
)
def test_times_of_day_are_sliced_by_the_hour_of_the_day_and_by_nothing_else(times):
    assert read_slices(trips(times), time="at", every="hour").slice_keys == (
        ("00:00",),
        ("08:00",),
        ("17:00",),
    )
    with pytest.raises(ParameterError, match="have no date"):
        read_slices(trips(times), time="at", every="1h")


def test_iso_weeks_begin_on_monday_and_belong_to_the_year_of_their_thursday():
    dates = ["2023-01-01", "2023-01-02", "2024-12-30", "2026-12-31"]
    expected = [datetime.fromisoformat(date).isocalendar() for date in dates]
    found = read_slices(trips(dates), time="at", every="week").slice_keys
    assert found == tuple((f"{week.year}-W{week.week:02}",) for week in expected)


ZONES = (
    "Europe/Paris",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "UTC",
)


@pytest.mark.parametrize("zone", ZONES)
def test_local_time_is_that_of_zoneinfo(zone):
    seconds = list(range(946_684_800, 1_735_689_600, 131 * 3_600 + 1_234))
    found, form = read(seconds, timezone=zone)
    assert found == [
        datetime.fromtimestamp(s, ZoneInfo(zone)).replace(tzinfo=None) for s in seconds
    ]
    assert form.note is None
    zoned = [datetime.fromtimestamp(s, UTC).isoformat() for s in seconds[:50]]
    assert read(zoned, timezone=zone)[0] == found[:50]


#: Made like the files in which times were misread: the first column of Chicago's and of BIXI's
#: trips, and others.
REFUSED = {
    "two-digit years": (["1/2/19 3:09:00 PM"] * 3, "'9/9/99 9:99:99 AA'"),
    "leftover": (["2019-01-02 10:00", "2019-01-03 11:00 Zoe"], "'9999-99-99 99:99 AAA'"),
    "mixture": (["2019-01-02 10:00"] * 2 + ["13/01/2019 10:00"], "'99/99/9999 99:99'"),
    "12 and 24 hours": (["1/13/2019 3:09 PM"] * 2 + ["1/14/2019 3:09"], "'9/99/9999 9:99'"),
    "dates without times": (["2019-01-02 10:00"] * 2 + ["2019-01-02"], "'9999-99-99'"),
    "with and without zone": (
        ["2019-01-02 10:00Z"] * 2 + ["2019-01-02 10:00"],
        "'9999-99-99 99:99'",
    ),
    "year 0019": (["0019-01-02 10:00"], "'9999-99-99 99:99'"),
    "year 2101": (["2101-01-02 10:00"], "'9999-99-99 99:99'"),
    "no such day": (["2019-02-30 10:00"], "'9999-99-99 99:99'"),
    "15 PM": (["1/13/2019 15:09 PM"], "'9/99/9999 99:99 AA'"),
    "no such offset": (["2019-01-02T10:00:00+99:00"], "'9999-99-99A99:99:99+99:99'"),
    "names": (["Zoe Müller 12"], "'AAA AAAAAA 99'"),
    "ambiguous": (["1/2/2019 3:09", "2/3/2019 4:09"], "day-first and month-first both fit"),
    "both orders": (["13/2/2019 3:09", "2/13/2019 4:09"], "mixes the two"),
}


@pytest.mark.parametrize(
    ("times", "message", "stream"),
    # Whether rows can be looked at twice or come once matters for what the whole column decides.
    [
        *((*case, False) for case in REFUSED.values()),
        *((*REFUSED[name], True) for name in ("mixture", "both orders")),
    ],
    ids=[*REFUSED, "mixture in a stream", "both orders in a stream"],
)
def test_what_has_no_one_reading_is_refused_by_its_shape(times, message, stream):
    table = trips(times)
    zone = {"timezone": "UTC"} if re.search(r"Z$|\+\d\d:00$", times[0]) else {}
    with pytest.raises(DataError) as caught:
        read_slices(table.to_reader() if stream else table, time="at", every="1h", **zone)
    assert message in str(caught.value)
    assert not any(text in str(caught.value) for text in (*times, "Zoe", "Müller"))


def test_the_whole_column_decides_between_day_first_and_month_first():
    first = ["1/2/2019 3:09"] * 20_000
    for last, day in (("13/2/2019 3:09", "2019-02-01"), ("2/13/2019 3:09", "2019-01-02")):
        assert read_slices(trips([*first, last]), time="at", every="day").slice_keys[0] == (day,)


def test_a_format_reads_what_is_not_recognised():
    table = trips(["1/2/19 3:09:00 PM"] * 3)
    assert read_slices(
        table, time="at", every="1h", time_format="%m/%d/%y %I:%M:%S %p"
    ).slice_keys == (("2019-01-02T15:00",),)
    clock = read_slices(trips(["08:15", "23:59"]), time="at", every="hour", time_format="%H:%M")
    assert clock.slice_keys == (("08:00",), ("23:00",))
    assert read_slices(
        trips([20190102]), time="at", every="day", time_format="%Y%m%d"
    ).slice_keys == (("2019-01-02",),)


FORMATS = st.sampled_from(
    ["%d/%m/%y %H:%M", "%Y%m%d%H%M", "%b %d %Y", "%H:%M", "%d.%m.%Y", "%I:%M:%S %p", "%Y-%j"]
)


@settings(max_examples=20, deadline=None)
@given(FORMATS, moments, st.text("0123456789:/. APMJanFeb", max_size=3))
def test_a_format_reads_as_strptime_or_not_at_all(form, moment, more):
    text = moment.strftime(form)
    for written in (text, text + more, more + text):
        found = read([written], time_format=form)[0][0]
        if found is not None:
            assert found == datetime.strptime(written.strip(), form)
    assert read([text], time_format=form)[0] == [datetime.strptime(text, form)]


@pytest.mark.parametrize(
    "options",
    [
        {"time_format": "%Q"}, {"time_format": "home/zoe/%Y"}, {"time_format": "Y"}, {"time_format": "%H:%M %p"},
        {"time_format": "%I:%M"}, {"time_format": "%Y %Y"}, {"timezone": "CST"}, {"timezone": "Zoe's"},
    ],
    ids=str,
)  # fmt: skip
def test_formats_and_zones_that_could_mislead_are_refused(options):
    with pytest.raises(ParameterError):
        check_time_options(options.get("time_format"), options.get("timezone"))


def test_a_zone_needs_times_that_have_one():
    with pytest.raises(ParameterError, match="no zone"):
        read_slices(trips(["2019-01-02 10:00"]), time="at", every="1h", timezone="Europe/Paris")
    with pytest.raises(ParameterError, match="Did you mean 'Europe/Paris'"):
        read_slices(trips([1_700_000_000]), time="at", every="1h", timezone="Europe/Pari")
    with pytest.raises(ParameterError, match="is given without time"):
        read_slices(trips([1_700_000_000]), by="o_h3", timezone="Europe/Paris")


def test_format_and_zone_reach_the_report_its_command_and_verify(tmp_path, capsys):
    path, out, again = tmp_path / "trips.csv", tmp_path / "release", tmp_path / "again"
    rows = "".join(f"{CELL},{CELL},1/{d}/19 3:09 PM +0000\n" for d in (2, 3) for _ in range(5))
    path.write_text(f"o_h3,d_h3,at\n{rows}")
    form = "%m/%d/%y %I:%M %p %z"
    said = [
        "--time",
        "at",
        "--every",
        "1h",
        "--set",
        f"slices.time_format={form}",
        "--timezone",
        "Europe/Paris",
    ]
    with unchecked():
        run("anonymize", path, "--k", 5, *said, "--out", out)
    assert "UTC" not in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert report["parameters"]["timezone"] == "Europe/Paris"
    assert pq.read_table(out / "flows.parquet")["time_from"].to_pylist() == [
        "2019-01-02T16:00",
        "2019-01-03T16:00",
    ]
    words = shlex.split(report["published"]["command"])[1:]
    with unchecked():
        run(*[{"INPUT": path, "DIR": again}.get(word, word) for word in words])
    assert (again / "flows.parquet").read_bytes() == (out / "flows.parquet").read_bytes()
    capsys.readouterr()
    run("verify", out, "--against", path)
    assert "holds" in capsys.readouterr().out
    # Reading the trips in another time zone than the release is reported.
    other = read_slices(path, time="at", every="1h", time_format=form, timezone="Asia/Tokyo")
    assert findings_of(out, other)


OSLO = ZoneInfo("Europe/Oslo")
#: Trips in summer and winter, each half past eight in the morning in Oslo.
MORNINGS = [
    datetime(2024, month, 10 + day, 8, 30, tzinfo=OSLO) for month in (1, 7) for day in range(5)
]


def in_frames(kind, zone):
    """The same instants in a table of each library, with the zone as its type or text."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    moments = [m.astimezone(zone) for m in MORNINGS]
    ends = {"o_h3": [CELL] * len(moments), "d_h3": [CELL] * len(moments)}
    stored = pa.array([m.astimezone(UTC) for m in moments], pa.timestamp("us", str(zone)))
    if kind == "pandas objects":
        fixed = [m.replace(tzinfo=timezone(m.utcoffset())) for m in moments]
        return pandas.DataFrame({**ends, "at": pandas.Series(fixed, dtype=object)})
    if kind == "text":
        return pa.table({**ends, "at": [m.isoformat() for m in moments]})
    table = pa.table({**ends, "at": stored})
    return {
        "arrow": lambda: table,
        "stream": table.to_reader,
        "pandas": table.to_pandas,
        "polars": lambda: polars.from_arrow(table),
    }[kind]()


@pytest.mark.parametrize(
    "kind", ["arrow", "stream", "pandas", "polars", "pandas objects", "text", "parquet"]
)
def test_times_with_a_zone_are_shown_in_that_zone(kind, tmp_path):
    table = in_frames("arrow" if kind == "parquet" else kind, OSLO)
    if kind == "parquet":
        pq.write_table(table, tmp_path / "t.parquet")
        table = tmp_path / "t.parquet"
    read = read_slices(table, time="at", every="hour")
    assert read.slice_keys == (("08:00",),)
    # Texts and objects have an offset each, not the name of a zone.
    assert read.intake.timezone == (None if kind in ("text", "pandas objects") else "Europe/Oslo")
    assert "are shown in" in read.intake.notes[0]
    again = Reading.from_parameters({**read.intake.parameters(), "slices": {"every": "hour"}})
    assert again.timezone == read.intake.timezone


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "text", "unix"])
def test_times_in_utc_need_a_zone_which_the_message_suggests(kind):
    table = in_frames("arrow" if kind == "unix" else kind, ZoneInfo("UTC"))
    if kind == "unix":
        table = table.set_column(2, "at", pa.array([int(m.timestamp()) for m in MORNINGS]))
    with pytest.raises(
        ParameterError, match=r"These trips are in Europe/Paris: timezone='Europe/Paris'\?"
    ):
        read_slices(table, time="at", every="hour")
    assert read_slices(table, time="at", every="hour", timezone="Europe/Oslo").slice_keys == (
        ("08:00",),
    )
    confirmed = read_slices(table, time="at", every="hour", timezone="UTC")
    assert confirmed.slice_keys == (("06:00",), ("07:00",))
    assert confirmed.intake.timezone == "UTC"


def test_one_offset_is_a_zone_that_a_report_can_name():
    texts = ["2024-01-10 08:30+05:30"] * 3
    read = read_slices(trips(texts), time="at", every="hour")
    assert (read.slice_keys, read.intake.timezone) == ((("08:00",),), "UTC+0530")
    assert (
        read_slices(trips(texts), time="at", every="hour", timezone="UTC+0530").slice_keys
        == read.slice_keys
    )
    fixed = pa.array([datetime(2024, 1, 10, 3, tzinfo=UTC)], pa.timestamp("us", "+05:30"))
    assert read_slices(trips(fixed), time="at", every="hour").slice_keys == read.slice_keys


def test_the_command_asks_for_the_zone(tmp_path, capsys):
    path = tmp_path / "trips.csv"
    path.write_text(
        "start_lat,start_lon,end_lat,end_lon,at\n" + "59.91,10.75,59.92,10.76,1700000000\n" * 9
    )
    asked = ("anonymize", path, "--k", 5, "--time", "at", "--every", "1h", "--out", tmp_path / "r")
    with pytest.raises(SystemExit) as stopped:
        run(*asked)
    assert stopped.value.code == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "These trips are in Europe/Oslo: --timezone Europe/Oslo?" in message
    assert "--timezone UTC shows them in UTC" in message
    with unchecked():
        run(*asked, "--timezone", "Europe/Oslo", "--json")
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["parameters"]["timezone"] == "Europe/Oslo"


@pytest.mark.parametrize(
    ("place", "zone"),
    [((59.91, 10.75), "Europe/Oslo"), ((29.76, -95.37), "America/Chicago"), ((-18.12, 178.43), "Pacific/Fiji"),
     ((41.39, 2.17), "Europe/Madrid"), ((0.0, -30.0), None), ((float("nan"), 2.0), None)],
)  # fmt: skip
def test_the_zone_of_a_place(place, zone):
    assert guess_timezone(*(np.array([axis] * 3) for axis in place)) == zone
