"""Handlers of the group APIs other than the heartbeat, one for each API: managed groups here, others to the broker."""

from __future__ import annotations

from typing import Any

from sidecar.api import rewrite
from sidecar.api import translate as tr
from sidecar.core.consumer.target import preferred_assignor
from sidecar.core.errors import Code
from sidecar.proxy.connection import Got
from sidecar.runtime.front import Front, Handler
from sidecar.runtime.handlers_configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from sidecar.runtime.handlers_offsets import offset_commit, offset_delete, offset_fetch, txn_offset_commit
from sidecar.runtime.session import Session
from sidecar.wire.apis import SERVED, Api, response_flexible
from sidecar.wire.frames import response_body
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import sync_group as sy


async def _upstream(front: Front, session: Session, got: Got, pos: int, body: bytes | None = None) -> bytes:
    """Send the request on, as it is or with another body; returns the response's body."""
    flexible = got.version >= SERVED[got.api_key].flexible_from
    raw = got.frame[pos:] if body is None else body
    frame = await front.ask(session, got, got.api_key, got.version, raw, flexible)
    return frame[response_body(frame, response_flexible(got.api_key, got.version)) :]


async def api_versions(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    # The request goes on unchanged, so that a broker answers versions newer than ours as it does.
    frame = await session.ask(got.token, got.frame)
    body, session.broker_versions = rewrite.api_versions(frame[8:], got.version, front.managing)
    front.body_reply(session, got, body)


async def find_coordinator(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    req = fc.FindCoordinatorRequest.decode(got.version, got.frame, pos)
    names = [req.key] if got.version < 4 else req.coordinator_keys
    if req.key_type != rewrite.GROUP or not any(front.managed(n) for n in names):
        session.forward(got)
        return
    body = await _upstream(front, session, got, pos)

    def owner(group_id: str) -> tuple[int, str, int] | None:
        node = front.host.owner_node(group_id) if front.host else None
        address = front.client_brokers.get(node) if node is not None else None
        return None if node is None or address is None else (node, *address)

    body = rewrite.find_coordinator(body, got.version, req.key, req.key_type, front.managed, owner)
    front.body_reply(session, got, body)


async def list_groups(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    if not front.managing:
        session.forward(got)
        return
    req = lg.ListGroupsRequest.decode(got.version, got.frame, pos)
    body = await _upstream(front, session, got, pos)
    host = front.host
    mine: list[tuple[str, str]] = []
    error = Code.NONE
    if host is not None and host.ownership is not None and host.ownership.lease_valid():
        if any(p not in host.active for p in host.assigned):
            error = Code.COORDINATOR_LOAD_IN_PROGRESS
        for owned in list(host.active.values()):
            for group_id in list(owned.undecoded):
                host.find(group_id)
            mine += [(g.group_id, str(g.state())) for g in owned.shard.groups.values() if front.managed(g.group_id)]
    hidden = await front.access.hidden_groups(session, got, [g for g, _ in mine])
    mine = [(g, s) for g, s in mine if g not in hidden]
    states, types = (req.states_filter, req.types_filter)

    here = {group_id for group_id, _ in mine}

    def ours(group_id: str) -> bool:
        return front.managed(group_id) and (group_id in here or (host is not None and host.known(group_id)))

    front.body_reply(session, got, rewrite.list_groups(body, got.version, states, types, ours, mine, error))


async def describe_groups(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    """Managed groups are consumer groups, so 'not classic'; those with nothing but offsets are the broker's."""
    req = dg.DescribeGroupsRequest.decode(got.version, got.frame, pos)
    host = front.host
    local = [g for g in req.groups if front.managed(g) and (host is None or host.known(g))]
    if not local:
        session.forward(got)
        return
    theirs = [g for g in req.groups if g not in local]
    res = dg.DescribeGroupsResponse()
    if theirs:
        req.groups = theirs
        res = dg.DescribeGroupsResponse.decode(
            got.version, await _upstream(front, session, got, pos, req.encode(got.version))
        )
    hidden = await front.access.hidden_groups(session, got, local)
    for group_id in local:
        owned = await front.owned(group_id)
        code = owned if isinstance(owned, Code) else Code.NONE
        if group_id in hidden:
            code = Code.GROUP_AUTHORIZATION_FAILED
        res.groups.append(tr.not_classic(group_id, code, got.version))
    front.body_reply(session, got, res.encode(got.version))


async def consumer_group_describe(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    req = cd.ConsumerGroupDescribeRequest.decode(got.version, got.frame, pos)
    local = [g for g in req.group_ids if front.managed(g)]
    theirs = [g for g in req.group_ids if g not in local]
    known = session.broker_versions
    supported = known is None or got.api_key in known
    if not local and supported:
        session.forward(got)
        return
    res = cd.ConsumerGroupDescribeResponse()
    if theirs and supported:
        req.group_ids = theirs
        body = await _upstream(front, session, got, pos, req.encode(got.version))
        res = cd.ConsumerGroupDescribeResponse.decode(got.version, body)
    elif theirs:
        res.groups = [
            tr.describe_error(g, Code.GROUP_ID_NOT_FOUND, f"Group {g} is not a consumer group.") for g in theirs
        ]
    waits = []
    hidden = await front.access.hidden_groups(session, got, local)
    for group_id in local:
        owned = await front.owned(group_id)
        if group_id in hidden:
            owned = Code.GROUP_AUTHORIZATION_FAILED
        if isinstance(owned, Code):
            res.groups.append(tr.describe_error(group_id, owned, None))
            continue
        group = owned.shard.groups.get(group_id)
        if group is None:
            res.groups.append(tr.describe_error(group_id, Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."))
            continue
        assignor = preferred_assignor(group, front.configs.group(group_id))
        told = tr.describe(group, owned.shard.image, assignor)
        if await front.access.hidden_topics(session, got, tr.topics_of(told)):
            what = "The group has described topic(s) that the client is not authorized to describe."
            told = tr.describe_error(group_id, Code.TOPIC_AUTHORIZATION_FAILED, what)
        res.groups.append(told)
        waits.append(owned)
    # Reads see committed state only: what was read is answered once all before it is committed.
    for owned in waits:
        await owned.writer.append_wait(())
    front.body_reply(session, got, res.encode(got.version))


async def delete_groups(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    """A managed group with members stays; of an empty one both the state here and the broker's offsets go."""
    req = dl.DeleteGroupsRequest.decode(got.version, got.frame, pos)
    errors: dict[str, Code] = {}
    held: set[str] = set()
    for group_id in req.groups_names:
        if not front.managed(group_id):
            continue
        owned = await front.owned(group_id)
        if isinstance(owned, Code):
            errors[group_id] = owned
            continue
        group = owned.shard.groups.get(group_id)
        if group is not None and group.members:
            # The broker cannot be asked about DELETE without deleting; who may delete may describe.
            hidden = await front.access.hidden_groups(session, got, [group_id])
            errors[group_id] = Code.GROUP_AUTHORIZATION_FAILED if hidden else Code.NON_EMPTY_GROUP
        elif group is not None:
            held.add(group_id)
    theirs = [g for g in req.groups_names if g not in errors]
    res = dl.DeleteGroupsResponse()
    if theirs:
        req.groups_names = theirs
        body = await _upstream(front, session, got, pos, req.encode(got.version))
        res = dl.DeleteGroupsResponse.decode(got.version, body)
    for result in res.results:
        if result.group_id in held and result.error_code in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            result.error_code = await front.delete_group(result.group_id)
    res.results += [dl.DeletableGroupResult(g, c) for g, c in errors.items()]
    front.body_reply(session, got, res.encode(got.version))


def _classic(module: Any, name: str, code: Code) -> Handler:
    """The classic protocol is not served for managed groups yet: their clients get the error a broker gives to a
    member that the group's protocol does not admit."""

    async def handler(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
        req = getattr(module, f"{name}Request").decode(got.version, got.frame, pos)
        if not front.managed(req.group_id):
            session.forward(got)
            return
        res = getattr(module, f"{name}Response")(error_code=code)
        if name == "JoinGroup":
            res.generation_id, res.member_id = -1, req.member_id
        front.log.info("classic protocol refused", group_id=req.group_id, api=name, client=session.host)
        front.body_reply(session, got, res.encode(got.version))

    return handler


async def _heartbeat(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    await front.consumer_heartbeat(session, got, client_id, pos)


HANDLERS: dict[int, Handler] = {
    Api.API_VERSIONS: api_versions,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.LIST_GROUPS: list_groups,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    Api.CONSUMER_GROUP_HEARTBEAT: _heartbeat,
    Api.DELETE_GROUPS: delete_groups,
    Api.ALTER_CONFIGS: alter_configs,
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.OFFSET_DELETE: offset_delete,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit,
    Api.JOIN_GROUP: _classic(jg, "JoinGroup", Code.INCONSISTENT_GROUP_PROTOCOL),
    Api.SYNC_GROUP: _classic(sy, "SyncGroup", Code.UNKNOWN_MEMBER_ID),
    Api.HEARTBEAT: _classic(hb, "Heartbeat", Code.UNKNOWN_MEMBER_ID),
    Api.LEAVE_GROUP: _classic(le, "LeaveGroup", Code.UNKNOWN_MEMBER_ID),
}
