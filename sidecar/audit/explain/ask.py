"""Explanation of a group's state, by the `Inspect` of its kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sidecar.audit.explain.model import Explanation, Seen
from sidecar.audit.explain.replay import Replayed
from sidecar.core.runtime.inspect import Inspect, Live, MemberView, Progress, owned_places
from sidecar.core.runtime.records import Role
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.topics import TopicImage

REMOVED = 10
"""Former members that an explanation names, the latest."""


def explain(replayed: Replayed, image: TopicImage | None = None, live: Live | None = None) -> Explanation:
    """Explains a group. `image`: the topics as they are now, None if unknown; `live`: the owner's soft state. Raises
    ExplainError."""
    shard = replayed.shard(image or TopicImage())
    group = replayed.group(shard)
    inspect, state = shard.registry.kinds[group.kind].inspect, group.state_name()
    names = replayed.names | dict(image.names if image is not None else {})
    reasons, facts = inspect.explain(replayed, group, image, live), inspect.facts(group)
    views = ((m, inspect.member(group, m, names)) for m in group.member_ids())
    return Explanation(
        replayed.group_id,
        group.kind,
        state,
        inspect.states.get(state, state),
        state in inspect.at_rest,
        reasons.since_ms,
        facts["epoch"],
        facts["assignment_epoch"],
        facts["assignor"],
        replayed.why_of(shard.registry, Role.GROUP),
        replayed.coordinator,
        tuple(_seen(inspect, view, reasons.members[m]) for m, view in views if view is not None),
        tuple(reasons.waits),
        tuple(reversed(replayed.former.values()))[:REMOVED],
        (*reasons.notes, *_managed(replayed.configs), *_lost(replayed)),
        {name: value for name, value in facts.items() if name not in COMMON},
        inspect.phases,
        inspect.epoch_name,
        inspect.assignor_name,
    )


COMMON = frozenset(("epoch", "assignment_epoch", "assignor", "assigned_ms", "since_ms"))
"""Facts that are not in `Explanation.more`: it has them as fields, or does not show them."""


def _seen(inspect: Inspect, view: MemberView, progress: Progress) -> Seen:
    owns, gives_up, target = (owned_places(o, inspect.place) for o in (view.owns, view.gives_up, view.target))
    return Seen(
        view.member,
        view.client,
        view.host.lstrip("/"),
        view.instance or "",
        view.protocol,
        view.epoch,
        progress.state,
        progress.since_ms,
        owns,
        gives_up,
        target,
        progress.next,
        dict(view.more),
    )


def _managed(configs: Mapping[str, str]) -> Iterable[str]:
    """Yields sentences about an operator's orders: release, adoption, forced rebalance."""
    order = configs.get(cf.MANAGED)
    if order == "false":
        yield "It was ordered back to the broker (sidecar groups release) and goes as soon as nobody owns anything."
    if configs.get(cf.VERDICT, "").startswith(cf.LATER):
        yield "It was ordered here (sidecar groups adopt), and its owner cannot take it in yet."
    if cf.REBALANCE in configs:
        yield f"A rebalance was asked for: {configs[cf.REBALANCE]}."


def _lost(replayed: Replayed) -> Iterable[str]:
    if replayed.unreadable:
        yield f"{replayed.unreadable} records of its history cannot be read; what they said is not told here."
