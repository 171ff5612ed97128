"""A plausible incident: three sidecars, six groups, a takeover, a rolling restart, and what must not be."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from sidecar.audit.page import Mark
from tests.audit.page.rows import BEGIN, Row, Tables, covered, row, tables

MINUTE = 60_000
HOUR = 60 * MINUTE
UNTIL = 7 * HOUR
NAMES = ("orders", "payments", "invoices", "shipping", "fraud-scoring", "clickstream")
CRASH, CLAIMED = 2 * HOUR, 2 * HOUR + 11_400


class Incident:
    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self.random = random.Random(7)
        self.epoch: dict[str, int] = defaultdict(int)

    def add(self, table: str, *args: Any, **values: Any) -> None:
        self.rows[table].append(row(table, *args, **values))

    def group(self, name: str, at: int, members: int, partitions: int, restart: int, kind: str = "consumer") -> None:
        """Members join at once, own each a part, and are restarted one after another."""
        sp = at % 3
        here = {"state_partition": sp, "group_id": name, "kind": kind}
        topic = {"topic": f"{name}-events", "topic_key": f"{name}-id", "topic_id": f"{name}-id"}
        lives: list[tuple[str, str, int, int | None]] = []
        for m in range(members):
            client = f"{name}-{m + 1}"
            stop = restart + m * 4 * MINUTE
            lives.append((f"{client}-a7f{m}", client, m * 1500 + 5000, stop))
            lives.append((f"{client}-c3e{m}", client, stop + 35_000, None))
        for member, client, begin, end in lives:
            why = "session timed out" if client.endswith("-2") else "the member left"
            self.add(
                "members",
                begin,
                end,
                member_id=member,
                client_id=client,
                client_host=f"/10.0.{at}.7",
                **here,
                from_why=f"{client} joined",
                to_why=None if end is None else why,
            )
        changes = sorted({b for _, _, b, _ in lives} | {e for _, _, _, e in lives if e is not None})
        self._epochs(here, changes, lives)
        self._own(here, topic, partitions, changes, lives)

    def _epochs(self, here: Row, changes: list[int], lives: list[tuple[str, str, int, int | None]]) -> None:
        for n, at in enumerate(changes):
            self.epoch[here["group_id"]] += 1
            came = next((x for x in lives if x[2] == at), None)
            gone = next((x for x in lives if x[3] == at), ("", "", 0, None))
            then = changes[n + 1] if n + 1 < len(changes) else UNTIL
            settle = self.random.choice((180, 900, 4200, 12_000))
            done = settle < then - at
            self.add(
                "rebalances",
                at,
                epoch=n + 1,
                anew=n == 0,
                cause="joined" if came else "left",
                **here,
                why=f"{(came or gone)[1]} {'joined' if came else 'left'}",
                member_id=(came or gone)[0],
                members=sum(x[2] <= at and (x[3] is None or x[3] > at) for x in lives),
                assignor="uniform",
                target_offset=at + 1,
                target_ms=BEGIN + at + 40,
                partitions_moved=4,
                superseded=not done,
                settled_offset=at + settle if done else None,
                settled_ms=BEGIN + at + settle if done else None,
            )

    def _own(
        self, here: Row, topic: Row, partitions: int, changes: list[int], lives: list[tuple[str, str, int, int | None]]
    ) -> None:
        for p in range(partitions):
            owner, since = "", 0
            for at in changes:
                alive = [m for m, _, b, e in lives if b <= at and (e is None or e > at)]
                wanted = alive[p % len(alive)]
                if wanted == owner:
                    continue
                gap = self.random.choice((40, 300, 2500))
                if owner:
                    revoking = BEGIN + at if owner in alive else None
                    self.add(
                        "intervals",
                        since,
                        at + gap,
                        member_id=owner,
                        partition=p,
                        first_epoch=1,
                        last_epoch=2,
                        revoking_from_ms=revoking,
                        **here,
                        **topic,
                        from_why="reached its member epoch",
                        to_why="gave it up",
                    )
                    self.add(
                        "unowned",
                        at + gap,
                        at + 2 * gap,
                        former_member_id=owner,
                        member_id=wanted,
                        partition=p,
                        **here,
                        **topic,
                    )
                owner, since = wanted, at + 2 * gap
            self.add(
                "intervals",
                since,
                member_id=owner,
                partition=p,
                first_epoch=len(changes),
                **here,
                **topic,
                last_epoch=len(changes),
                from_why="reached its member epoch",
            )

    def coordinators(self) -> None:
        for sp in range(3):
            moved = [(0, sp + 1), *(((CLAIMED, 3), (3 * HOUR, 2)) if sp == 1 else ())]
            for n, (at, node) in enumerate(moved):
                end = moved[n + 1][0] if n + 1 < len(moved) else None
                self.add(
                    "coordinators",
                    at,
                    end,
                    state_partition=sp,
                    claim=n + 1,
                    node_id=node,
                    offset=at,
                    address=f"broker-{node}:9192",
                    generation=n + 4,
                    member_id=f"sidecar-{node}",
                    from_why="assigned by the sidecars’ group",
                )
        for claim, begin, end in ((1, CRASH - 900, CLAIMED), (2, 3 * HOUR - 400, 3 * HOUR)):
            self.add(
                "outages",
                begin,
                end,
                state_partition=1,
                former_claim=claim,
                claim=claim + 1,
                at_most_ms=end - begin,
                why="sidecar 1 is gone",
            )

    def faults(self) -> None:
        """Two owners of payments-events-3 for 1.8 s after the takeover; perhaps two of orders-events-2 before."""
        pay = {"state_partition": 1, "group_id": "payments"}
        topic = {"topic": "payments-events", "topic_key": "payments-id", "topic_id": "payments-id", "partition": 3}
        old = next(
            r
            for r in self.rows["intervals"]
            if r["group_id"] == "payments"
            and r["partition"] == 3
            and r["from_ms"] < BEGIN + CLAIMED
            and (r["to_ms"] or BEGIN + UNTIL) > BEGIN + CLAIMED + 4000
        )
        at = CLAIMED + 2200
        self.add(
            "intervals",
            at,
            at + 1800,
            member_id="payments-2-a7f1",
            first_epoch=9,
            last_epoch=9,
            **pay,
            **topic,
            from_why="target assignment after the takeover",
            to_why="fenced",
            from_exact=False,
            unseen=1,
        )
        self.add(
            "second_owners",
            at,
            member_id="payments-2-a7f1",
            from_offset=at,
            other_member_id=old["member_id"],
            other_from_offset=old["from_offset"],
            **pay,
            **topic,
        )
        ord_ = {"state_partition": 0, "group_id": "orders", "topic": "orders-events", "topic_key": "orders-id"}
        first = [r for r in self.rows["intervals"] if r["group_id"] == "orders" and r["partition"] == 2][:2]
        at = first[1]["from_offset"]
        first[0] |= {"to_offset": at + 4000, "to_ms": BEGIN + at + 4000, "to_exact": False, "unseen": 2}
        self.add(
            "second_owners",
            at,
            member_id=first[1]["member_id"],
            from_offset=first[1]["from_offset"],
            partition=2,
            other_member_id=first[0]["member_id"],
            other_from_offset=first[0]["from_offset"],
            grade="possible",
            topic_id="orders-id",
            **ord_,
        )
        self.add(
            "stale_writes",
            CLAIMED + 700,
            state_partition=1,
            group_id="payments",
            what="record",
            kind="current",
            sub_id="payments-1-a7f0",
            owner_epoch=1,
            claimed_epoch=2,
            why="heartbeat",
        )
        self.add(
            "setting_changes",
            4 * HOUR,
            state_partition=2,
            group_id="invoices",
            why="IncrementalAlterConfigs",
            name="consumer.session.timeout.ms",
            value="30000",
        )
        self.add(
            "stale_claims",
            5 * HOUR,
            state_partition=0,
            group_id="shipping",
            member_id="shipping-2-c3e1",
            topic="shipping-events",
            partitions=[1, 4],
            generation=5,
            holder="shipping-1-c3e0",
            client_id="shipping-2",
        )


def example() -> tuple[Tables, list[Mark], int]:
    """The tables, what was done, and until when."""
    made = Incident()
    for n, (name, members, partitions) in enumerate(zip(NAMES, (4, 3, 2, 3, 2, 12), (12, 8, 4, 6, 4, 48), strict=True)):
        kind = "classic" if name == "shipping" else "consumer"
        made.group(name, n, members, partitions, 4 * HOUR + n * 9 * MINUTE if n else 65 * MINUTE, kind)
    made.coordinators()
    made.faults()
    gap = {"missing": 14, "whole_from_ms": BEGIN + 80 * MINUTE, "whole_from_offset": 80 * MINUTE}
    for sp in range(3):
        made.rows["coverage"].append(covered(UNTIL, sp, records=4210, first_hole_offset=17, **(gap if sp == 0 else {})))
    for n, name in enumerate(NAMES):
        values = gap if name == "orders" else {}
        made.add(
            "coverage",
            state_partition=n % 3,
            scope="group",
            group_id=name,
            last_ms=BEGIN + UNTIL,
            records=700,
            **values,
        )
    marks = [
        Mark(BEGIN + CRASH, "kill -9 sidecar 2", True),
        Mark(BEGIN + 3 * HOUR, "sidecar 2 back"),
        Mark(BEGIN + 4 * HOUR, "rolling restart of all clients"),
    ]
    return tables(made.rows), marks, BEGIN + UNTIL


def large(partitions: int = 1000, per_partition: int = 200, members: int = 150) -> tuple[Tables, int]:
    """A big group over 30 days: partitions change hands again and again, members come and go."""
    draw = random.Random(1)
    until = 30 * 24 * HOUR
    rows: dict[str, list[Row]] = defaultdict(list)
    ids = [f"consumer-{m}-{draw.getrandbits(64):016x}" for m in range(members)]
    for m, member in enumerate(ids):
        rows["members"].append(row("members", m * 1000, member_id=member, client_id=f"app-{m}"))
    for p in range(partitions):
        cuts = sorted(draw.randrange(1, until) for _ in range(per_partition - 1))
        for n, (begin, end) in enumerate(zip([0, *cuts], [*cuts, until], strict=True)):
            last = n == per_partition - 1
            rows["intervals"].append(
                row(
                    "intervals",
                    begin,
                    None if last else end,
                    member_id=ids[draw.randrange(members)],
                    partition=p,
                    topic="events",
                    topic_key="events-id",
                    topic_id="events-id",
                    first_epoch=n,
                    last_epoch=n + 1,
                    from_why=f"epoch {n}",
                    state_partition=0,
                )
            )
    for n in range(5000):
        at = n * until // 5000
        rows["rebalances"].append(
            row(
                "rebalances",
                at,
                epoch=n + 1,
                anew=n == 0,
                why=f"app-{n % members} joined",
                members=members,
                target_ms=BEGIN + at + 20,
                target_offset=at + 1,
                settled_ms=BEGIN + at + 3000,
                settled_offset=at + 3000,
                partitions_moved=8,
            )
        )
    rows["coordinators"].append(row("coordinators"))
    rows["coverage"].append(covered(until))
    return tables(rows), BEGIN + until
