"""The state topic is shown as internal in what brokers tell of topics, however their answers are cut."""

from __future__ import annotations

import random

import pytest

from sidecar.proxy.actions import ToClient
from sidecar.proxy.connection import ClientConnection
from sidecar.proxy.internal import CHANGE_TOPICS, Internal
from sidecar.wire.apis import Api
from sidecar.wire.frames import Limits, request_frame, response_body, response_frame
from sidecar.wire.generated import describe_topic_partitions as dp
from sidecar.wire.generated import metadata as md

STATE = "__group_state"
NAMES = (STATE, f"x{STATE}", f"{STATE}x", "orders", "o", "a" * 249)
VERSIONS = [(Api.METADATA, v) for v in range(14)] + [(Api.DESCRIBE_TOPIC_PARTITIONS, 0)]


def flexible(api: int, version: int) -> bool:
    return api == Api.DESCRIBE_TOPIC_PARTITIONS or version >= 9


def answer(api: int, version: int, rng: random.Random, names: tuple[str, ...] = NAMES) -> bytes:
    if api == Api.METADATA:
        topics = [
            md.MetadataResponseTopic(0, n, rng.randbytes(16), False, _partitions(rng))
            for n in rng.sample(names, len(names))
        ]
        brokers = [md.MetadataResponseBroker(1, "h", 1, "rack")]
        return md.MetadataResponse(0, brokers, "cluster", 1, topics).encode(version)
    told = [
        dp.DescribeTopicPartitionsResponseTopic(0, n, rng.randbytes(16), False) for n in rng.sample(names, len(names))
    ]
    return dp.DescribeTopicPartitionsResponse(0, told, dp.ResponseCursor(STATE, 3)).encode(version)


def _partitions(rng: random.Random) -> list[md.MetadataResponsePartition]:
    return [md.MetadataResponsePartition(0, p, 1, 0, [1], [1]) for p in range(rng.randint(0, 5))]


def passed(api: int, version: int, body: bytes, cut: int, internal: Internal) -> bytes:
    """Returns what the client gets of this answer, which comes in pieces of `cut` bytes; another one follows it."""
    conn = ClientConnection(Limits(), internal)
    for correlation in (1, 2):
        conn.from_client(request_frame(api, version, correlation, "c", flexible(api, version), b"x"))
    frame = response_frame(1, flexible(api, version), body) + response_frame(2, flexible(api, version), b"next")
    got = b""
    for at in range(0, len(frame), cut):
        got += b"".join(a.data for a in conn.from_upstream(frame[at : at + cut]) if isinstance(a, ToClient))
    assert len(got) == len(frame) and got.endswith(b"next") and conn.idle
    return got[: 4 + int.from_bytes(got[:4], "big")]


def decoded(api: int, version: int, frame: bytes) -> dict[str | None, bool]:
    at = response_body(frame, flexible(api, version))
    if api == Api.METADATA:
        return {t.name: t.is_internal for t in md.MetadataResponse.decode(version, frame, at).topics}
    return {t.name: t.is_internal for t in dp.DescribeTopicPartitionsResponse.decode(version, frame, at).topics}


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda v: v.name.lower() if isinstance(v, Api) else f"v{v}")
def test_the_flag_is_set_and_nothing_else_changes(api: Api, version: int) -> None:
    rng = random.Random(version)
    for cut in (1, 2, 7, 31, 64, 1_000, 100_000):
        body = answer(api, version, rng)
        before = response_frame(1, flexible(api, version), body)
        after = passed(api, version, body, cut, Internal(STATE))
        shown = decoded(api, version, after)
        assert shown == {n: n == STATE and (api, version) != (Api.METADATA, 0) for n in NAMES}
        assert sum(a != b for a, b in zip(before, after, strict=True)) == ((api, version) != (Api.METADATA, 0))


def test_what_does_not_tell_of_the_topic_stays_as_it_is() -> None:
    for api, version in VERSIONS:
        body = answer(api, version, random.Random(1), ("orders", f"{STATE}-2", "x"))
        for cut in (5, 10_000):
            frame = passed(api, version, body, cut, Internal(STATE))
            assert frame == response_frame(1, flexible(api, version), body)


@pytest.mark.parametrize("api", CHANGE_TOPICS, ids=lambda a: a.name.lower())
@pytest.mark.parametrize("cut", [1, 7, 100_000])
def test_the_end_of_an_answer_about_changed_topics_is_told_of_before_it_leaves(api: Api, cut: int) -> None:
    told: list[int] = []
    conn = ClientConnection(Limits(), Internal(STATE, lambda: told.append(len(got))))
    for correlation in (1, 2):
        conn.from_client(request_frame(api, 5, correlation, "c", True, b"x"))
    frame, got = response_frame(1, True, b"answer") + response_frame(2, True, b"next"), b""
    for at in range(0, len(frame), cut):
        got += b"".join(a.data for a in conn.from_upstream(frame[at : at + cut]) if isinstance(a, ToClient))
    assert got == frame and len(told) == 2
    assert told[0] < len(response_frame(1, True, b"answer")) and told[1] < len(frame)


def test_other_answers_are_not_looked_at() -> None:
    body = answer(Api.METADATA, 12, random.Random(1))
    assert passed(Api.DELETE_TOPICS, 6, body, 9, Internal(STATE)) == response_frame(1, False, body)
    assert passed(Api.METADATA, 12, body, 9, Internal("")) == response_frame(1, True, body)
