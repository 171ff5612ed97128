"""Watches the broker while it owes answers, and ends what waits for a silent one (failure_detector.py decides).

A silent broker takes its sidecar's clients with it: whatever needs the broker hangs until the client gives up. So while
the broker is silent, a request that needs it is answered from memory by its handler, or its connection is closed, and
the client asks another broker. Connections that need nothing of the broker stay as they are.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol, cast

from sidecar.front.failure_detector import FailureDetector
from sidecar.link.ports import Figures, Logger
from sidecar.wire.apis import Api
from sidecar.wire.frames import request_frame

LOOKS = 16
"""Checks for silence in each `limit_ms`, the time after which the broker counts as silent."""
AGAIN_S = 10.0
"""Time after which an unanswered probe is replaced. More probes would fill the queue of a broker that accepts
nothing."""
LATE_MS = 100
"""A check that comes later than this shows that the loop was busy or that the process stood still."""
AT_ONCE = 100
"""Connections that are ended before the loop turns."""
PROBE = request_frame(Api.API_VERSIONS, 0, 0, "kafka-group-sidecar", False, b"")
"""ApiVersions, which a broker answers before it knows the client's principal."""
NO_ANSWER = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
SILENT = "broker_silent"
"""Cause with which a connection is closed that needs a silent broker."""
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Connects to the broker as a client's connection does. Raises OSError."""


class Watched(Protocol):
    """A client's own connection to the broker."""

    @property
    def has_answered(self) -> bool:
        """Whether the broker has answered on it."""

    @property
    def owed(self) -> bool:
        """Whether the broker owes it an answer."""

    @property
    def cut_off(self) -> bool:
        """Whether the broker is silent to it."""

    def fall_silent(self) -> None: ...


class Served(Protocol):
    """A client's connection."""

    @property
    def upstream(self) -> Watched: ...


class _Probe(asyncio.Protocol):
    def __init__(self, watch: BrokerWatch) -> None:
        self._watch = watch
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self.transport.write(PROBE)

    def data_received(self, data: bytes) -> None:
        self._watch.probe_answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not isinstance(exc, TimeoutError):  # then the kernel gave up, without an answer
            self._watch.probe_refused(self)


def _same(probe: _Probe) -> _Probe:
    return probe


class BrokerWatch:
    """Checks the broker for silence. `limit_ms` 0: nothing is watched. `changed(quiet_ms, to_all)` is called when
    silence begins, to new connections and then to all, with the time since the broker last answered; and with -1 when
    it ends."""

    def __init__(
        self,
        limit_ms: int,
        connect: Connect,
        sessions: Iterable[Served],
        changed: Callable[[int, bool], None],
        figures: Figures,
        log: Logger,
    ) -> None:
        self.detector = FailureDetector(limit_ms)
        self.watching = limit_ms == 0
        """Whether `begin` has nothing to do."""
        self.connect = connect
        self._look_s = limit_ms / LOOKS / 1000
        self._sessions, self._changed, self._log = sessions, changed, log
        self._fresh: dict[Watched, int] = {}
        """Recent connections to the broker, the oldest first -> when they began."""
        self._probe: asyncio.Task[None] | None = None
        self._asking: _Probe | None = None
        self._ending: deque[Watched] = deque()
        self._silent = self._silent_to_all = False
        """The detector's verdict at the last check."""
        self._since_ms = self._due_ms = 0
        self._silences = figures("broker_silences")
        figures("broker_silent").set_function(lambda: float(self.detector.silent))

    @property
    def problem(self) -> str:
        """Problem for /readyz; "" without one."""
        return "the broker is silent; clients that need it are closed until it answers" if self.detector.silent else ""

    # ---- reports of sessions ------------------------------------------------------------------------------
    def begin(self) -> None:
        """Starts the checks: the broker was sent a request."""
        self.watching = True
        self.detector.begin(self._now_ms())
        self._look_later()

    def connects(self, upstream: Watched) -> None:
        """Notes that a connection to the broker begins."""
        if self._look_s:
            self._fresh[upstream] = self._now_ms()

    def tell(self) -> None:
        """Tells a silence under way once more: whoever heard of it has gone."""
        if self._silent:
            self._changed(self._now_ms() - self._since_ms, self._silent_to_all)

    # ---- looking ------------------------------------------------------------------------------------------
    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _look_later(self) -> None:
        self._due_ms = self._now_ms() + round(self._look_s * 1000)
        asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _look(self) -> None:
        detector, now_ms = self.detector, self._now_ms()
        if now_ms - self._due_ms > LATE_MS:
            detector.stood_still(now_ms - self._due_ms)
        owes = detector.received or any(s.upstream.owed for s in self._sessions)
        if detector.look(now_ms, owes, self._oldest_fresh()):
            self._send_probe()
        self._follow()
        self.watching = owes or detector.silent
        if self.watching:
            self._look_later()

    def _oldest_fresh(self) -> int | None:
        while self._fresh:
            upstream, since_ms = next(iter(self._fresh.items()))
            if upstream.owed and not upstream.has_answered:
                return since_ms
            del self._fresh[upstream]
        return None

    def _follow(self) -> None:
        """Logs, counts and acts on a change of the detector's verdict."""
        detector = self.detector
        was, self._silent = self._silent, detector.silent
        was_to_all, self._silent_to_all = self._silent_to_all, detector.silent_to_all
        if detector.silent and not was:
            self._since_ms = min(detector.quiet_ms, self._now_ms())
            self._silences.inc()
            self._log.warning("broker is silent")
        elif was and not detector.silent:
            self._log.info("broker answers again", ms=self._now_ms() - self._since_ms)
            self._changed(-1, False)
        if (detector.silent, detector.silent_to_all) > (was, was_to_all):
            self._changed(self._now_ms() - self._since_ms, detector.silent_to_all)
            self._ending.extend(s.upstream for s in self._sessions)
            self._end_some()

    def _end_some(self) -> None:
        """Ends connections that wait for the broker, some at a time: there may be thousands."""
        for _ in range(min(AT_ONCE, len(self._ending))):
            upstream = self._ending.popleft()
            if upstream.owed and upstream.cut_off:
                upstream.fall_silent()
        if self._ending:
            asyncio.get_running_loop().call_soon(self._end_some)

    # ---- probes -------------------------------------------------------------------------------------------
    def _send_probe(self) -> None:
        self._asking = None
        if self._probe is not None:
            self._probe.cancel()
        self._probe = asyncio.get_running_loop().create_task(self._probes())

    async def _probes(self) -> None:
        """Sends probes one after the other, until one is answered."""
        while True:
            probe = self._asking = _Probe(self)
            try:
                async with asyncio.timeout(AGAIN_S):
                    await self.connect(partial(_same, probe))
                    await asyncio.Event().wait()
            except TimeoutError:
                continue
            except OSError as exc:
                if exc.errno not in NO_ANSWER:  # it was refused; or this process has no more files or ports
                    self.probe_refused(probe)
                    return
                await asyncio.sleep(AGAIN_S)
            finally:
                if probe.transport is not None:
                    probe.transport.abort()

    def probe_answered(self, probe: _Probe) -> None:
        if probe is not self._asking:
            return
        if self.detector.answered(self._now_ms()):
            self._send_probe()
        else:
            self._over()

    def probe_refused(self, probe: _Probe) -> None:
        if probe is self._asking:
            self.detector.gone(self._now_ms())
            self._over()

    def _over(self) -> None:
        self._asking = None
        if self._probe is not None:
            self._probe.cancel()
            self._probe = None
        self._follow()
