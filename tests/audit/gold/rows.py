"""Rows of silver for tests: by hand, or from the coordinator's own records as a simulated run has written them."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable, Sequence
from typing import Any

from sidecar.audit.tables.layers import CORRUPT, FROM_KEY, ROLES, SILVER, SILVER_TABLES
from sidecar.core.classic.embedded import assigned
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.runtime.effects import Effects
from sidecar.core.runtime.records import Record, Tombstone
from tests.audit.gold.replay import Row
from tests.core.share.test_random_share import Run as RandomShare
from tests.core.share.world import World as ShareWorld
from tests.core.streams.test_random_streams import Run as RandomStreams
from tests.core.streams.world import World as StreamsWorld
from tests.harness.tiers import seeds_of_run
from tests.sim.model import Cluster
from tests.sim.run import play
from tests.sim.world import GROUPS

SUB = {kind: column for kind, column in FROM_KEY.items() if kind != "schema"}
WHO: Row = {"client_id": "c", "client_host": "/h"}
EVENTS = 300
UNFENCED = ("owner_claim", "config", "schema")


class Log:
    """One state partition. Offsets, revisions and claimed epochs come by themselves."""

    def __init__(self, partition: int = 0) -> None:
        self.partition = partition
        self.rows: list[Row] = []
        self.revisions: dict[Any, int] = {}
        self.claimed: int | None = None
        self.epoch = 1
        self.forgotten = 0

    def forget(self) -> None:
        """The rows so far, but not what comes after them."""
        self.forgotten += len(self.rows)
        self.rows = []

    def put(self, kind: str, group: str, sub: str = "", *, gone: bool = False, **fields: Any) -> Row:
        table = SILVER[kind]
        offset = self.forgotten + len(self.rows)
        row: Row = dict.fromkeys(table.names) | {
            "table": table.name,
            "state_partition": self.partition,
            "offset": offset,
            "log_ms": 1_000 + 10 * offset,
            "written_ms": 1_000,
            "group_id": group,
            "owner_epoch": self.epoch,
            "claimed_epoch": self.claimed,
            "deleted": gone,
            "why": f"why {offset}",
        }
        if kind in SUB:
            row[SUB[kind]] = sub
        row |= fields
        void = None not in (row["owner_epoch"], self.claimed) and row["owner_epoch"] != self.claimed
        key = (kind, group, sub)
        row["revision"] = fields.get("revision", self.revisions.get(key, 0) + 1)
        if kind == "owner_claim" and not gone and sub.isdigit():
            self.claimed = self.epoch = row["owner_epoch"] = int(sub)
        elif gone:
            self.revisions.pop(key, None)
        elif kind in UNFENCED or not void:
            self.revisions[key] = row["revision"]
        assert set(row) == {*table.names, "table"}, set(row) ^ {*table.names, "table"}
        self.rows.append(row)
        return row

    def unreadable(self, kind: str | None, group: str | None, sub: str | None) -> None:
        offset = self.forgotten + len(self.rows)
        self.revisions[kind, group, sub] = self.revisions.get((kind, group, sub), 0) + 1
        row = dict.fromkeys(CORRUPT.names) | {"table": CORRUPT.name, "state_partition": self.partition}
        row |= {"offset": offset, "log_ms": 1_000 + 10 * offset, "reason": "damaged", "value": b""}
        self.rows.append(row | {"kind": kind, "group_id": group, "sub_id": sub})

    # ---- by hand ----------------------------------------------------------------------------------------------
    def claim(self, epoch: int, producer_id: int = 1, producer_epoch: int | None = None) -> Row:
        return self.put(
            "owner_claim",
            "",
            f"{epoch:020d}",
            node_id=epoch,
            address=f"h{epoch}:1",
            member_id=f"s{epoch}",
            generation=1,
            producer_id=producer_id,
            producer_epoch=epoch if producer_epoch is None else producer_epoch,
        )

    def member(self, group: str, member_id: str, **fields: Any) -> Row:
        return self.put("member", group, member_id, **{**WHO, **fields})

    def group(self, group: str, epoch: int, **fields: Any) -> Row:
        return self.put("group", group, epoch=epoch, metadata_hash=1, **fields)

    def current(
        self, group: str, member_id: str, epoch: int, held: Sequence[int], pending: Sequence[int] = (), **fields: Any
    ) -> Row:
        state = "UNREVOKED_PARTITIONS" if pending else "STABLE"
        made: Row = {"assigned": owned(held, epoch), "pending": owned(pending, epoch), "state": state}
        return self.put("current", group, member_id, member_epoch=epoch, previous_epoch=epoch - 1, **made | fields)

    def target(self, group: str, epoch: int, **members: Sequence[int]) -> None:
        for member_id, ps in members.items():
            places = [{"topic_id": "T", "topic": "t", "partitions": list(ps)}] if ps else []
            self.put("target_member", group, member_id, partitions=places)
        self.put("target_metadata", group, epoch=epoch, assignment_timestamp_ms=1, assignor="uniform")

    def leave(self, group: str, member_id: str) -> None:
        for kind in ("current", "target_member", "member"):
            self.put(kind, group, member_id, gone=True)

    def classic(self, group: str, state: str, generation: int, given: int, **fields: Any) -> Row:
        made: Row = {"protocol_type": "consumer", "protocol": "range", "leader": "m1", "since_ms": 1, "adopted": False}
        return self.put(
            "classic_group",
            group,
            state=state,
            generation=generation,
            assigned_generation=given,
            **made | fields,
        )

    def joins(self, group: str, member_id: str, **fields: Any) -> Row:
        made: Row = {"client_id": "c", "client_host": "/h", "stale_claims": [], "generation": 0}
        return self.put("classic_member", group, member_id, **made | fields)

    def assign(self, group: str, member_id: str, generation: int, held: Sequence[int], **fields: Any) -> Row:
        given = [{"topic": "t", "partitions": list(held)}] if held else []
        return self.put(
            "classic_assignment", group, member_id, generation=generation, assigned=given, assignment_bytes=9, **fields
        )

    # ---- share groups and streams groups ------------------------------------------------------------------------
    def placeholder(self, group: str, initialised: Sequence[int], **fields: Any) -> Row:
        shown = {"initialised": _shared(initialised), "topic_names": ["t"], "keeper": 1, "since_ms": 1}
        return self.put("share_placeholder", group, **{"member_id": "p", **shown, **fields})

    def share_member(self, group: str, member_id: str, *names: str, **fields: Any) -> Row:
        return self.put("share_member", group, member_id, topic_names=list(names or ("t",)), **WHO, **fields)

    def share_current(self, group: str, member_id: str, epoch: int, held: Sequence[int], **fields: Any) -> Row:
        made: Row = {"member_epoch": epoch, "previous_epoch": epoch - 1, "assigned": _shared(held)}
        return self.put("share_current", group, member_id, **made | fields)

    def streams_member(self, group: str, member_id: str, process: str, **fields: Any) -> Row:
        return self.put("streams_member", group, member_id, process_id=process, **WHO, **fields)

    def streams_current(self, group: str, member_id: str, epoch: int, **held: Sequence[int]) -> Row:
        """Writes a current assignment of one subtopology; `held`: by role, and by `pending_` role."""
        made: Row = {f"{p}{role}": tasks(held.get(f"{p}{role}", ())) for p in ("", "pending_") for role in ROLES}
        for name in ("active", "pending_active"):
            made[name] = [{**t, "epochs": [epoch] * len(t["partitions"])} for t in made[name]]
        state = "UNREVOKED_TASKS" if any(n.startswith("pending_") for n in held) else "STABLE"
        return self.put(
            "streams_current", group, member_id, member_epoch=epoch, previous_epoch=epoch - 1, state=state, **made
        )

    def remove_member(self, kind: str, group: str, member_id: str) -> None:
        for name in ("current", "target_member", "member"):
            self.put(f"{kind}_{name}", group, member_id, gone=True)


def _shared(partitions: Sequence[int]) -> list[Row]:
    return [{"topic_id": "T", "topic": "t", "partitions": list(partitions)}] if partitions else []


def tasks(partitions: Sequence[int]) -> list[Row]:
    return [{"subtopology": "0", "partitions": list(partitions)}] if partitions else []


def owned(partitions: Sequence[int], epoch: int) -> list[Row]:
    ps = list(partitions)
    return [{"topic_id": "T", "topic": "t", "partitions": ps, "epochs": [epoch] * len(ps)}] if ps else []


# ---- from records -----------------------------------------------------------------------------------------------
def _topics(items: Iterable[Row]) -> list[Row]:
    return [
        {"topic_id": base64.urlsafe_b64encode(i["topic_id"]).decode().rstrip("="), "topic": i["topic_name"]}
        | {n: i[n] for n in ("partitions", "epochs") if n in i}
        for i in items
    ]


def fields_of(record: Any) -> Row:
    """The columns of silver that are this kind's own."""
    body: Row = record.body()
    kind = str(record.kind)
    for name in ROLES:
        for column in (name, f"pending_{name}"):
            if column in body:
                body[column] = [{"subtopology": t.pop("subtopology_id"), **t} for t in body[column]]
    for name in ("assignment_configs", "client_tags"):
        if name in body:
            body[name] = [{"name": n, "value": v} for n, v in body[name].items()]
    if kind == "streams_topology":
        body["subtopologies"] = [{"subtopology": t.pop("subtopology_id"), **t} for t in body["subtopologies"]]
    elif kind == "share_placeholder":
        body["initialised"] = _topics(body["initialised"])
    elif kind == "share_current":
        body["assigned"] = _topics(body["assigned"])
    elif kind.endswith("target_metadata"):
        body["epoch"] = body.pop("assignment_epoch")
    elif kind in ("target_member", "share_target_member"):
        body["partitions"] = _topics(body["partitions"])
    elif kind == "current":
        body |= {n: _topics(body[n]) for n in ("assigned", "pending")}
    elif kind == "member":
        traits = body.pop("classic")
        if traits is not None:
            body["session_timeout_ms"] = traits["session_timeout_ms"]
            body["protocol_names"] = [p["name"] for p in traits["protocols"]]
    elif kind == "classic_member":
        body["protocol_names"] = [p["name"] for p in body.pop("protocols")]
    elif kind == "classic_assignment":
        raw = body.pop("assignment")
        given = assigned(raw)
        body["assignment_bytes"] = len(raw)
        body["assigned"] = None if given is None else [{"topic": t, "partitions": list(p)} for t, p in given.items()]
    return body


