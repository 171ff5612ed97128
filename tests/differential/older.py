"""Differences of a Kafka before 4.4 from 4.4.0, and so from the sidecar.

Each has a name and a row in docs/reference/differences.md, and excuses a step only if that cannot differ for another
reason."""

from __future__ import annotations

import re

from sidecar.drill.artifacts import KAFKA
from sidecar.drill.zookeeper import numbers
from sidecar.wire.generated import consumer_group_describe as cd
from tests.differential.script import Step

EMPTIED, ASSIGNOR, RANGE = "a group that was emptied", "another assignor", "the range of a setting"
DEFAULT_ASSIGNOR = "uniform"
"""The first of group.consumer.assignors."""
INVALID_CONFIG = 40
HEAD, TAIL = slice(0, 4), slice(5, None)
"""Columns of `Side.do_describe` without the assignment epoch."""
HEARTBEAT_FIELDS = 6
"""Length of `Side.heartbeat`'s answer to a ConsumerGroupHeartbeat."""


def is_older(version: str) -> bool:
    """Whether a broker of this version differs from the anchor."""
    return numbers(version)[:2] < numbers(KAFKA)[:2]


def harmless_difference(s: Step, ours: object, theirs: object) -> str:
    """Returns why these answers differ although the groups are equal; else an empty string."""
    if not isinstance(ours, tuple) or not isinstance(theirs, tuple):
        return ""
    if s.verb == "describe" and ours[2] == theirs[2] == "Empty":
        # No target is computed for the epoch in which the last member left.
        same = ours[HEAD] == theirs[HEAD] and ours[TAIL] == theirs[TAIL]
        return EMPTIED if same and theirs[4] < ours[4] == ours[3] else ""
    if s.verb == "alter" and ours[0] == theirs[0] == INVALID_CONFIG:
        (name,) = s.options
        words = re.match(
            rf"{re.escape(name)} must be (greater|less) than or equal to group\.\w+\.(min|max)\.", theirs[1]
        )
        told = re.match(rf"{re.escape(name)} must be (in the range|less than or equal to) \d", ours[1])
        return RANGE if words and told else ""
    return ""


def parts(before: cd.DescribedGroup, assignor: str, names: bool, ours: object, theirs: object) -> str:
    """Returns why the groups differ after this join, or an empty string. `before`: the group as the older Kafka had it.
    `names`: the member may bring names to subscribe to, which raise the epoch in any case."""
    if not isinstance(ours, tuple) or not isinstance(theirs, tuple):
        return ""
    if not len(ours) == len(theirs) == HEARTBEAT_FIELDS or ours[0] != 0 or theirs[0] != 0:
        return ""
    epochs, given = (ours[2], theirs[2]), theirs[4]
    emptied = before.error_code == 0 and before.group_state == "Empty"
    if emptied and before.assignment_epoch < before.group_epoch and given == {} and epochs[1] < epochs[0]:
        return EMPTIED  # the interval counts from the last run, though nobody is left of those days
    asked = before.assignor_name if before.error_code == 0 else DEFAULT_ASSIGNOR
    if not names and asked != assignor and epochs[0] == epochs[1] + 1:
        return ASSIGNOR  # the group's assignor changes, and the epoch does not
    return ""
