"""Which cells one person dominates, recounted from the trips of every person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flowveil.verify.database import Database

if TYPE_CHECKING:
    from flowveil.flows import Flows
    from flowveil.verify.claims import Claims


def load_dominated(db: Database, claims: Claims, flows: Flows) -> Iterator[str]:
    """``dominated`` (s, a, b): cells, published or not, in which one person makes more than the stated share.

    Not there where no share is stated. A finding where persons are not known, so that nothing can be recounted.
    """
    import pyarrow as pa

    share = claims.parameters.get("dominance")
    if share is None:
        return
    people = flows.people
    if people is None or people.trips is None:
        yield "report.json: states a rule of dominance, but the input has no persons to count"
        db.define("dominated", "SELECT 0::BIGINT AS s, 0::BIGINT AS a, 0::BIGINT AS b WHERE false")
        return
    made = {"flow": people.cell, "member": people.person, "made": people.trips}
    db.store("made_by", pa.table(made))
    each = "SELECT s, a, b, member, sum(made) AS made FROM located JOIN made_by USING (flow) GROUP BY s, a, b, member"
    held = "SELECT s, a, b, sum(trips) AS held FROM located GROUP BY s, a, b"
    db.create(
        "dominated",
        f"SELECT DISTINCT s, a, b FROM ({each}) JOIN ({held}) USING (s, a, b) WHERE made > {float(share)} * held",
    )


def check_dominated(db: Database, claims: Claims) -> Iterator[str]:
    """A finding where a published cell is mostly one person's though the report excludes it."""
    if claims.parameters.get("dominance") is None:
        return
    found = db.one("SELECT count(*) FROM cells SEMI JOIN dominated USING (a, b)")
    if found:
        yield f"flows.parquet: in {found} cells one person makes more of the trips than the rule of dominance allows"
