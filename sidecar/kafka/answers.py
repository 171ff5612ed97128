"""Checks that a broker has answered for all that it was asked. Then callers may take the answer that they need: what a
broken broker leaves out is an answer that cannot be read, and no bug of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sidecar.wire.primitives import WireError

ANSWERED_BY = {
    "groups": "groups",
    "group_ids": "groups",
    "topics": "topics",
    "resources": "results",
    "v3_and_below_topics": "results_by_topic_v3_and_below",
}
"""List in a request -> list in the response that has as many elements."""
INNER = {"topics": ("partitions", "partitions"), "v3_and_below_topics": ("partitions", "results_by_partition")}
NOT_SENT = {
    ("OffsetFetch", "topics"): range(8, 100),
    ("OffsetFetch", "groups"): range(8),
    ("AddPartitionsToTxn", "v3_and_below_topics"): range(4, 100),
}
"""Message and list -> the versions that do not carry it."""


def check_answers(name: str, version: int, req: object, res: object) -> None:
    """Raises WireError if the response has fewer groups, topics, partitions or resources than the request, and no error
    code for all of them. A request may have the lists of several versions, of which only those of `version` count."""
    if getattr(res, "error_code", 0):
        return
    for asked in ANSWERED_BY:
        wanted = getattr(req, asked, None)
        if wanted and version not in NOT_SENT.get((name, asked), ()) and _lacks(res, asked, wanted):
            raise WireError(f"{name}: the broker does not answer for all {asked}")


def _lacks(res: object, asked: str, wanted: Sequence[Any]) -> bool:
    given = getattr(res, ANSWERED_BY[asked], None)
    if given is None:
        return False
    if isinstance(wanted[0], str):
        return not {g.group_id for g in given}.issuperset(wanted)
    inner, answered_inner = INNER.get(asked, ("", ""))
    if getattr(wanted[0], inner, None) and not all(getattr(t, answered_inner) for t in given):
        return True
    return len(given) < len(wanted)
