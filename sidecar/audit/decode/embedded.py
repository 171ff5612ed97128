"""Silver's columns that are made of bytes in the protocol of classic clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sidecar.core.classic.embedded import Subscription, assigned, whole_subscription


def _places(raw: bytes | None) -> Any:
    partitions = assigned(raw or b"")
    return None if partitions is None else [{"topic": t, "partitions": list(ps)} for t, ps in partitions.items()]


def _subscribed(of: Callable[[Subscription], Any], raw: bytes | None) -> Any:
    subscription = None if raw is None else whole_subscription(raw)
    return None if subscription is None else of(subscription)


EMBEDDED: Mapping[tuple[str, str], Callable[[bytes | None], Any]] = {
    ("classic_member", "topic_names"): partial(_subscribed, lambda s: list(s.topics)),
    ("classic_member", "rack_id"): partial(_subscribed, lambda s: s.rack_id),
    ("classic_assignment", "assigned"): _places,
    ("classic_assignment", "assignment_bytes"): lambda raw: len(raw or b""),
}
"""Kind of record and column -> decoder of the bytes in the client's own protocol."""
