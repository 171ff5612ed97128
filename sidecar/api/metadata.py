"""Metadata (api 3) with ids of topics, for brokers that return ids but take none: Kafka 2.8 and 3.0.

v10: topics have ids, in answers.
v12: topics may be asked for by id (KIP-516); as long as none is, the bytes are those of v11.
v13: an answer has an error of its own (KIP-1102); brokers that serve it take ids.

librdkafka's members of consumer groups ask by id. So v12 is brought to these brokers, and their clients' Metadata comes
here. Everywhere else Metadata passes, and this handler never sees it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sidecar.api import slices
from sidecar.api.call import FORWARD, Call, Handler, Want, ask, forward_in
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import BY_ID, Api
from sidecar.wire.frames import response_body
from sidecar.wire.generated import metadata as md
from sidecar.wire.primitives import ZERO_UUID

OLDER = BY_ID - 1


def metadata(call: Call) -> Handler:
    if call.version < BY_ID:
        return FORWARD
    req = yield from slices.request(call, md.MetadataRequest)
    by_id = yield from slices.chosen(req.topics or (), lambda t: t.topic_id != ZERO_UUID)
    if not by_id:
        return forward_in(call, OLDER)
    wanted = yield from slices.sorted_once(t.topic_id for t in by_id)
    return (yield from _by_id(call, wanted, req.include_topic_authorized_operations))


def _by_id(call: Call, wanted: list[bytes], operations: bool) -> Generator[Want, Any, bytes]:
    """Answers from a list of all topics: the broker returns those that this client may describe."""
    everything = md.MetadataRequest(None, False, include_topic_authorized_operations=operations).encode(OLDER)
    frame = yield from ask(call, Api.METADATA, OLDER, everything, flexible=True)
    res = yield from slices.decoded(md.MetadataResponse, OLDER, frame, response_body(frame, True))
    ids = frozenset(wanted)
    res.topics = yield from slices.chosen(res.topics, lambda t: t.topic_id in ids)
    known = {t.topic_id for t in res.topics}
    for t in res.topics:
        t.is_internal = t.is_internal or t.name == call.scope.own.topic
    res.topics += [md.MetadataResponseTopic(Code.UNKNOWN_TOPIC_ID, None, i) for i in wanted if i not in known]
    return (yield from slices.encoded(res, call.version))
