"""Members of share groups (KIP-932), as far as a coordinator sees them: they join, are given partitions that others may
have, too, and leave. What they acknowledge is between them and the leaders of the partitions."""

from __future__ import annotations

from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import share_group_heartbeat as sh
from tests.whole.client import MOVED, WAIT, Client
from tests.whole.members import LEAVES, NOT_A_MEMBER


class ShareMember(Client):
    """A member that makes its member id itself."""

    async def run(self) -> None:
        self.member_id = f"{self.name}-{self.proc.universe.rng.getrandbits(32):08x}"
        tells = True
        while not self.leaving:
            names = list(self.habits.topics) if tells or self.epoch == 0 else None
            req = sh.ShareGroupHeartbeatRequest(self.habits.group_id, self.member_id, self.epoch, None, names)
            res = await self.ask(sh, "ShareGroupHeartbeat", req)
            tells = res is None or res.error_code != Code.NONE
            if res is None or res.error_code in (*MOVED, *WAIT):
                continue
            if res.error_code in NOT_A_MEMBER:
                self.lose_all()
                self.epoch = 0
                await self.pause(0.05)
                continue
            if res.error_code != Code.NONE:
                await self.pause(0.5)
                continue
            self.epoch = res.member_epoch
            if res.assignment is not None:
                self._take_over(res.assignment)
            await self.pause(self.habits.heartbeat_ms / 1000)
        self.lose_all()
        await self.ask(
            sh, "ShareGroupHeartbeat", sh.ShareGroupHeartbeatRequest(self.habits.group_id, self.member_id, LEAVES)
        )

    def _take_over(self, given: sh.Assignment) -> None:
        """At once: nobody waits for what it gives up."""
        names = {i: n for n, i in self.topic_ids().items()}
        self.owned = {(names[t.topic_id], p): 0 for t in given.topic_partitions for p in t.partitions}
        self.judge.owns(self)

    async def commit(self) -> None:
        """Does nothing: there is nothing to commit."""