def simulated(seed: int, first_partition: int) -> list[Row]:
    """Returns all rows of a simulated run, before any compaction. Its partitions get their own numbers."""
    return simulated_with_owners(seed, first_partition)[0]


def simulated_with_owners(
    seed: int, first_partition: int, fencing: bool = True
) -> tuple[list[Row], set[tuple[Any, ...]]]:
    """Returns the rows of a simulated run, and who owns what at its end by the coordinator's own state: state
    partition, group, kind, topic key, partition, member. Without `fencing` the log also takes what fenced coordinators
    write."""
    logs: list[Log] = []
    sims: list[Cluster] = []

    def listen(sim: Cluster) -> None:
        sims.append(sim)
        for n, log in enumerate(sim.world.logs):
            log.fencing = fencing
            made = Log(first_partition + n)
            logs.append(made)
            real = log.append

            def append(epoch: int, records: Sequence[Record | None], real: Any = real, made: Log = made) -> int:
                offset: int = real(epoch, records)
                if offset >= 0:
                    for r in records:
                        _record(made, epoch, r, sim.world.now)
                return offset

            log.append = append  # type: ignore[method-assign]

    play(seed, plant=listen)
    (sim,) = sims
    owners = {
        (first_partition + sim.world.partition_of(group_id), group_id, *place)
        for group_id in GROUPS
        for place in owners_of(sim.checks.group(group_id))
    }
    return [row for log in logs for row in log.rows], owners


