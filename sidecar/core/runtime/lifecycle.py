"""The phase of a partition in one sidecar, the attempts at owning it, and the fence of each.

          assigned          fenced            claimed             replayed
ELSEWHERE ────────► FENCING ───────► CLAIMING ────────► REPLAYING ─────────► SERVING
                       ▲                │ failed           │ failed             │ failed, broken
                       │ rested         ▼                  ▼                    ▼
                       └──────────── PAUSING ◄─────────────┴────────────────────┘
From each of them `resigned` leads back to ELSEWHERE.

A fence shuts out the owner of a newer map just as well as an earlier owner. So nothing is served before the brokers,
asked after the fence, have confirmed the map. Then every owner that a newer map names sets its fence later.
"""

from __future__ import annotations

from sidecar.core.runtime.commands import Claim, Command, Fence, Follow, Renew, Stop, TookOver
from sidecar.core.runtime.effects import Count, Log
from sidecar.core.runtime.phases import TRANSITIONS, Phase
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import InvariantError

RETRY_MS, RETRY_MAX_MS = 50, 2_000
"""The pause between two attempts at a takeover doubles each time, from RETRY_MS to RETRY_MAX_MS."""
REBUILD_MS, RENEW_AGAIN_MS = 100, 10_000


class Lifecycle:
    """The phase of one partition. owner.py has the groups in memory, and drops them when an attempt ends here."""

    def __init__(self, partition: int, out: list[Command]) -> None:
        self.partition = partition
        self.phase = Phase.ELSEWHERE
        self.attempt = 0
        self.owner_epoch = -1
        self.problem = ""
        """Error of the last failed attempt at a takeover; empty once an attempt has succeeded."""
        self.fenced_ms, self.served_ms = 0, 0
        self.renew_again_ms, self.renewing = 0, False
        self._out = out
        self._pause_ms, self._why = RETRY_MS, ""
        self._rest_until_ms = 0
        self._since_ms = self._claimed_ms = 0

    def serves(self, attempt: int) -> bool:
        return attempt == self.attempt and self.phase is Phase.SERVING

    # ---- an attempt ---------------------------------------------------------------------------------------
    def assigned(self, now: Now, why: str) -> None:
        self._pause_ms, self._since_ms = RETRY_MS, now.mono_ms
        self._begin("assigned", why)

    def fenced(self, attempt: int, owner_epoch: int, now: Now) -> None:
        if attempt == self.attempt and self.phase is Phase.FENCING:
            self._go("fenced")
            self.owner_epoch, self.fenced_ms = owner_epoch, now.mono_ms
            self._out.append(Claim(self.partition, attempt, self._why))

    def claimed(self, attempt: int, offset: int, now: Now) -> None:
        if attempt == self.attempt and self.phase is Phase.CLAIMING:
            self._go("claimed")
            self._claimed_ms = now.mono_ms
            self._out.append(Follow(self.partition, attempt, offset))

    def replayed(self, attempt: int, now: Now) -> bool:
        """Returns whether the partition is served from now on."""
        if attempt != self.attempt or self.phase is not Phase.REPLAYING:
            return False
        self._go("replayed")
        self.problem, self._pause_ms = "", RETRY_MS
        self.served_ms = now.mono_ms
        return True

    def took_over(self, groups: int) -> None:
        """Reports the end of the takeover. `groups`: how many are ready to be loaded."""
        ms = self.served_ms - self._since_ms
        self._out.append(TookOver(self.partition, self.owner_epoch, groups, ms))
        fields = {
            "partition": self.partition,
            "owner_epoch": self.owner_epoch,
            "groups": groups,
            "ms": ms,
            "fence_ms": self.fenced_ms - self._since_ms,
            "claim_ms": self._claimed_ms - self.fenced_ms,
        }
        self._out.append(Log("took over", fields, "info" if groups else "debug"))

    def wake(self, now: Now) -> None:
        if self.phase is Phase.PAUSING and now.mono_ms >= self._rest_until_ms:
            self._begin("rested", "rebuilt")

    def _begin(self, signal: str, why: str) -> None:
        self._go(signal)
        self.attempt += 1
        self._why = why
        self._out.append(Fence(self.partition, self.attempt, again=signal == "rested"))

    # ---- its end ------------------------------------------------------------------------------------------
    def resigned(self, why: str) -> bool:
        """Returns whether an attempt ended."""
        self.problem = ""
        if self.phase is Phase.ELSEWHERE:
            return False
        self._end("resigned", why)
        return True

    def failed(self, attempt: int, why: str, shut_out: bool, now: Now) -> bool:
        """Returns whether an attempt ended."""
        if attempt != self.attempt or self.phase in (Phase.ELSEWHERE, Phase.PAUSING):
            return False
        if self.phase is Phase.SERVING:
            self._out.append(Count("fenced", ("fenced" if shut_out else "write lost",)))
            self._out.append(Log("shard dropped", {"partition": self.partition, "why": why}, "error"))
            rest_ms = REBUILD_MS
        else:
            self.problem = why
            fields = {"partition": self.partition, "error": why}
            self._out.append(Log("takeover failed, trying again", fields, "debug"))
            rest_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, RETRY_MAX_MS)
        self.rest(why, rest_ms, now)
        return True

    def broken(self, why: str, now: Now) -> None:
        self.rest(why, REBUILD_MS, now)

    def rest(self, why: str, rest_ms: int, now: Now) -> None:
        """Ends the attempt; the next one begins after `rest_ms`."""
        if self.phase is Phase.SERVING:
            self._since_ms = now.mono_ms
        self._end("failed", why)
        self._rest_until_ms = now.mono_ms + rest_ms

    def _end(self, signal: str, why: str) -> None:
        self._go(signal)
        self.renewing = False
        self._out.append(Stop(self.partition, self.attempt, why))

    def _go(self, signal: str) -> None:
        then = TRANSITIONS[self.phase].get(signal)
        if then is None:
            raise InvariantError(f"partition {self.partition}: {signal} while {self.phase}")
        self.phase = then

    # ---- another fence while it serves: brokers forget fences -----------------------------------------------
    def renewal_due(self, interval_ms: float, now: Now) -> bool:
        due = now.mono_ms - self.fenced_ms > interval_ms and now.mono_ms >= self.renew_again_ms
        return due and not self.renewing

    def renew(self) -> None:
        self.renewing = True
        self._out.append(Renew(self.partition, self.attempt))

    def renewed(self, attempt: int, owner_epoch: int, now: Now) -> None:
        if self.serves(attempt):
            self.owner_epoch, self.fenced_ms, self.renewing = owner_epoch, now.mono_ms, False

    def not_renewed(self, attempt: int, why: str, now: Now) -> None:
        """Keeps the former fence, and tries again after RENEW_AGAIN_MS."""
        if self.serves(attempt):
            self.renew_again_ms, self.renewing = now.mono_ms + RENEW_AGAIN_MS, False
            fields = {"partition": self.partition, "why": why}
            self._out.append(Log("the fence is not renewed, trying again", fields, "warning"))
