"""What the coordinator does for bytes of a client grows with their number, and no faster.

CPU is measured, and the least of a few tries counts: what else the machine does only adds to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sidecar.coordinator.under_way import UnderWay
from sidecar.core.classic.claims import claims_of, shown
from sidecar.core.classic.embedded import CONSUMER_TYPE, NEWEST, assigned, subscription, without_claims
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import AssignmentRecord, MemberRecord, StaleClaim
from sidecar.core.offsets import Place
from sidecar.wire.generated import consumer_protocol_assignment as ca
from sidecar.wire.generated import consumer_protocol_subscription as cs
from sidecar.wire.primitives import ZERO_UUID

N, TRIES, FLOOR_MS = 2_000, 6, 0.5
Work = Callable[[int], Callable[[], object]]
"""What is done for so many elements; all that comes before is not measured."""


def owns(*topics: tuple[str, list[int]], generation: int = 1) -> bytes:
    owned = [cs.TopicPartition(name, partitions) for name, partitions in topics]
    said = cs.ConsumerProtocolSubscription(["t"], None, owned, generation, None)
    return NEWEST.to_bytes(2, "big") + said.encode(NEWEST)


def given(*topics: tuple[str, list[int]]) -> bytes:
    said = ca.ConsumerProtocolAssignment([ca.TopicPartition(name, partitions) for name, partitions in topics])
    return NEWEST.to_bytes(2, "big") + said.encode(NEWEST)


def group_of(claims: list[bytes], assignment: bytes = b"") -> ClassicGroup:
    group = ClassicGroup("g", type=CONSUMER_TYPE, protocol="range", assigned_generation=2)
    for i, metadata in enumerate(claims):
        protocols = (("range", metadata),)
        group.replay(MemberRecord("g", f"m{i}", None, "c", "/h", 10_000, 60_000, protocols))
    if assignment:
        group.replay(AssignmentRecord("g", "m0", 2, assignment))
    return group


def one_topic_again_and_again(n: int) -> bytes:
    return owns(*(("t", [i]) for i in range(n)))


def one_partition_again_and_again(n: int) -> Callable[[], object]:
    group = group_of([owns(("t", [1] * n)), owns(("t", [1] * n))])
    return lambda: claims_of(group, "range")


def partitions_of_others(n: int) -> Callable[[], object]:
    group = group_of([b"\0\0", owns(("t", list(range(n))))], given(("t", list(range(n)))))
    return lambda: claims_of(group, "range")


def everybody_claims_the_same(n: int) -> Callable[[], object]:
    group = group_of([owns(("t", [1]), generation=i % 3) for i in range(n)])
    return lambda: claims_of(group, "range")


def taken_out(n: int) -> Callable[[], object]:
    metadata = owns(("t", list(range(n))))
    return lambda: without_claims(metadata, {"t": range(n)})


def shown_without(n: int) -> Callable[[], object]:
    stale = tuple(StaleClaim("t", (i,), 1, f"m{i}") for i in range(n))
    member = MemberRecord(
        "g", "m", None, "c", "/h", 1, 1, (("range", one_topic_again_and_again(n)),), stale_claims=stale
    )
    return lambda: shown(member, "range", strip=True)


def commits(n: int, *, named: bool, commits: int = 4) -> Callable[[], object]:
    """Over several connections, each for the same partition of `n` topics."""
    places: list[tuple[Place, ...]] = []
    for way in range(commits):
        ids = [i.to_bytes(16, "big") if not named and way % 2 else ZERO_UUID for i in range(1, n + 1)]
        places.append(tuple(("" if t != ZERO_UUID else f"t{i}", t, 0) for i, t in enumerate(ids)))

    def work() -> None:
        under_way = UnderWay()
        tickets = []
        for way, said in enumerate(places):
            under_way.before_commit("g", f"m{way}", said[: n if way == 0 or named else 1], (0, way))
            tickets.append(under_way.begin("g", f"m{way}", said, (0, way), 0))
        for ticket in tickets:
            under_way.end(ticket)

    return work


WORK: dict[str, Work] = {
    "a topic that a subscription names again and again": lambda n: lambda: subscription(one_topic_again_and_again(n)),
    "a topic that an assignment names again and again": lambda n: (
        lambda: assigned(given(*(("t", [i]) for i in range(n))))
    ),
    "a partition that is claimed again and again": one_partition_again_and_again,
    "claims of what others have": partitions_of_others,
    "members that claim the same": everybody_claims_the_same,
    "claims that are taken out": taken_out,
    "a member whose claims have many holders": shown_without,
    "commits by name": lambda n: commits(n, named=True),
    "commits by name and by id": lambda n: commits(n, named=False),
}


@pytest.mark.parametrize("name", WORK)
def test_four_times_the_elements_take_four_times_the_work(name: str) -> None:
    few, many = WORK[name](N), WORK[name](4 * N)
    small = large = float("inf")
    for _ in range(TRIES):
        small, large = min(small, taken_ms(few)), min(large, taken_ms(many))
        if large <= 5 * max(small, FLOOR_MS):
            return
    pytest.fail(f"{name}: {small:.2f} ms for {N} elements, {large:.2f} ms for {4 * N}")


def taken_ms(work: Callable[[], object]) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1e6
