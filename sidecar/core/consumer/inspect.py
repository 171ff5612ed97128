"""Views of consumer groups for people; some members may speak the classic protocol (runtime/inspect.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sidecar.core.consumer.group import ConsumerGroup, GroupState, Member
from sidecar.core.consumer.reconcile import Target, reconcile
from sidecar.core.consumer.records import Kind
from sidecar.core.modern import inspect as modern
from sidecar.core.modern.explain import Explainer, Held
from sidecar.core.runtime.inspect import Body, HeldPartitions, MemberView, Names, Note, listed, owned_places
from sidecar.core.vocabulary.topics import TopicImage


def _view(group: ConsumerGroup, m: Member, names: Names) -> MemberView:
    return MemberView(
        m.member_id,
        m.client_id,
        m.client_host,
        m.instance_id,
        m.rack_id,
        "consumer" if m.classic is None else "classic",
        m.member_epoch,
        str(m.state),
        m.topic_names,
        m.topic_regex,
        modern.by_name(m.assigned, names),
        modern.by_name(m.pending, names),
        modern.by_name(group.target.of(m.member_id), names),
    )


def _holds(body: Body, member: Body | None) -> Iterable[HeldPartitions]:
    return modern.topics_held((*body["assigned"], *body["pending"]), alone=True)


def _members_by_protocol(group: ConsumerGroup) -> Mapping[str, int]:
    return {"consumer": len(group.members) - group.classic_members, "classic": group.classic_members}


# ---- explaining -----------------------------------------------------------------------------------------------------
def _held(group: ConsumerGroup, m: Member, names: Names) -> Iterable[Held]:
    for topic, partitions in group.target.of(m.member_id).items():
        owners = group.owners.get(topic, {})
        for p in partitions:
            holder = owners.get(p)
            if holder is not None and holder != m.member_id:
                revoking = p in group.members[holder].pending.get(topic, {})
                yield Held(holder, names.get(topic) or topic.hex(), p, revoking)


def _advance(group: ConsumerGroup, m: Member, gave_up: bool) -> Member:
    # The subscription is derived from the target alone: an assignor gives a member only topics of its subscription.
    subscribed = frozenset({*group.target.of(m.member_id), *m.assigned, *m.pending})
    target = Target(group.assignment_epoch, group.target.of(m.member_id))
    owned = m.assigned_partitions() if gave_up else None
    return reconcile(m, target, subscribed, False, owned, lambda t, p: group.owners.get(t, {}).get(p))


def _next(group: ConsumerGroup, m: Member, view: MemberView) -> str:
    if m.classic is None or m.reconciled_to(group.assignment_epoch):
        return ""
    rejoin = "its next heartbeat is answered REBALANCE_IN_PROGRESS, and it joins and syncs again"
    gives_up = owned_places(view.gives_up) if m.revokes else ()
    return f"{rejoin}, without {listed(gives_up)}" if gives_up else rejoin


def _notes(group: ConsumerGroup, image: TopicImage | None) -> Iterable[str]:
    unresolved = {m.topic_regex for m in group.members.values() if m.topic_regex} - group.regexes.keys()
    for regex in sorted(r for r in unresolved if r):
        yield f"The regular expression {regex} is not resolved yet: until then it stands for no topic."


# ---- history --------------------------------------------------------------------------------------------------------
def _subscribes(body: Body) -> str:
    return f"subscribes to {' '.join(body['topic_names']) or body['topic_regex'] or 'nothing'}"


def _static_member_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    if body is not None:
        yield Note("static member", f"instance {sub_id}", f"is {body['member_id']}")
    elif last is not None:
        yield Note("static member", f"instance {sub_id}", "is nobody any more")


def _regex_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    topics = [] if body is None else body["topics"]
    if last is None or topics != last["topics"]:
        yield Note("pattern", sub_id, f"stands for {' '.join(topics) or 'nothing'}")


INSPECT = modern.inspecting(
    Explainer(Kind.GROUP, Kind.CURRENT, Kind.TARGET_METADATA, _view, _advance, held=_held, next=_next, notes=_notes),
    states={str(s): modern.STATES[s] for s in GroupState},
    history={
        Kind.GROUP: modern.group_notes,
        Kind.TARGET_METADATA: modern.target_notes,
        Kind.MEMBER: modern.member_notes(_subscribes),
        Kind.STATIC_MEMBER: _static_member_notes,
        Kind.REGEX: _regex_notes,
    },
    holds=_holds,
    members_by_protocol=_members_by_protocol,
)
