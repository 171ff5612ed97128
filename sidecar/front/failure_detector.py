"""Decides whether the broker is silent: it takes connections and requests, and answers nothing.

A long poll is no silence, and neither is a broker that is asked nothing. So where the broker owes an answer and no byte
has come from it for half of the limit, a probe goes out. The broker is silent when the probe has had no answer for the
other half. A slow broker that answers probes in time is not silent. A connection on which the broker has never answered
counts by itself: an acceptor can hang while old connections go on.
"""

from __future__ import annotations

HALVES = 2


class FailureDetector:
    """The broker's state by answers and probes. All times are monotonic milliseconds."""

    def __init__(self, limit_ms: int) -> None:
        self.received = False
        """Set with each read from the broker, and reset by `look`."""
        self.silent = False
        """Whether new connections get no answer."""
        self.silent_to_all = False
        """Whether old connections get none either."""
        self.quiet_ms = 0
        """Time since which nothing has come from the broker though it owes an answer."""
        self._half_ms = limit_ms // HALVES
        self._probed_ms: int | None = None
        """Time at which the probe under way was sent."""
        self._answered_ms = 0
        """Time at which the last probe was answered."""

    def begin(self, now_ms: int) -> None:
        """Begins a silence at `now_ms`: the broker is sent a request, and owed nothing before."""
        self.quiet_ms = now_ms

    def stood_still(self, ms: int) -> None:
        """Moves all times by the `ms` in which the sidecar itself has not run. What came meanwhile is not read yet."""
        self.quiet_ms += ms
        self._answered_ms += ms
        if self._probed_ms is not None:
            self._probed_ms += ms

    def look(self, now_ms: int, owes: bool, fresh_ms: int | None) -> bool:
        """Takes the verdict. `owes`: whether the broker owes an answer. `fresh_ms`: since when the oldest connection
        waits on which the broker has never answered; None: there is none. Returns whether a probe has to be sent."""
        if self.received or not owes:
            self.received = False
            self.quiet_ms = now_ms
        if self._probed_ms is not None:
            if now_ms - self._probed_ms >= self._half_ms:
                self.silent = True
                self.silent_to_all = self.silent_to_all or now_ms - self.quiet_ms >= HALVES * self._half_ms
            return False
        since_ms = self.quiet_ms if fresh_ms is None else min(self.quiet_ms, max(fresh_ms, self._answered_ms))
        if now_ms - since_ms < self._half_ms:
            return False
        self._probed_ms = now_ms
        return True

    def answered(self, now_ms: int) -> bool:
        """Takes in the probe's answer. A late one, from a silent broker, shows that it runs, and not that it answers in
        time: returns whether another probe has to be sent at once."""
        assert self._probed_ms is not None
        if self.silent and now_ms - self._probed_ms >= self._half_ms:
            self._probed_ms = now_ms
            return True
        self._probed_ms = None
        self._answered_ms = self.quiet_ms = now_ms
        self.silent = self.silent_to_all = False
        return False

    def gone(self, now_ms: int) -> None:
        """Ends the silence: the probe was refused, or its connection closed. There is no broker, and clients learn that
        by themselves."""
        self._probed_ms = now_ms
        self.answered(now_ms)