def owners_of(group: Any) -> Iterable[tuple[str, str, int, str]]:
    """Kind, topic key, partition, member."""
    if isinstance(group, ConsumerGroup):
        for topic, owners in group.owners.items():
            for p, m in owners.items():
                yield "consumer", base64.urlsafe_b64encode(topic).decode().rstrip("="), p, m
    elif group is not None:
        for m, given in group.assignments.items():
            for topic_name, ps in (assigned(given) or {}).items():
                yield from (("classic", topic_name, p, m) for p in ps)


def logs_of_run(count: int) -> list[Row]:
    """Returns the logs of this run's seeds, of all kinds of groups, each in state partitions of its own."""
    return [
        row
        for n, seed in enumerate(seeds_of_run(count))
        for row in (*simulated(seed, 10 * n), *share_and_streams(seed, 10 * n + 8))
    ]


def share_and_streams(seed: int, first_partition: int) -> list[Row]:
    """Returns the rows of random runs of a share group and a streams group, each in its own state partition."""
    run, log = RandomShare(random.Random(seed)), Log(first_partition)
    written_by(run.world, log)
    for _ in range(EVENTS):
        run.event()
    return log.rows + random_streams(random.Random(seed), first_partition + 1)


def random_streams(rng: random.Random, partition: int) -> list[Row]:
    run, log = RandomStreams(rng), Log(partition)
    written_by(run.world, log)
    for _ in range(EVENTS):
        run.event()
    return log.rows


