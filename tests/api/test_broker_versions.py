"""The broker gets each request in a version that it serves, and under the client's own id.

A broker closes the connection at any other version. The sidecar announces versions that the broker lacks, for the
groups that it coordinates itself. A client may use them for a group of the broker's, and over a connection on which it
has not asked for ApiVersions: franz-go before 1.23, kafkajs and kafka-python 2.0 ask each broker, or one, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from sidecar.api.call import Ask, Call, Client, Forward, Learnt, Scope, Start
from sidecar.api.handlers import HANDLERS, READ_THEIR_HEADER
from sidecar.link.messages import View
from sidecar.wire.apis import Api, looked_into
from sidecar.wire.frames import PREFIX, header_end, request_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.primitives import WireError
from tests.api.announced import Ranges, announced
from tests.api.grown import GROUP, arrays, came_of, grown, request_class
from tests.api.play import CORRELATION, KEEP_MS, NODE, VIEW, Play, flexible

pytestmark = pytest.mark.tier("test")

KAFKAS = announced()
KINDS = {"the broker's": "none", "managed": GROUP}
"""Beginning of the names of managed groups."""


def asked_for(kafka: Ranges, learnt: Learnt, streams: bool) -> Ranges:
    """Returns what a client is offered in front of this Kafka."""
    theirs = av.ApiVersionsResponse(api_keys=[av.ApiVersion(key, *versions) for key, versions in kafka.items()])
    play = Play(Api.API_VERSIONS, av.ApiVersionsRequest("app", "1"), 3, learnt=learnt, streams=streams)
    res = av.ApiVersionsResponse.decode(3, play.asks().broker(theirs).gives())
    return {k.api_key: (k.min_version, k.max_version) for k in res.api_keys}


def frames_to_broker(call: Call) -> Iterator[bytes]:
    """Yields each request that the handler sends, or passes, to the broker behind this sidecar."""
    handler, value = HANDLERS[call.api_key](call), None
    while True:
        try:
            want = handler.send(value)
        except StopIteration as ended:
            if isinstance(ended.value, Forward):
                yield ended.value.frame or call.frame
            return
        if isinstance(want, Ask | Start):
            yield want.frame
        value = came_of(want)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("connection", ["that has asked", "that has not"])
@pytest.mark.parametrize("whose", KINDS)
@pytest.mark.parametrize("kafka", KAFKAS)
def test_the_broker_gets_versions_that_it_serves(kafka: str, whose: str, connection: str, streams: bool) -> None:
    """Symptom: before Kafka up to 3.6 no group of the broker's could commit offsets if its client knew version 9."""
    ranges, learnt, wrong = KAFKAS[kafka], Learnt(), set()
    offered = asked_for(ranges, learnt, streams)
    for api in looked_into(ranges).keys() & offered.keys() - {Api.API_VERSIONS}:
        for version in range(offered[api][0], offered[api][1] + 1):
            for body in bodies(api, version):
                client = Client("10.0.0.9", broker_versions=ranges if connection == "that has asked" else None)
                call = _call(Api(api), version, body, client, learnt, KINDS[whose], streams)
                frames = (PREFIX.unpack_from(frame)[1:3] for frame in frames_to_broker(call))
                sent = [s for s in frames if not serves(ranges, *s)]
                wrong |= {(*s, "for", Api(api).name, version) for s in sent}
    assert not wrong


def bodies(api: int, version: int) -> Iterator[bytes]:
    """Yields a request with one element in each array, and with several; of heartbeats, joins and later ones."""
    cls = request_class(api)
    for path in ((), *arrays(cls)):
        request = grown(cls, path, 3)
        for epoch in (0, 1):
            if hasattr(request, "member_epoch"):
                request.member_epoch = epoch
            with suppress(WireError):  # a field that this version lacks
                yield request.encode(version)


RIGHTS = frozenset(
    (
        Api.HEARTBEAT,
        Api.OFFSET_DELETE,
        Api.DESCRIBE_GROUPS,
        Api.METADATA,
        Api.DESCRIBE_CONFIGS,
        Api.INCREMENTAL_ALTER_CONFIGS,
    )
)
"""Requests that the sidecar sends for its own questions, too."""


@pytest.mark.parametrize("whose", KINDS)
@pytest.mark.parametrize("kafka", KAFKAS)
def test_a_changed_request_keeps_its_client_id(kafka: str, whose: str) -> None:
    """Symptom: the commits of all clients shared one quota of client ids; a broker named its members after the
    sidecar."""
    ranges, learnt = KAFKAS[kafka], Learnt()
    changed = 0
    for api, (_, version) in asked_for(ranges, learnt, streams=True).items():
        if api not in looked_into(ranges).keys() - RIGHTS - {Api.API_VERSIONS}:
            continue
        for body in bodies(api, version):
            client = Client("10.0.0.9", broker_versions=ranges)
            call = _call(Api(api), version, body, client, learnt, KINDS[whose], True)
            for frame in frames_to_broker(call):
                key, sent_version = PREFIX.unpack_from(frame)[1:3]
                if key == api and frame != call.frame:
                    changed += 1
                    assert header_end(frame, PREFIX.size, flexible(key, sent_version))[0] == "app", Api(api).name
    assert changed or whose == "the broker's"


def serves(ranges: Ranges, api: int, version: int) -> bool:
    low, high = ranges.get(api, (0, -1))
    return low <= version <= high


def _call(api: Api, version: int, body: bytes, client: Client, learnt: Learnt, managed: str, streams: bool) -> Call:
    frame = request_frame(api, version, CORRELATION, "app", flexible(api, version), body)
    pos = PREFIX.size if api in READ_THEIR_HEADER else header_end(frame, PREFIX.size, flexible(api, version))[1]
    scope = Scope(
        NODE, lambda g: g.startswith(managed), True, KEEP_MS, lambda: "new-id", streams=streams, learnt=learnt
    )
    view = View(owners=VIEW.owners, leaders=VIEW.leaders, brokers=VIEW.brokers)
    return Call(scope, client, view, api, version, CORRELATION, frame, pos, "app", 1_000)
