"""Names from outside are text on every step of the workbench and in the report, also where no
policy would help."""

from __future__ import annotations

import csv
import io
import json
import time
from urllib.parse import quote

import pytest
import shapely

from browser.test_workbench import at_step
from samples.served import serving_here

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

IMAGE = "<img src=x onerror=window.hacked=1>"
#: Ways out of text, attributes, scripts and templates.
WAYS = (
    IMAGE,
    f'">{IMAGE}',
    f"'>{IMAGE}",
    f"</script>{IMAGE}",
    "${window.hacked=1}",
    "{{window.hacked=1}}",
    "javascript:hacked=1",
)
COLUMN, SEX = f"from {IMAGE}", f"sex{IMAGE}"


def trips() -> bytes:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow([COLUMN, f"to {IMAGE}", SEX])
    for n, way in enumerate(WAYS):
        rows.writerows([[way, other, IMAGE if n % 2 else "f"] for other in WAYS for _ in range(30)])
    return text.getvalue().encode()


def zones() -> bytes:
    features = [
        {
            "type": "Feature",
            "properties": {"code": way, "name": f"{way} quarter"},
            "geometry": json.loads(
                shapely.to_geojson(shapely.box(2 + n / 10, 48, 2.1 + n / 10, 48.1))
            ),
        }
        for n, way in enumerate(WAYS)
    ]
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def test_names_are_never_markup(chromium, tmp_path):
    with serving_here(tmp_path, tmp_path / "tmp") as running:
        running.enter()
        (tmp_path / f"{IMAGE.replace('/', '')}.csv").write_bytes(trips())
        for role, end, content in (("trips", "csv", trips()), ("zones", "geojson", zones())):
            running.do("PUT", f"/api/files/{role}?name={quote(f'{IMAGE}.{end}')}", content)
        choices = {
            "k": 10,
            "max_suppressed": 0.1,
            "method": "twincut",
            "origin_tile": COLUMN,
            "by": [SEX],
        }
        choices |= {
            "destination_tile": f"to {IMAGE}",
            "zones_tile": "code",
            "zones_name": "name",
            "title": IMAGE,
        }
        choices |= {"source": IMAGE, "contact": f'">{IMAGE}', "licence": IMAGE}
        running.do("POST", "/api/choices", choices)
        for kind in ("inspect", "read", "describe", "run", "check"):
            job = running.ended(
                running.do("POST", "/api/jobs", {"kind": kind, "choices": choices})["id"]
            )
            assert job["state"] == "done", (kind, job)
        signed = {"read": True, "accepted": True, "signer": "<b>office</b>"}
        running.ended(running.do("POST", "/api/publish", signed)["id"])
        (release,) = running.do("GET", "/api/state")["releases"]
        # Without the policy: markup would run.
        context = chromium.new_context(bypass_csp=True)
        try:
            running.cookie_for(context)
            page = context.new_page()
            page.goto(running.root)
            page.wait_for_selector("html[data-ready=true]")
            for step in ("drop", "columns", "decide", "sign", "publish"):
                at_step(page, step)
                time.sleep(0.5)
                assert page.evaluate("window.hacked") is None, step
                assert page.locator("img[src=x]").count() == 0, step
            at_step(page, "drop")
            page.locator("#pick").click()
            page.locator("#entries", has_text="onerror").wait_for()
            assert page.evaluate("window.hacked") is None
            page.goto(f"{running.root}releases/{release['id']}/report.html")
            page.wait_for_load_state()
            time.sleep(0.5)
            assert page.evaluate("window.hacked") is None
            assert page.locator("img[src=x]").count() == 0
            assert "onerror" in page.content()
        finally:
            context.close()
