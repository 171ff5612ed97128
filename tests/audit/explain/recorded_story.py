"""A story's log as the state topic has it, for explanations of it."""

from __future__ import annotations

from sidecar.audit.explain.replay import Replayed, replayed
from sidecar.audit.history.topic import Raw, RecordsRead
from sidecar.state.codec import Encoded, Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.core.test_stories import GROUP, Story

BEGIN_MS = 999_000
"""A second before the first event of a story: a sidecar takes the partition over."""
OWNER_EPOCH = 7


class Told:
    """Play lines; what they wrote is there with the time at which they were played."""

    def __init__(self, text: str = "") -> None:
        self.story = Story()
        self.codec = StateCodec()
        self.taken = RecordsRead(0, schemas=self.codec.schemas)
        self.claim(1, "host-1:9092", BEGIN_MS)
        self._done = 0
        self.play(text)

    @property
    def now_ms(self) -> int:
        return self.story.world.now_ms

    def claim(self, node_id: int, address: str, at_ms: int, why: str = "assigned") -> None:
        self.put(self.codec.claim(Stamp(OWNER_EPOCH, at_ms), node_id, address, "m", 1, why), at_ms)

    def put(self, e: Encoded, at_ms: int) -> None:
        headers = {name: value.decode() for name, value in e.headers}
        self.taken.records.append(Raw(len(self.taken.records), at_ms, decode_key(e.key), e.value, headers))

    def play(self, text: str) -> list[str]:
        said: list[str] = []
        for line in filter(None, map(str.strip, text.splitlines())):
            said += self.story.run(line)
            log = self.story.world.log
            for r in log[self._done :]:
                self.put(self.codec.encode(r, Stamp(OWNER_EPOCH, self.now_ms), 1), self.now_ms)
            self._done = len(log)
        return said

    def replayed(self) -> Replayed:
        return replayed(GROUP, self.taken)
