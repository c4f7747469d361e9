"""What a report says of the audits that were run when it was written, counted anew from the published cells."""

from __future__ import annotations

from collections.abc import Iterator

from flowveil.verify.claims import Claims
from flowveil.verify.database import Database, literal

#: A zone is homogeneous where more than this share of its trips have the same other end; in tenths, which are exact.
_TENTHS = 9


def check_audit(db: Database, claims: Claims) -> Iterator[str]:
    """Compare the outcome of the audits with the tables.

    Args:
        db: with ``published``.
        claims: the report.
    """
    said = claims.parameters.get("audit")
    if said is None:
        return
    if claims.kind not in ("plain", "sliced"):
        yield "report.json: says that audits were run that this release cannot have"
        return
    # The largest matrix; of equal ones the first.
    order = "ORDER BY sum(trips) DESC, min(row) LIMIT 1"
    largest = f"(SELECT * FROM published WHERE s = (SELECT s FROM published GROUP BY s {order}))"
    expected = []
    for end in ("origin", "destination"):
        held = f"SELECT sum(trips) AS held, max(trips) AS most FROM {largest} GROUP BY {end}_zone"
        zones, above = db.rows(
            f"SELECT count(*), count(*) FILTER (10 * most > {_TENTHS} * held) FROM ({held}) "
            f"WHERE held >= {literal(max(claims.guarantee.get('k') or 0, 1))}"
        )[0]
        expected.append({"end": end, "zones": zones, "above": above})
    if said["homogeneity"] != expected:
        yield "report.json: its audit of homogeneity is not what the cells come to"
    parts = [((), claims.measures)] if claims.kind == "plain" else claims.slices
    shown: dict[tuple[str | None, ...], int] = {(): 0}
    if claims.kind == "sliced":
        shown = {tuple(key): s for *key, s in db.rows("SELECT * FROM slice")}
    short = 0
    for key, measures in parts:
        share, s = measures["trips"]["suppressed_share"], shown.get(key)
        if share is None or s is None or not 0 <= share < 1:
            continue
        volume = int(db.one(f"SELECT sum(trips) FROM published WHERE s = {s}"))
        short += 0 < round(volume / (1 - share)) - volume < (claims.guarantee.get("k") or 0)
    if short:
        yield f"report.json: the suppressed trips of {short} matrices follow from it, and fall short of the guarantee"
