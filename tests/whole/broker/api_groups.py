"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups. And the APIs of consumer
groups, which here are answered as by a broker that has no such group."""

from __future__ import annotations

from functools import partial

from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import list_groups as ls
from sidecar.wire.generated import sync_group as sg
from tests.whole.broker import rights as rt
from tests.whole.broker.classic import JoinAsked
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.group import Group, Joined, Member, State, Synced

DEAD = "Dead"
UNKNOWN_GROUP = "Unknown"


# ---- members ------------------------------------------------------------------------------------------------------
def join_group(ctx: Context, req: jg.JoinGroupRequest, reply: Reply) -> None:
    def told(j: Joined) -> None:
        ctx.node.cluster.on_joined(req.group_id, j.member_id, j.generation)
        members = [jg.JoinGroupResponseMember(*m) for m in j.members]
        protocol = j.protocol if j.protocol is not None or ctx.version >= 7 else ""
        kind = j.protocol_type
        reply(
            jg.JoinGroupResponse(0, j.code, j.generation, kind, protocol, j.leader or "", j.skip, j.member_id, members)
        )

    settings = ctx.node.settings
    ctx.node.cluster.on_asked(ctx.node.node_id, req.group_id, req.member_id)
    rebalance_ms = (
        req.rebalance_timeout_ms if ctx.version >= 1 and req.rebalance_timeout_ms >= 0 else req.session_timeout_ms
    )
    protocols = tuple({p.name: (p.name, p.metadata) for p in reversed(req.protocols)}.values())[::-1]
    try:
        if not ctx.may(rt.READ, rt.GROUP, req.group_id):
            raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
        if not req.group_id:
            raise Refused(Err.INVALID_GROUP_ID)
        least, most = (settings.number(f"group.{m}.session.timeout.ms") for m in ("min", "max"))
        if not least <= req.session_timeout_ms <= most:
            raise Refused(Err.INVALID_SESSION_TIMEOUT)
        shard = ctx.node.groups.shard(req.group_id)
        if req.group_id in shard.shares.groups:
            raise Refused(Err.INCONSISTENT_GROUP_PROTOCOL)
        shard.streams.gives_way(req.group_id)
        asked = JoinAsked(
            req.member_id, req.group_instance_id, req.protocol_type, protocols, (req.session_timeout_ms, rebalance_ms),
            (ctx.client_id, _host(ctx)), ctx.version,
        )  # fmt: skip
        shard.join(req.group_id, asked, told)
    except Refused as exc:
        before = (Err.INVALID_GROUP_ID, Err.INVALID_SESSION_TIMEOUT, Err.INCONSISTENT_GROUP_PROTOCOL)
        told(Joined(exc.code, req.member_id if exc.code in before else ""))


def _host(ctx: Context) -> str:
    return f"/{ctx.peer}"


def sync_group(ctx: Context, req: sg.SyncGroupRequest, reply: Reply) -> None:
    def told(s: Synced) -> None:
        reply(sg.SyncGroupResponse(0, s.code, s.protocol_type, s.protocol, s.assignment))

    try:
        if ctx.version >= 5 and (req.protocol_type is None or req.protocol_name is None):
            raise Refused(Err.INCONSISTENT_GROUP_PROTOCOL)
        if not ctx.may(rt.READ, rt.GROUP, req.group_id):
            raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
        if not req.group_id:
            raise Refused(Err.INVALID_GROUP_ID)
        ctx.node.cluster.on_asked(ctx.node.node_id, req.group_id, req.member_id)
        ctx.node.groups.shard(req.group_id).sync(
            req.group_id,
            (req.member_id, req.group_instance_id, req.generation_id),
            (req.protocol_type, req.protocol_name),
            {a.member_id: a.assignment for a in req.assignments},
            told,
        )
    except Refused as exc:
        told(Synced(exc.code))


def heartbeat(ctx: Context, req: hb.HeartbeatRequest, reply: Reply) -> None:
    try:
        if not ctx.may(rt.READ, rt.GROUP, req.group_id):
            raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
        if not req.group_id:
            raise Refused(Err.INVALID_GROUP_ID)
        ctx.node.cluster.on_asked(ctx.node.node_id, req.group_id, req.member_id)
        shard = ctx.node.groups.shard(req.group_id)
        code = shard.heartbeat(req.group_id, req.member_id, req.group_instance_id, req.generation_id)
        shard.settle(lambda late: reply(hb.HeartbeatResponse(0, late or code)))
    except Refused as exc:
        loading = exc.code == Err.COORDINATOR_LOAD_IN_PROGRESS
        reply(hb.HeartbeatResponse(0, Err.NONE if loading else exc.code))


def leave_group(ctx: Context, req: lg.LeaveGroupRequest, reply: Reply) -> None:
    members: list[tuple[str, str | None]] = [(req.member_id, None)]
    if ctx.version >= 3:
        members = [(m.member_id, m.group_instance_id) for m in req.members]

    def told(code: Err, codes: list[Err]) -> None:
        if ctx.version < 3:
            if code == Err.NONE:
                code = codes[0]
            reply(lg.LeaveGroupResponse(0, code))
            return
        rows = [lg.MemberResponse(m, i, c) for (m, i), c in zip(members, codes, strict=False)]
        reply(lg.LeaveGroupResponse(0, code, rows))

    try:
        if not ctx.may(rt.READ, rt.GROUP, req.group_id):
            raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
        if not req.group_id:
            raise Refused(Err.INVALID_GROUP_ID)
        shard = ctx.node.groups.shard(req.group_id)
        codes = shard.leave(req.group_id, members)
        shard.settle(lambda late: told(late, [] if late else codes))
    except Refused as exc:
        if exc.code == Err.UNKNOWN_MEMBER_ID:
            told(Err.NONE, [Err.UNKNOWN_MEMBER_ID] * len(members))
        else:
            told(exc.code, [])


# ---- looking ------------------------------------------------------------------------------------------------------
def describe_groups(ctx: Context, req: dg.DescribeGroupsRequest, reply: Reply) -> None:
    denied = [g for g in req.groups if not ctx.may(rt.DESCRIBE, rt.GROUP, g)]
    found = [dg.DescribedGroup(Err.GROUP_AUTHORIZATION_FAILED, None, g) for g in denied]
    for g in req.groups:
        if g not in denied:
            told = _described(ctx, g)
            if ctx.version >= 3 and req.include_authorized_operations and told.error_code == Err.NONE:
                told.authorized_operations = ctx.rights.operations(ctx.principal, rt.GROUP, g)
            found.append(told)
    reply(dg.DescribeGroupsResponse(0, found))


def _described(ctx: Context, group_id: str) -> dg.DescribedGroup:
    try:
        group = ctx.node.groups.shard(group_id).groups.get(group_id)
    except Refused as exc:
        return dg.DescribedGroup(exc.code, None, group_id)
    if group is None:
        if ctx.version >= 6:
            shard = ctx.node.groups.shard(group_id)
            other = group_id in shard.shares.groups or group_id in shard.streams.groups
            text = f"Group {group_id} is not a classic group." if other else f"Group {group_id} not found."
            return dg.DescribedGroup(Err.GROUP_ID_NOT_FOUND, text, group_id, DEAD)
        return dg.DescribedGroup(Err.NONE, None, group_id, DEAD)
    stable = group.state is State.STABLE
    members = [_member(group, m, stable) for m in group.members.values()]
    protocol = (group.protocol or "") if stable else ""
    return dg.DescribedGroup(Err.NONE, None, group_id, group.state.value, group.protocol_type or "", protocol, members)


def _member(group: Group, m: Member, stable: bool) -> dg.DescribedGroupMember:
    metadata, assignment = (m.metadata(group.protocol), m.assignment) if stable else (b"", b"")
    return dg.DescribedGroupMember(m.member_id, m.instance_id, m.client_id, m.client_host, metadata, assignment)


def list_groups(ctx: Context, req: ls.ListGroupsRequest, reply: Reply) -> None:
    shards = ctx.node.groups.shards.values()
    everything = ctx.may(rt.DESCRIBE, rt.CLUSTER, rt.CLUSTER_NAME)
    states = {s.strip().lower() for s in req.states_filter}
    types = {t.strip().lower() for t in req.types_filter}
    found = [
        ls.ListedGroup(g.group_id, g.protocol_type or "", g.state.value, "classic")
        for shard in shards
        if shard.active
        for g in shard.groups.values()
        if (not req.states_filter or g.state.value.lower() in states)
        and (not types or "classic" in types)
        and (everything or ctx.may(rt.DESCRIBE, rt.GROUP, g.group_id))
    ]
    loading = any(not shard.active for shard in shards)
    code = Err.COORDINATOR_LOAD_IN_PROGRESS if loading else Err.NONE
    reply(ls.ListGroupsResponse(0, code, [] if loading else found))


def delete_groups(ctx: Context, req: dl.DeleteGroupsRequest, reply: Reply) -> None:
    names = list(dict.fromkeys(req.groups_names))
    codes: dict[str, Err] = {}

    def told(name: str, code: Err) -> None:
        codes[name] = code
        if len(codes) == len(names):
            reply(dl.DeleteGroupsResponse(0, [dl.DeletableGroupResult(n, codes[n]) for n in names]))

    if not names:
        reply(dl.DeleteGroupsResponse())
    for name in names:
        if not ctx.may(rt.DELETE, rt.GROUP, name):
            told(name, Err.GROUP_AUTHORIZATION_FAILED)
            continue
        try:
            ctx.node.groups.shard(name).delete_group(name, partial(told, name))
        except Refused as exc:
            told(name, exc.code)


# ---- consumer groups ------------------------------------------------------------------------------------------------
def consumer_group_heartbeat(ctx: Context, req: ch.ConsumerGroupHeartbeatRequest, reply: Reply) -> None:
    """Refuses everything, because there are no such groups here: a real broker would not refuse a join."""
    try:
        if not ctx.may(rt.READ, rt.GROUP, req.group_id):
            raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
        shard = ctx.node.groups.shard(req.group_id)
        text = f"Group {req.group_id} is not a consumer group."
        if req.group_id not in shard.groups:
            kind = "Consumer group" if req.member_epoch > 0 else "Group"
            text = f"{kind} {req.group_id} not found."
        if req.member_epoch == 0 and req.group_id not in shard.groups:
            raise Refused(Err.UNSUPPORTED_VERSION, "Consumer groups are not simulated.")
        raise Refused(Err.GROUP_ID_NOT_FOUND, text)
    except Refused as exc:
        reply(ch.ConsumerGroupHeartbeatResponse(0, exc.code, exc.text))


def consumer_group_describe(ctx: Context, req: cd.ConsumerGroupDescribeRequest, reply: Reply) -> None:
    found = []
    for g in req.group_ids:
        try:
            if not ctx.may(rt.DESCRIBE, rt.GROUP, g):
                raise Refused(Err.GROUP_AUTHORIZATION_FAILED)
            known = g in ctx.node.groups.shard(g).groups
            text = f"Group {g} is not a consumer group." if known else f"Group {g} not found."
            raise Refused(Err.GROUP_ID_NOT_FOUND, text)
        except Refused as exc:
            found.append(cd.DescribedGroup(exc.code, exc.text, g))
    reply(cd.ConsumerGroupDescribeResponse(0, found))
