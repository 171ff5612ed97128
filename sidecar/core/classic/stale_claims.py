"""Stale claims: a consumer claims partitions that the group has given to another member since (KIP-792).

Assignors trust the members' claims; an outdated claim has stuck groups and assigned partitions twice (KAFKA-12984,
KAFKA-13406). The generation in the subscription lets an assignor detect it. Here the coordinator, which knows the last
assignment, detects it for every client and assignor. It counts and logs the claim, and writes it into the member's
record. With `stale_claims = strip` it also removes it from the metadata that the leader gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from sidecar.core.classic.embedded import (
    CONSUMER_TYPE,
    LAST_GENERATION,
    UNKNOWN_GENERATION,
    Subscription,
    assigned,
    is_large,
    subscription,
    without_claims,
)
from sidecar.core.classic.group import ClassicGroup, Member
from sidecar.core.classic.records import StaleClaim
from sidecar.core.runtime.turn import Turn

CLAIMED_MAX = 20_000
"""Most partitions and topics that all members of a group together claim or own: beyond that no claims are checked. A
large group has 10,000 partitions, each claimed once."""
STALE_MAX = 1_000
"""Most stale claims of a member that are reported: one for each topic and holder."""
LOGGED = 10
"""Most stale claims of a member that are logged. Its record has all of them."""
Where = tuple[str, int]
"""Topic name and partition."""


def stale_claims_of(group: ClassicGroup, protocol: str) -> dict[str, tuple[StaleClaim, ...]]:
    """Returns member id -> its stale claims, at the end of a join phase. A claim is stale if the last assignment does
    not give the partition to the member, and one of these holds: it gives it to another member, it is newer than the
    claim, or another member claims the partition, too."""
    claims = _claims(group, protocol)
    holders = _holders(group) if claims else None
    if holders is None:
        return {}
    places = {member_id: _places(s.owned) for member_id, s in claims.items()}
    newest = _newest(claims, places)
    by_member: dict[str, tuple[StaleClaim, ...]] = {}
    for member_id, s in claims.items():
        stale: dict[tuple[str, str], list[int]] = {}
        old = UNKNOWN_GENERATION < s.generation < group.assigned_generation
        for topic, partition in places[member_id]:
            if len(stale) == STALE_MAX:
                break
            holder = holders.get((topic, partition), "")
            if holder == member_id:
                continue
            other = _other(newest[topic, partition], member_id, claims)
            if holder or old or other:
                stale.setdefault((topic, holder or other), []).append(partition)
        if stale:
            by_member[member_id] = tuple(StaleClaim(t, tuple(ps), s.generation, h) for (t, h), ps in stale.items())
    return by_member


def _newest(claims: Mapping[str, Subscription], places: Mapping[str, list[Where]]) -> dict[Where, tuple[str, str]]:
    """Returns, by partition, the member with the newest claim and the member with the next newest ("": none). Of equal
    claims the first counts. Two are enough to know for each member whether another one claims the same."""
    newest: dict[Where, tuple[str, str]] = {}
    for member_id, s in claims.items():
        for where in places[member_id]:
            first, second = newest.get(where, ("", ""))
            if not first or s.generation > claims[first].generation:
                newest[where] = member_id, first
            elif not second or s.generation > claims[second].generation:
                newest[where] = first, member_id
    return newest


def _other(newest: tuple[str, str], member_id: str, claims: Mapping[str, Subscription]) -> str:
    """Returns another member whose claim to the partition is no older; "": there is none."""
    first, second = newest
    if first != member_id:
        return first
    return second if second and claims[second].generation >= claims[member_id].generation else ""


def anybody_owns(group: ClassicGroup, protocol: str) -> bool:
    """Whether a member claims partitions at the end of a join phase. Eager members, which give up everything before
    they join, claim none."""
    return any(_claimed(group, protocol))


def newest_claim(group: ClassicGroup) -> int:
    """Returns the highest generation that any member names."""
    if group.type not in (CONSUMER_TYPE, None):
        return UNKNOWN_GENERATION
    subscriptions = (subscription(metadata) for m in group.members.values() for _, metadata in m.protocols)
    generations = (s.generation for s in subscriptions if s is not None and s.generation < LAST_GENERATION)
    return max(generations, default=UNKNOWN_GENERATION)


def report(turn: Turn, group: ClassicGroup, by_member: Mapping[str, tuple[StaleClaim, ...]]) -> None:
    """Writes, counts and logs the stale claims, and removes former ones from the members' records."""
    for member in list(group.members.values()):
        stale = by_member.get(member.member_id, ())
        if stale != member.stale_claims:
            why = "claims partitions of others" if stale else "claims nothing of others any more"
            turn.write(replace(member, stale_claims=stale, why=why))
        for claim in stale:
            turn.fx.count("stale_claims", "yes" if claim.generation != UNKNOWN_GENERATION else "no")
        for claim in stale[:LOGGED]:
            turn.fx.log(
                "stale claim",
                "warning",
                group_id=group.group_id,
                member_id=member.member_id,
                client=member.client_id,
                topic=claim.topic,
                partitions=list(claim.partitions),
                generation=claim.generation,
                assigned_generation=group.assigned_generation,
                holder=claim.holder,
            )


def shown(member: Member, protocol: str | None, strip: bool) -> bytes:
    """Returns the metadata as the leader gets it."""
    metadata = member.metadata(protocol)
    if not strip or not member.stale_claims:
        return metadata
    stale: dict[str, list[int]] = {}
    for claim in member.stale_claims:
        stale.setdefault(claim.topic, []).extend(claim.partitions)
    return without_claims(metadata, stale)


def _claims(group: ClassicGroup, protocol: str) -> dict[str, Subscription]:
    """Returns the claims by member; empty if there are too many."""
    claims, places = {}, 0
    for member_id, s in _claimed(group, protocol):
        claims[member_id] = s
        places += len(s.owned) + sum(map(len, s.owned.values()))
        if places > CLAIMED_MAX:
            return {}
    return claims


def _claimed(group: ClassicGroup, protocol: str) -> Iterator[tuple[str, Subscription]]:
    for m in group.members.values() if group.type == CONSUMER_TYPE else ():
        s = subscription(m.metadata(protocol))
        if s is not None and s.owned:
            yield m.member_id, s


def _holders(group: ClassicGroup) -> dict[Where, str] | None:
    """Returns the owners by the last known assignment. None: it is too large."""
    holders: dict[Where, str] = {}
    for member_id, given in group.assignments.items():
        if is_large(given):
            return None
        holders |= dict.fromkeys(_places(assigned(given) or {}), member_id)
        if len(holders) > CLAIMED_MAX:
            return None
    return holders


def _places(owned: Mapping[str, tuple[int, ...]]) -> list[Where]:
    """Returns each partition once, even if the client names it twice."""
    return list(dict.fromkeys((topic, p) for topic, partitions in owned.items() for p in partitions))
