"""ApiVersions (api 18): which APIs and which of their versions a client may use here.

v1: the answer adds the throttle time.
v3: it is flexible, and the client names its software. The answer's header never has tagged fields (KIP-511).
v4: the range of a supported feature may begin at 0 (KAFKA-17011).
v5: the client says to which cluster and node it means to speak; the broker may answer REBOOTSTRAP_REQUIRED (KIP-1242).

The broker answers for itself; while it is silent, its last answer is given again. For the group APIs the answer has the
versions that both broker and sidecar serve, and those that the sidecar brings itself while it manages any group. An
error of the broker passes, and nothing is learnt from it.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from sidecar.api.call import CONSUMER_COMMIT, BrokerSilent, Call, Handler, Ranges, upstream
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import BY_ID, IDS_SINCE, SERVED, Api, Kind
from sidecar.wire.generated import api_versions as av

ANSWERS = 32
"""Answers that are kept, of about a kilobyte each: one for each version that clients ask in, and again when features
have changed at the broker."""
FEATURES_FROM_0 = 4
"""The first version whose features may begin at 0. For older ones Kafka leaves such features out, as they end the
client (KAFKA-17011)."""


def api_versions(call: Call) -> Handler:
    # The request goes on as it is, so that a broker that refuses the version does it in its own words.
    try:
        body = yield from upstream(call)
    except BrokerSilent:
        body = _as_remembered(call)
    code = int.from_bytes(body[:2], "big", signed=True)
    if code == Code.UNSUPPORTED_VERSION:
        return _answer(0, body, False, False).answer  # in version 0, whatever was asked (KIP-511)
    if code != Code.NONE:
        return body
    if call.version > SERVED[Api.API_VERSIONS].high:
        return _too_new().encode(0)
    learnt, cached = call.scope.learnt, _answer(call.version, body, call.scope.managing, call.scope.streams)
    learnt.versions[call.version], learnt.served = body, cached.served
    call.client.broker_versions = learnt.ranges = cached.theirs
    return cached.answer


def _as_remembered(call: Call) -> bytes:
    """Returns the broker's last answer in this version, or another version's with the same content. Raises
    BrokerSilent."""
    known = call.scope.learnt.versions
    if call.version in known:
        return known[call.version]
    if not known:
        raise BrokerSilent
    newest = max(known)
    res = av.ApiVersionsResponse.decode(newest, known[newest])
    high = next((k.max_version for k in res.api_keys if k.api_key == Api.API_VERSIONS), newest)
    if call.version > min(high, SERVED[Api.API_VERSIONS].high):
        return _too_new().encode(0)
    if call.version < FEATURES_FROM_0:
        res.supported_features = [f for f in res.supported_features if f.min_version > 0]
    return res.encode(call.version)


class _Answer(NamedTuple):
    """An answer to clients, and its content. `theirs`: the broker's ranges. `served`: api key and version of what may
    be used here, of the APIs that the sidecar reads; Kafka closes the connection of a client that uses another version.
    APIs that the sidecar brings are always in it: clients may ask for them before groups are managed, and after."""

    theirs: Ranges
    served: frozenset[tuple[int, int]]
    answer: bytes


@lru_cache(maxsize=ANSWERS)
def _answer(version: int, body: bytes, managing: bool, streams: bool) -> _Answer:
    """Returns the answer to clients, cached. A broker answers all its clients in the same words, and each connection
    begins with this question: a thousand at once should cost little more than one."""
    res = av.ApiVersionsResponse.decode(version, body)
    theirs = MappingProxyType({k.api_key: (k.min_version, k.max_version) for k in res.api_keys})
    most = _merged(theirs, True, streams)
    ranges = sorted((most if managing else _merged(theirs, False, streams)).items())
    res.api_keys = [av.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges]
    served = frozenset((key, v) for key in SERVED if key in most for v in range(most[key][0], most[key][1] + 1))
    return _Answer(theirs, served, res.encode(version))


def _too_new() -> av.ApiVersionsResponse:
    """Returns UNSUPPORTED_VERSION: the sidecar cannot read the broker's answer in this version. The client comes back
    with an older one (KIP-511)."""
    spec = SERVED[Api.API_VERSIONS]
    known = av.ApiVersion(api_key=Api.API_VERSIONS, min_version=spec.low, max_version=spec.high)
    return av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[known])


def _merged(theirs: Ranges, managing: bool, streams: bool) -> Ranges:
    merged = dict(theirs)
    lowest, highest = theirs.get(Api.METADATA, (0, -1))
    bringing = managing and highest >= IDS_SINCE  # without ids of topics there are no consumer groups
    if bringing and highest < BY_ID:
        merged[Api.METADATA] = (lowest, BY_ID)
    for key, spec in SERVED.items():
        if key == Api.METADATA:
            continue
        if spec.brought and (streams or spec.kind is not Kind.STREAMS):
            if bringing:
                merged[key] = (spec.low, spec.high)
        elif key in theirs:
            low, high = max(spec.low, theirs[key][0]), min(spec.high, theirs[key][1])
            if key == Api.OFFSET_COMMIT and bringing:
                high = max(CONSUMER_COMMIT, high)
            if low <= high:
                merged[key] = (low, high)
            else:  # no version that both can
                del merged[key]
    return merged
