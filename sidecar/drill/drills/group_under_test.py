"""The clients of one group under test, and a drill's questions about them: by the kind of the group."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sidecar.core.share.config import SHARE
from sidecar.core.streams.config import STREAMS
from sidecar.drill.clients import Client, Journal, backward_commits, java_consumer, missing, python_consumer
from sidecar.drill.kinds import ShareJournal, SinkReader, acknowledged_twice, share_consumer, streams_instance
from sidecar.drill.local import LocalKafka
from sidecar.drill.members import Member, first_after

PARTITIONS = 12
KINDS = ("consumer", "classic")
PROTOCOLS = {"consumer": "consumer", "classic": "range"}


@dataclass
class GroupUnderTest:
    """The clients of one group under test, and the members that measure its coordinator beside it."""

    side: str
    """The coordinator: sidecar or kafka."""
    kind: str
    """Kind of the group: consumer, classic, share or streams."""
    group: str
    bootstrap: str
    clients: list[Client] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    ended: list[Client] = field(default_factory=list)
    """Clients that have ended and were replaced."""
    places: tuple[str, ...] = ("a", "b")
    """Suffixes of the clients' names in a share or streams group, one for each client."""
    make: list[Callable[[str], Client]] = field(default_factory=list)
    """By place: makes a client for it, with this name."""

    @property
    def measured_as(self) -> str:
        """The kind of the members that measure its coordinator."""
        return self.kind

    @property
    def title(self) -> str:
        return f"{self.side} {self.kind}"

    @property
    def journals(self) -> list[Journal]:
        return [c.journal for c in (*self.ended, *self.clients)]

    def open(self, kafka: LocalKafka, topic: str, name: str) -> None:
        """Start the group's clients, whose names begin with `name`."""
        how = {"protocol": PROTOCOLS[self.kind], "bootstrap": self.bootstrap}
        # Only librdkafka's log has the answers that a client got from its coordinator.
        log = ("--debug", "cgrp")
        self._start(
            name,
            java=lambda name: java_consumer(kafka, name, topic, self.group, **how),
            py=lambda name: python_consumer(kafka, name, topic, self.group, *log, **how),
        )

    def _start(self, name: str, **make: Callable[[str], Client]) -> None:
        self.make = list(make.values())
        for of, new in make.items():
            self.clients.append(new(f"{name}-{of}").start())

    def close(self) -> None:
        """End helpers that are no clients."""

    def commit_times(self) -> list[list[int]]:
        """Return, for each running client, when its commits were acknowledged (ms)."""
        return [[at for at, _, _ in list(c.journal.commit_log)] for c in self.clients]

    def partition_commits(self) -> list[list[int]]:
        """Return, by partition, when a commit of it was acknowledged to any client (ms)."""
        times: list[list[int]] = [[] for _ in range(PARTITIONS)]
        for j in self.journals:
            for at, p, _ in list(j.commit_log):
                times[p].append(at)
        return times

    def all_committed_since(self, at_ms: int) -> bool:
        """Return whether a commit of every partition was acknowledged since then."""
        return all(times and max(times) > at_ms for times in self.partition_commits())

    def all_commits(self) -> list[int]:
        """Return when any commit of the group was acknowledged (ms)."""
        return [at for j in self.journals for at, _, _ in list(j.commit_log)]

    def replace(self, client: Client) -> None:
        """Start another client in the place of one that has ended."""
        client.journal.end(int(time.time() * 1000))
        place = self.clients.index(client)
        self.ended.append(client)
        self.clients[place] = self.make[place](f"{client.name}-again").start()

    def restart(self, client: Client) -> None:
        """Stop a client in order, so that its member leaves, and start another in its place."""
        client.stop()
        self.replace(client)

    def balanced(self) -> bool:
        held = [c.journal.current() for c in self.clients]
        return all(held) and sorted(p for h in held for p in h) == list(range(PARTITIONS))

    def served_since(self, at_s: float, at_ms: int) -> bool:
        """Return whether every client has committed, and every member has heartbeat and commit accepted, since then."""
        members = (first_after(a, at_s) for m in self.members for a in (m.heartbeats, m.commits))
        clients = (bool(times) and times[-1] > at_ms for times in self.commit_times())
        return all(clients) and all(seconds is not None for seconds in members)

    def best(self) -> dict[int, int]:
        """Return, by partition, the highest offset whose commit was acknowledged to a client."""
        best: dict[int, int] = {}
        for j in self.journals:
            for _, p, offset in list(j.commit_log):
                best[p] = max(best.get(p, 0), offset)
        return best

    def consumed_all(self, produced: dict[int, int]) -> bool:
        """Return whether everything below these ends, by partition, is committed."""
        best = self.best()
        return all(best.get(p, 0) >= end for p, end in produced.items())

    def lost(self, produced: dict[int, int]) -> int:
        """Return how many records below these ends, by partition, no client consumed."""
        return missing(produced, self.journals)

    def went_back(self) -> list[str]:
        """List the acknowledged offsets that were set back later."""
        return backward_commits(self.journals)


class _ByRecords(GroupUnderTest):
    """A group whose clients have no partitions and offsets of their own: only the records count."""

    measured_as = "consumer"

    def balanced(self) -> bool:
        return all(c.journal.count for c in self.clients)

    def best(self) -> dict[int, int]:
        """Return nothing: the broker keeps no offset that a client could lose."""
        return {}

    def consumed_all(self, produced: dict[int, int]) -> bool:
        return self.lost(produced) == 0


class ShareGroupUnderTest(_ByRecords):
    """A share group, whose members acknowledge records, and own nothing. A record is lost if no member acknowledged it,
    and no acknowledgement of it is in doubt after a broken connection."""

    def lost(self, produced: dict[int, int]) -> int:
        in_doubt = [j.in_doubt for j in self.journals if isinstance(j, ShareJournal)]
        return missing(produced, [*self.journals, *in_doubt])

    def open(self, kafka: LocalKafka, topic: str, name: str) -> None:
        def new(name: str) -> Client:
            return share_consumer(kafka, name, topic, self.group, self.bootstrap)

        self._start(name, **dict.fromkeys(self.places, new))

    def went_back(self) -> list[str]:
        return acknowledged_twice(self.journals)


class StreamsGroupUnderTest(_ByRecords):
    """Instances of an application that counts, exactly once. A record is lost if it is counted never or twice."""

    reader: SinkReader | None = None

    def open(self, kafka: LocalKafka, topic: str, name: str) -> None:
        sink = sink_of(topic)

        def new(name: str) -> Client:
            client = streams_instance(kafka, name, topic, sink, self.group, self.bootstrap)
            assert self.reader is not None
            self.reader.journals[name] = client.journal
            return client

        self.reader = SinkReader(kafka.internal, topic, sink, PARTITIONS).start()
        self._start(name, **dict.fromkeys(self.places, new))

    def close(self) -> None:
        if self.reader is not None:
            self.reader.stop()

    def lost(self, produced: dict[int, int]) -> int:
        assert self.reader is not None
        return self.reader.lacks(produced)

    def went_back(self) -> list[str]:
        return [] if self.reader is None else self.reader.back


OF_KINDS = {SHARE: ShareGroupUnderTest, STREAMS: StreamsGroupUnderTest}


def group_under_test(
    side: str, kind: str, group: str, bootstrap: str, places: tuple[str, ...] = ("a", "b")
) -> GroupUnderTest:
    return OF_KINDS.get(kind, GroupUnderTest)(side, kind, group, bootstrap, places=places)


def sink_of(topic: str) -> str:
    """Return the topic to which the application that reads this topic writes."""
    return f"{topic}-counts"
