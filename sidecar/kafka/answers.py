"""Checks that a broker has answered for all that it was asked. Then callers may take the answer that they need: what a
broken broker leaves out is an answer that cannot be read, and no bug of theirs."""

from __future__ import annotations

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


def check_answers(name: str, req: object, res: object) -> None:
    """Raises WireError if the response has fewer groups, topics, partitions or resources than the request, and no error
    code for all of them."""
    if getattr(res, "error_code", 0):
        return
    for asked, answered in ANSWERED_BY.items():
        wanted, given = getattr(req, asked, None), getattr(res, answered, None)
        if not wanted or given is None:
            continue
        missing = len(given) < len(wanted)
        if isinstance(wanted[0], str):
            missing = not {g.group_id for g in given}.issuperset(wanted)
        inner, answered_inner = INNER.get(asked, ("", ""))
        if getattr(wanted[0], inner, None):
            missing = missing or not all(getattr(t, answered_inner) for t in given)
        if missing:
            raise WireError(f"{name}: the broker does not answer for all {asked}")