def written_by(world: ShareWorld | StreamsWorld, log: Log) -> None:
    """The log gets what the world writes from now on."""
    listen, taken = world.applied, 0

    def applied(fx: Effects) -> None:
        nonlocal taken
        new, taken = world.log[taken:], len(world.log)
        for record in new:
            _record(log, 1, record, world.now_ms)
        listen(fx)

    log.claim(1)
    world.applied = applied


def _record(log: Log, epoch: int, record: Record | None, now: int) -> None:
    if record is None:
        row = log.claim(epoch)
        row |= {"log_ms": now, "written_ms": now}
        return
    log.epoch = epoch
    gone = isinstance(record, Tombstone)
    fields = {} if gone else fields_of(record)
    times = {"log_ms": now, "written_ms": now, "why": record.why}
    log.put(str(record.kind), record.group_id, record.sub_id, gone=gone, **fields | times)


def spaced(rows: list[Row], rng: random.Random) -> list[Row]:
    """The rows of a state partition, with offsets that transactions took: one for each marker, more if aborted."""
    made, lost = [], 0
    for row in rows:
        made.append({**row, "offset": row["offset"] + lost})
        if rng.random() < 0.05:
            lost += rng.choice((1, 1, 1, 4))
    return made


def compacted(rows: list[Row], rng: random.Random) -> list[Row]:
    """The rows of a state partition as Kafka leaves them: up to some offset the last of each key, and of those no
    tombstone up to some earlier offset; all rows behind it. A tombstone never goes before the values that it deletes:
    what is said of owners rests on that (docs/design/decisions.md, Audit)."""
    cleaned = rng.randrange(len(rows) + 1)
    forgotten = rng.randrange(cleaned + 1)
    last = {key_of(row): i for i, row in enumerate(rows[:cleaned])}
    kept = {i for i in last.values() if i >= forgotten or not rows[i]["deleted"]}
    return [row for i, row in enumerate(rows) if i >= cleaned or i in kept]


def key_of(row: Row) -> tuple[Any, ...]:
    kind = next(k for k, t in SILVER.items() if t.name == row["table"])
    return (row["state_partition"], kind, row["group_id"], row[SUB[kind]] if kind in SUB else "")


def by_table(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {name: [] for name in SILVER_TABLES}
    for row in rows:
        found[row["table"]].append(row)
    return found
