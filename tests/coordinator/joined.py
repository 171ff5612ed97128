"""A sidecar whose broker gives placeholders, for the tests of placeholders and of the commits that go on in their
names."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.coordinator.placeholder import broker_membership as membership
from sidecar.coordinator.placeholder import placeholders
from sidecar.core.runtime import lifecycle
from sidecar.core.vocabulary.errors import Code
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Stamp
from sidecar.wire.apis import Api
from tests.inprocess.broker import STATE
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar
from tests.inprocess.messages import commit, join
from tests.inprocess.placeholder_group import PlaceholderGroup

OURS = "kafka-group-sidecar"
SLOW_S = 0.3
"""Seconds for which the broker holds back a first JoinGroup in these tests."""


def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of milliseconds instead of seconds."""
    monkeypatch.setattr(membership, "EARLY_S", 0.005)
    monkeypatch.setattr(placeholders, "PAUSE_MS", 5)
    monkeypatch.setattr(placeholders, "PAUSE_MAX_MS", 20)
    monkeypatch.setattr(placeholders, "TICK_S", 0.01)
    monkeypatch.setattr(lifecycle, "REBUILD_MS", 10)


def identity(sidecar: EmbeddedSidecar, group: str = "g") -> PlaceholderGroup:
    return sidecar.brokers.placeholders[group]


async def joined(sidecar: EmbeddedSidecar, group: str = "g") -> tuple[EmbeddedClient, int]:
    """A client with a member, and its epoch."""
    client = await sidecar.client()
    reply = await client.ask(join(group, "m1"), 1)
    assert reply.error_code == Code.NONE
    return client, reply.member_epoch


async def committed(client: EmbeddedClient, epoch: int, group: str = "g", member: str = "m1") -> int:
    res = await client.ask(commit(group, member, epoch, "orders", {0: 7}), 9)
    return int(res.topics[0].partitions[0].error_code)


async def simple_commit(client: EmbeddedClient, group: str = "g") -> int:
    return await committed(client, -1, group, "")


def names(sidecar: EmbeddedSidecar) -> list[tuple[str, int]]:
    """Returns member id and generation of each commit that has reached the broker."""
    return [(r.member_id, r.generation_id_or_member_epoch) for r in sidecar.brokers.requests(Api.OFFSET_COMMIT)]


def taken_over(sidecar: EmbeddedSidecar) -> None:
    """Another sidecar fences this one and claims the partition."""
    made = sidecar.brokers.init(f"{STATE}-0")
    claim = sidecar.codec.claim(Stamp(made.producer_id << 16 | made.epoch, 1), 2, "broker-2:9092", "m-2", 9, "assigned")
    code, _ = sidecar.brokers.append(STATE, 0, encode_batch([claim], 1, made.producer_id, made.epoch, 0))
    assert code == Code.NONE


def ours(req: Any) -> bool:
    return getattr(req, "group_instance_id", OURS) == OURS
