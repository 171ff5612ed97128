"""Assigns as a member that leads a classic group does, with the sticky assignors of the clients. Of two members that
claim the same partition the newer generation counts; in a cooperative group a partition that another member claims is
given to nobody for now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sidecar.core.classic.embedded import Subscription, assignment, subscription
from sidecar.core.classic.events import JoinedMember

Named = tuple[str, int]
"""Topic name and partition."""


def share(members: Sequence[JoinedMember], counts: Mapping[str, int], cooperative: bool) -> dict[str, bytes]:
    """Member id -> what it is assigned. `counts`: partitions of the topics that exist."""
    subscriptions: dict[str, Subscription] = {}
    for m in members:
        found = subscription(m.metadata)
        assert found is not None
        subscriptions[m.member_id] = found
    claims = _claims(subscriptions)
    load = dict.fromkeys(subscriptions, 0)
    given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscriptions}
    names = sorted({t for s in subscriptions.values() for t in s.topics if t in counts})
    quota = -(-sum(counts[t] for t in names) // max(len(subscriptions), 1))
    for topic in names:
        takers = [m for m, s in subscriptions.items() if topic in s.topics]
        for p in range(counts[topic]):
            holder = _holder(claims.get((topic, p), {}))
            keeps = holder in takers and load[holder] < quota
            to = holder if keeps else min(takers, key=lambda m: (load[m], m))
            load[to] += 1
            if not cooperative or not (claims.get((topic, p), {}).keys() - {to}):
                given[to].setdefault(topic, []).append(p)
    return {
        m: assignment(subscriptions[m].version, [(t, tuple(ps)) for t, ps in of.items()]) for m, of in given.items()
    }


def topics_of(members: Sequence[JoinedMember]) -> frozenset[str]:
    """Returns the topics that the members subscribe to."""
    return frozenset(t for m in members if (s := subscription(m.metadata)) is not None for t in s.topics)


def _claims(subscriptions: Mapping[str, Subscription]) -> dict[Named, dict[str, int]]:
    """Partition -> member -> the generation in which it got it."""
    claims: dict[Named, dict[str, int]] = {}
    for member_id, s in subscriptions.items():
        for topic, partitions in s.owned.items():
            for p in partitions:
                claims.setdefault((topic, p), {})[member_id] = s.generation
    return claims


def _holder(claims: Mapping[str, int]) -> str:
    """ "" if nobody claims it, or two do with the same right."""
    newest = max(claims.values(), default=0)
    found = [m for m, generation in claims.items() if generation == newest]
    return found[0] if len(found) == 1 else ""
