"""Answers of the broker that the sidecar changes: ApiVersions, FindCoordinator, ListGroups. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sidecar.api.translate import matches
from sidecar.core.errors import Code
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.primitives import WireError

GROUP = 0
Broker = tuple[int, str, int]
"""Node id, host, port."""


def api_versions(body: bytes, version: int, managing: bool) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """The broker's ranges; for the group APIs what both can, and what the sidecar brings itself while it manages any
    group. Returns the new body and the broker's own ranges."""
    res, used = _decode_api_versions(body, version)
    theirs = {k.api_key: (k.min_version, k.max_version) for k in res.api_keys}
    keys: dict[int, tuple[int, int]] = dict(theirs)
    for key, spec in SERVED.items():
        if key == Api.API_VERSIONS:
            continue
        if spec.brought:
            if managing:
                keys[key] = (spec.low, spec.high)
        elif key == Api.OFFSET_COMMIT and managing and key in theirs:
            # Members of consumer groups commit with v9; an older broker gets the same bytes as v8.
            keys[key] = (max(spec.low, theirs[key][0]), max(9, min(spec.high, theirs[key][1])))
        elif key in theirs:
            keys[key] = (max(spec.low, theirs[key][0]), min(spec.high, theirs[key][1]))
    res.api_keys = [av.ApiVersion(api_key=k, min_version=v[0], max_version=v[1]) for k, v in sorted(keys.items())]
    return res.encode(used), theirs


def _decode_api_versions(body: bytes, version: int) -> tuple[av.ApiVersionsResponse, int]:
    """A broker answers UNSUPPORTED_VERSION in version 0, whatever was asked (KIP-511)."""
    code = int.from_bytes(body[:2], "big", signed=True)
    used = 0 if code == Code.UNSUPPORTED_VERSION or version > SERVED[Api.API_VERSIONS].high else version
    return av.ApiVersionsResponse.decode(used, body), used


def find_coordinator(
    body: bytes,
    version: int,
    key: str,
    key_type: int,
    managed: Callable[[str], bool],
    owner: Callable[[str], Broker | None],
) -> bytes:
    """Managed groups get their owner's broker. What the broker's authorizer refused stays refused."""
    res = fc.FindCoordinatorResponse.decode(version, body)
    if key_type != GROUP:
        return body
    if version < 4:
        if managed(key) and res.error_code != Code.GROUP_AUTHORIZATION_FAILED:
            found = owner(key)
            res.error_code, res.error_message, (res.node_id, res.host, res.port) = _found(found)
        return res.encode(version)
    for c in res.coordinators:
        if managed(c.key) and c.error_code != Code.GROUP_AUTHORIZATION_FAILED:
            c.error_code, c.error_message, (c.node_id, c.host, c.port) = _found(owner(c.key))
    return res.encode(version)


def _found(broker: Broker | None) -> tuple[int, str | None, Broker]:
    if broker is None:
        return Code.COORDINATOR_NOT_AVAILABLE, "The group's owner is not known yet.", (-1, "", -1)
    return Code.NONE, None, broker


def list_groups(
    body: bytes,
    version: int,
    states: Iterable[str],
    types: Iterable[str],
    ours: Callable[[str], bool],
    mine: Iterable[tuple[str, str]],
    error: Code,
) -> bytes:
    """The broker's groups without those that `__group_state` knows, and the consumer groups owned here: each once.
    `mine`: (group id, state)."""
    res = lg.ListGroupsResponse.decode(version, body)
    if res.error_code != Code.NONE:
        return body
    if error != Code.NONE:
        return lg.ListGroupsResponse(error_code=error).encode(version)
    res.groups = [g for g in res.groups if not ours(g.group_id)]
    for group_id, state in sorted(mine):
        if matches(states, state) and matches(types, "consumer"):
            res.groups.append(
                lg.ListedGroup(group_id=group_id, protocol_type="consumer", group_state=state, group_type="consumer")
            )
    return res.encode(version)


__all__ = ["WireError", "api_versions", "find_coordinator", "list_groups"]
