"""A story's records as the state topic has them, to explain and replay."""

from __future__ import annotations

from sidecar.audit.explain.replay import Replayed, replayed
from sidecar.audit.history.topic import Raw, RecordsRead
from sidecar.state.codec import Encoded, Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.core.test_stories import GROUP, Story

BEGIN_MS = 999_000
"""A second before the first event of a story: a sidecar takes the partition over."""
OWNER_EPOCH = 7


class RecordedStory:
    """Plays a story's lines. `taken`: the records of each, with the time at which its line was played."""

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
        answers: list[str] = []
        for line in filter(None, map(str.strip, text.splitlines())):
            answers += self.story.run(line)
            log = self.story.world.log
            for r in log[self._done :]:
                self.put(self.codec.encode(r, Stamp(OWNER_EPOCH, self.now_ms), 1), self.now_ms)
            self._done = len(log)
        return answers

    def replayed(self) -> Replayed:
        return replayed(GROUP, self.taken)
