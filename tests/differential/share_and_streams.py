"""Plays scripts of share groups and streams groups to both coordinators. The first difference is the finding."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import metadata as md
from tests.differential.classic import Parted
from tests.differential.older import is_older
from tests.differential.run import KNOWN_S, Difference, admin_of, change_topic, play_many, until, wait_for_topics
from tests.differential.script import Step
from tests.differential.share import ShareSide, make_share
from tests.differential.streams import StreamsSide
from tests.differential.streams_before import StreamsSideBefore, make_streams_before
from tests.differential.streams_script import make_streams
from tests.differential.topology import same_hash

TOO_MANY = 3
"""Replicas for one broker."""


@dataclass(frozen=True)
class Family:
    """A family of scripts: what a script is, and who speaks its steps."""

    name: str
    option: str
    make: Callable[[int], list[Step]]
    side: type[StreamsSide] | type[ShareSide]


STREAMS_BEFORE = Family("b", "streams", make_streams_before, StreamsSideBefore)
"""For a Kafka before the anchor."""
STREAMS = Family("s", "streams", make_streams, StreamsSide)
SHARE = Family("h", "share", make_share, ShareSide)


def streams_of(version: str) -> Family:
    """Returns the scripts of streams groups that a broker of this version can play."""
    return STREAMS_BEFORE if is_older(version) else STREAMS


class Script:
    """One script on both sides. `counts`: the partitions of topics that it has made."""

    def __init__(
        self, what: Family, seed: int, ours: BrokerConnection, theirs: BrokerConnection, ids: dict[str, bytes]
    ) -> None:
        self.what, self.seed = what, seed
        self.steps = what.make(seed)
        name = f"managed-{what.name}{seed}"
        groups = name, same_hash(name, f"unmanag-{what.name}{seed}-")
        self.sides = [what.side(conn, g, ids) for conn, g in zip((ours, theirs), groups, strict=True)]
        self.conn = theirs
        self.counts: dict[str, int] = {}

    async def play(self, admin: AdminClient, tell: bool) -> tuple[int, str]:
        """Number of steps, and why the script was not played to its end, if so. Raises Difference."""
        for n, s in enumerate(self.steps):
            if s.verb == "topic":
                await self._topic(admin, **s.options)
                continue
            a, b = await asyncio.gather(*(side.run(s) for side in self.sides))
            if tell:
                print(f"{n:3} {s}\n      sidecar {a}" + (f"\n      Kafka   {b}" if a != b else ""), flush=True)
            if a != b and not self.sides[1].agrees(s, a, b):
                if why := self.sides[1].ends(a, b):
                    return n, why
                trail = "\n".join(f"   {i:3} {t}" for i, t in enumerate(self.steps[: n + 1]))
                raise Difference(
                    f"seed {self.seed}, step {n}, {s}\n sidecar {a}\n Kafka   {b}\n{trail if tell else ''}"
                )
            try:
                await self._created()
            except Parted as why:
                return n, str(why)
        return len(self.steps), ""

    async def _topic(self, admin: AdminClient, name: str, how: str) -> None:
        for side in self.sides:
            side.own_topics = True
        names = {name.replace("@", side.group) for side in self.sides}
        for topic in names:
            await asyncio.to_thread(change_topic, admin, topic, how, self.counts)
        await wait_for_topics(self.sides, self.conn, self.counts, sorted(names))

    async def _created(self) -> None:
        """Waits until internal topics that members were asked to create are there, and both coordinators know it."""
        if not all(side.details for side in self.sides):
            return
        topics = [t for side in self.sides for t in (await side.internal_topics()).items()]
        wanted = [name for name, replicas in topics if replicas < TOO_MANY]
        counts: dict[str, int] = {}

        async def all_created() -> bool:
            counts.update(await self._partitions(wanted))
            return len(counts) == len(wanted)

        await until(all_created, KNOWN_S)
        await wait_for_topics(self.sides, self.conn, counts, wanted)
        if len(wanted) < len(topics):
            raise Parted("a topic cannot be created")
        for side in self.sides:
            side.details = ""

    async def _partitions(self, names: list[str]) -> dict[str, int]:
        req = md.MetadataRequest(
            topics=[md.MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False
        )
        res = await self.conn.request(md, "Metadata", req)
        return {t.name: len(t.partitions) for t in res.topics if t.error_code == Code.NONE}


async def play_families(
    kafka: LocalKafka, seeds: range, tell: bool = False, what: Family = STREAMS
) -> tuple[int, list[str]]:
    """Steps in all, and the differences."""
    admin = admin_of(kafka)
    return await play_many(
        kafka,
        seeds,
        f" --{what.option}",
        lambda seed, ours, theirs, ids: Script(what, seed, ours, theirs, ids).play(admin, tell),
    )
