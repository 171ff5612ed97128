"""Group ids of the greatest length: a broker cannot say that it has no such group, as its words would be too long.

Symptom: groups with ids from 32,755 bytes on were answered COORDINATOR_LOAD_IN_PROGRESS for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sidecar.core.vocabulary.errors import MESSAGE_CHARS, Code, CoordinatorError
from sidecar.kafka import native
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_groups as dg


class Broker:
    """Knows no group. Where the answer has room for a message, one that is too long is an error of its own."""

    async def request(
        self, module: Any, name: str, req: Any, high: int | None = None, timeout_s: float = 10.0, low: int = 0
    ) -> Any:
        if name == "DescribeGroups":
            code, _ = self.not_found(f"Group {req.groups[0]} not found.")
            if high is not None and high < native.OTHER_KINDS_SINCE:
                return dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(group_state="Dead")])
            return dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(code, group_state="Dead")])
        code, message = self.not_found(f"Group {req.group_ids[0]} not found.")
        return cd.ConsumerGroupDescribeResponse(groups=[cd.DescribedGroup(code, message)])

    def not_found(self, message: str) -> tuple[Code, str | None]:
        fits = len(message.encode()) <= native.STRING_MAX
        return (Code.GROUP_ID_NOT_FOUND, message) if fits else (Code.UNKNOWN_SERVER_ERROR, None)


@pytest.mark.parametrize("length", [1, 32_700, 32_737, 32_750, 32_755, 32_767])
def test_nobody_is_in_a_group_that_the_broker_does_not_know(length: int) -> None:
    found = asyncio.run(native.describe(cast(BrokerConnection, Broker()), "g" * length, 1.0))
    assert found == native.Native(native.NO_MEMBERS)


def test_an_error_of_a_broker_about_a_short_id_stays_an_error() -> None:
    class Broken(Broker):
        def not_found(self, message: str) -> tuple[Code, str | None]:
            return Code.UNKNOWN_SERVER_ERROR, None

    with pytest.raises(ConnectionLost):
        asyncio.run(native.describe(cast(BrokerConnection, Broken()), "g", 1.0))


def test_words_about_a_long_id_fit_into_a_string() -> None:
    refused = CoordinatorError(Code.GROUP_ID_NOT_FOUND, "\U0001f600" * 30_000)
    assert len(refused.message) == MESSAGE_CHARS + 3
    assert len(refused.message.encode()) <= native.STRING_MAX
