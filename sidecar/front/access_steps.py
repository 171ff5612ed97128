"""Answers `AskAccess`: which topics the principal behind a request may not see, asked on its own connection while the
coordinator has the request. Once that is answered, the client's next one may be half passed to the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from sidecar.api.access import surely_hidden_topics
from sidecar.api.call import Pause
from sidecar.front.clock import now_ms
from sidecar.front.run import Run
from sidecar.front.session import Session
from sidecar.front.slices import Slices
from sidecar.link.messages import AccessAnswer, AskAccess
from sidecar.proxy.actions import Got
from sidecar.wire.primitives import WireError

Steps = Generator[Any, Any, set[str] | None]


class AccessSteps:
    """`under_way`: requests that the coordinator has not answered, by token."""

    def __init__(
        self,
        under_way: Mapping[int, Run],
        send: Callable[[AccessAnswer], None],
        slices: Slices,
        malformed: Callable[[Session, WireError, Got], None],
    ) -> None:
        self._under_way = under_way
        self._send, self._slices, self._malformed = send, slices, malformed

    def begin(self, ask: AskAccess) -> None:
        run = self._under_way.get(ask.token)
        if run is None or run.session.conn.closed:
            self._send(AccessAnswer(ask.token, None))
        else:
            run.now_ms = now_ms()
            self._step(run, ask.token, surely_hidden_topics(run, ask.topics), None)

    def _step(self, run: Run, token: int, steps: Steps, frame: bytes | None) -> None:
        try:
            want = steps.send(frame)
        except StopIteration as ended:
            self._send(AccessAnswer(token, None if ended.value is None else frozenset(ended.value)))
        except WireError as exc:
            self._send(AccessAnswer(token, None))
            self._malformed(run.session, exc, run.got)
        else:
            if isinstance(want, Pause):
                self._slices.wait(lambda: self._step(run, token, steps, None))
            elif self._under_way.get(token) is run:
                then = partial(self._stepped, run, token, steps)
                run.session.upstream.ask(run.got.token, want.frame, then)
            else:
                self._send(AccessAnswer(token, None))

    def _stepped(self, run: Run, token: int, steps: Steps, frame: bytes | None) -> None:
        if frame is None:
            self._send(AccessAnswer(token, None))
        else:
            run.now_ms = now_ms()
            self._step(run, token, steps, frame)
