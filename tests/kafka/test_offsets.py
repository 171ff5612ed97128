"""Offsets that brokers keep: a group with an error is left out, and is not one without offsets."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import BrokerConnection
from sidecar.kafka.offsets import committed
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.primitives import WireError

HEADER = 9
"""Bytes of a response before its body: its size, its correlation id and no tags."""
HAS = [of.OffsetFetchResponseTopic("orders", [of.OffsetFetchResponsePartition(0, committed_offset=7)])]
HELD = of.OffsetFetchResponsePartitions(0, committed_offset=7)
ERRORS = {"open": Code.NONE, "closed": Code.GROUP_AUTHORIZATION_FAILED, "empty": Code.NONE}


class Broker:
    """Refuses one of three groups. `several`: it takes requests for several groups, as brokers do since 3.0."""

    def __init__(self, several: bool) -> None:
        self.several = several

    async def exchange(
        self, module: Any, name: str, req: of.OffsetFetchRequest, high: int, timeout_s: float, low: int
    ) -> tuple[int, bool, bytes]:
        if not self.several:
            raise WireError("OffsetFetch: the broker has versions 0 to 7")
        topics = {"open": [of.OffsetFetchResponseTopics("orders", partitions=[HELD])]}
        groups = [
            of.OffsetFetchResponseGroup(g.group_id, topics.get(g.group_id, []), ERRORS[g.group_id]) for g in req.groups
        ]
        return high, True, bytes(HEADER) + of.OffsetFetchResponse(groups=groups).encode(high)

    async def request(
        self, module: Any, name: str, req: of.OffsetFetchRequest, high: int, timeout_s: float, low: int
    ) -> of.OffsetFetchResponse:
        return of.OffsetFetchResponse(topics=HAS if req.group_id == "open" else [], error_code=ERRORS[req.group_id])


@pytest.mark.parametrize("several", [True, False])
def test_a_group_with_an_error_is_left_out(several: bool) -> None:
    found = asyncio.run(committed(cast(BrokerConnection, Broker(several)), list(ERRORS), 1.0))
    assert found == {"open": {("orders", 0): 7}, "empty": {}}
