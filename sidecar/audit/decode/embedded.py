"""Silver's columns that are made of bytes in the protocol of classic clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sidecar.audit.tables.columns import many
from sidecar.core.classic.embedded import assigned, whole_subscription


@dataclass(frozen=True)
class Embedded:
    """A column made of bytes in the client's own protocol. `read_as`: Arrow type of the bytes; `of`: their decoder."""

    read_as: Any
    of: Callable[[bytes | None], Any]


def _places(raw: bytes | None) -> Any:
    partitions = assigned(raw or b"")
    return None if partitions is None else [{"topic": t, "partitions": list(ps)} for t, ps in partitions.items()]


def _topics(raw: bytes | None) -> Any:
    subscription = None if raw is None else whole_subscription(raw)
    return None if subscription is None else list(subscription.topics)


def _rack(raw: bytes | None) -> Any:
    subscription = None if raw is None else whole_subscription(raw)
    return None if subscription is None else subscription.rack_id


EMBEDDED: Mapping[tuple[str, str], Embedded] = {
    ("classic_member", "topic_names"): Embedded(many(pa.binary()), _topics),
    ("classic_member", "rack_id"): Embedded(many(pa.binary()), _rack),
    ("classic_assignment", "assigned"): Embedded(pa.binary(), _places),
    ("classic_assignment", "assignment_bytes"): Embedded(pa.binary(), lambda raw: len(raw or b"")),
}
