"""A Produce request has each partition once."""

from __future__ import annotations

from typing import Any, cast

from sidecar.kafka.produce import _Item, _Leader


def test_no_partition_twice_in_a_request() -> None:
    """Symptom: an acknowledged batch was not in the log. Of two a broker takes one, and answers for both."""

    leader = _Leader(cast(Any, None), 1, 1.0, {})
    batches = ((0, b"a"), (1, b"b"), (0, b"c"), (0, b"d"))
    leader.queue = [_Item("t", p, batch, lambda code, offset, lost: None) for p, batch in batches]
    taken = [[i.batch for i in leader._take()] for _ in range(3)]
    assert taken == [[b"a", b"b"], [b"c"], [b"d"]] and not leader.queue
