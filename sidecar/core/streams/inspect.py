"""Views of streams groups for people: tasks by role and subtopology (runtime/inspect.py).

A task is written as Kafka Streams writes it, `0_1` for partition 1 of subtopology 0; the role stands before it if it is
not active.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sidecar.core.modern import inspect as modern
from sidecar.core.modern.explain import Explainer, Held
from sidecar.core.runtime.inspect import Body, HeldPartitions, MemberView, Names, Note
from sidecar.core.streams.configure import configured_with
from sidecar.core.streams.group import GroupState, Member, StreamsGroup
from sidecar.core.streams.reconcile import reconcile
from sidecar.core.streams.records import ROLES, Kind
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.tasks import AssignedTasks, Task, Tasks, task_set
from sidecar.core.streams.topology import Topology
from sidecar.core.vocabulary.errors import CoordinatorError
from sidecar.core.vocabulary.topics import TopicImage

WORDS = {"active": "", "standby": "standby ", "warmup": "warm-up "}
STATES = {**modern.STATES, "NotReady": "topics that its topology needs are missing, or do not fit"}


def task(subtopology: str, partition: int) -> str:
    return f"{subtopology}_{partition}"


def _by_role(tasks: Tasks | AssignedTasks) -> dict[str, list[int]]:
    """Returns subtopology, with the role before it -> sorted partitions."""
    parts = ((prefix, getattr(tasks, role)) for role, prefix in WORDS.items())
    return {f"{prefix}{s}": sorted(ps) for prefix, by_subtopology in parts for s, ps in by_subtopology.items()}


def _view(group: StreamsGroup, m: Member, names: Names) -> MemberView:
    endpoint = "" if m.endpoint is None else f"{m.endpoint[0]}:{m.endpoint[1]}"
    more = {"process": m.process_id, "topology_epoch": m.topology_epoch, "endpoint": endpoint}
    return MemberView(
        m.member_id,
        m.client_id,
        m.client_host,
        m.instance_id,
        m.rack_id,
        group.protocol_type,
        m.member_epoch,
        str(m.state),
        owns=_by_role(m.assigned),
        gives_up=_by_role(m.pending),
        target=_by_role(group.target_of(m.member_id)),
        more={**more, "tags": dict(m.client_tags)},
    )


def _facts(group: StreamsGroup) -> dict[str, Any]:
    """Returns the facts of all kinds, `topology_epoch` (None: there is no topology), `topology`: subtopology -> the
    topics that it reads, and the other fields of the group's record."""
    topology = group.topology or Topology(-1)
    fields = {
        "topology_epoch": None if group.topology is None else topology.epoch,
        "topology": {s.subtopology_id: sorted(s.task_topics()) for s in topology.subtopologies},
        "shutdown_asked_by": group.shutdown_member,
    }
    return {**modern.facts(group), **fields}


# ---- explaining -----------------------------------------------------------------------------------------------------
def _held(group: StreamsGroup, m: Member, names: Names) -> Iterable[Held]:
    """Yields the tasks of the target that other members still hold. An active task has one holder in the group; no
    process runs a task twice."""
    target, pending = group.target_of(m.member_id), dict[str, set[Task]]()
    for role in ROLES:
        had = task_set(getattr(m.assigned, role))
        for s, partitions in getattr(target, role).items():
            for p in partitions:
                for holder in () if (s, p) in had else _holders(group, m, role, s, p):
                    if holder not in pending:
                        lost = group.members[holder].pending
                        pending[holder] = task_set(lost.active).union(lost.replicas())
                    yield Held(holder, s, p, (s, p) in pending[holder])


def _holders(group: StreamsGroup, m: Member, role: str, subtopology: str, partition: int) -> Iterable[str]:
    """Yields the members whose task keeps this one from the member."""
    active = group.holders.active.get(subtopology, {}).get(partition)
    if active is not None and active[0] != m.member_id and (role == "active" or active[1] == m.process_id):
        yield active[0]
    for holding in (group.holders.standby, group.holders.warmup):
        for holder, process in holding.get(subtopology, {}).get(partition, {}).items():
            if process == m.process_id and holder != m.member_id:
                yield holder


def _advance(group: StreamsGroup, m: Member, gave_up: bool) -> Member:
    owned = m.assigned.without_epochs() if gave_up else None
    return reconcile(m, group.assignment_epoch, group.target_of(m.member_id), owned, group.holders)


def _notes(group: StreamsGroup, image: TopicImage | None) -> Iterable[str]:
    if group.topology is None and group.members:
        yield "No member has sent its topology yet."
    elif group.topology is not None and image is not None:
        try:
            status = configured_with(group, group.topology, image, StreamsSoft()).status
            detail = "" if status is None else status.detail
        except CoordinatorError as exc:
            detail = str(exc)
        if detail:
            yield f"The topology is not ready: {detail}"
    if group.topology is not None:
        epoch = group.topology.epoch
        if old := sum(m.topology_epoch < epoch for m in group.members.values()):
            yield f"{old} of {len(group.members)} members have an older topology than that of epoch {epoch}."
    if group.shutdown_member is not None:
        yield f"{group.shutdown_member} has asked for the end of the application, and all members are told so."


# ---- history --------------------------------------------------------------------------------------------------------
def _group_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    yield from modern.group_notes(sub_id, body, last)
    member_id = None if body is None else body["shutdown_member"]
    if member_id is not None and member_id != (last or {}).get("shutdown_member"):
        yield Note("the end of the application is asked for", member_id)


def _topology_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    if body is not None:
        yield Note("topology", "", f"epoch {body['epoch']}, {len(body['subtopologies'])} subtopologies")


def _of_process(body: Body) -> str:
    return f"process {body['process_id']}, topology epoch {body['topology_epoch']}"


def _holds(body: Body, member: Body | None) -> Iterable[HeldPartitions]:
    """Yields the tasks held. An active task has one holder in the group, and no two members of a process have the same
    task, in any role."""
    for role, prefix in WORDS.items():
        for i in (*body[role], *body[f"pending_{role}"]):
            subtopology, partitions = i["subtopology_id"], i["partitions"]
            name = f"{prefix}{subtopology}"
            yield HeldPartitions(name, name, partitions, alone=role == "active")
            if member is not None:
                in_process = f"process {member['process_id']}: {subtopology}"
                yield HeldPartitions(in_process, in_process, partitions, listed=False)


def _places(body: Body) -> set[tuple[Any, ...]]:
    return {(role, i["subtopology_id"], p) for role in ROLES for i in body[role] for p in i["partitions"]}


INSPECT = modern.inspecting(
    Explainer(Kind.GROUP, Kind.CURRENT, Kind.TARGET_METADATA, _view, _advance, held=_held, notes=_notes, place=task),
    states={str(s): STATES[s] for s in GroupState},
    history={
        Kind.GROUP: _group_notes,
        Kind.TOPOLOGY: _topology_notes,
        Kind.TARGET_METADATA: modern.target_notes,
        Kind.MEMBER: modern.member_notes(_of_process),
    },
    holds=_holds,
    facts=_facts,
    places=_places,
)
