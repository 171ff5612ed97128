"""The tail takes in credentials that were read again, and keeps nothing of the former ones."""

from __future__ import annotations

import asyncio
import threading
from itertools import permutations
from typing import Any

import pytest

from sidecar.coordinator.statelog import catch_up, tail
from sidecar.coordinator.statelog.catch_up import Want
from sidecar.coordinator.statelog.tail import StateLog, Tail
from sidecar.kafka.security import PLAINTEXT, Security
from sidecar.kafka.tokens import Tokens
from sidecar.state.codec import StateCodec

KEY = {"ssl.key.pem": "key", "ssl.certificate.pem": "chain"}
WAYS: dict[str, dict[str, Any]] = {
    "plain": PLAINTEXT.librdkafka(),
    "password": Security("SASL_PLAINTEXT", "PLAIN", "u", "p").librdkafka(),
    "another password": Security("SASL_PLAINTEXT", "PLAIN", "u", "q").librdkafka(),
    "certificate": {"security.protocol": "SSL", **KEY},
    "without certificate": {"security.protocol": "SSL"},
    "token": Security("SASL_PLAINTEXT", "OAUTHBEARER", tokens=Tokens("", principal="u")).librdkafka(),
}


class Consumers:
    """Makes consumers that read nothing. `configs`: their configurations; `made` is set by each."""

    def __init__(self) -> None:
        self.configs: list[dict[str, Any]] = []
        self.loop = asyncio.get_running_loop()
        self.made = asyncio.Event()

    def __call__(self, config: dict[str, Any]) -> Any:
        self.configs.append(config)
        self.loop.call_soon_threadsafe(self.made.set)
        return self

    async def next(self) -> dict[str, Any]:
        await asyncio.wait_for(self.made.wait(), 5)
        self.made.clear()
        return self.configs[-1]

    def poll(self, seconds: float) -> None:
        threading.Event().wait(seconds / 20)

    def position(self, at: list[Any]) -> list[Any]:
        return at

    def get_watermark_offsets(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Quiet:
    """Takes every call."""

    def __call__(self, *_: Any) -> Quiet:
        return self

    def __getattr__(self, name: str) -> Quiet:
        return self


@pytest.mark.parametrize("way", [*permutations(WAYS, 2)], ids=" to ".join)
def test_a_tail_has_the_last_credentials_and_no_others(way: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a listener became PLAINTEXT, and the tail still spoke SASL to it; the next owner kept the key of the
    former certificate."""

    async def main() -> None:
        before, after = (WAYS[name] for name in way)
        consumers, ahead = Consumers(), Consumers()
        monkeypatch.setattr(tail, "Consumer", consumers)
        monkeypatch.setattr(catch_up, "Consumer", ahead)
        log: Any = Quiet()
        made = Tail("b:1", "t", "c", StateLog(1, StateCodec(), log, log), log, before)
        try:
            own = {name: value for name, value in (await consumers.next()).items() if name not in before}
            made.secure(dict(before))
            made.secure(after)
            assert await consumers.next() == own | after
            made._catch_up.read(Want(0, 0, 1))
            assert await ahead.next() == own | after | {"auto.offset.reset": "error"}
            assert len(consumers.configs) == 2, "the same ones need no other consumer"
        finally:
            made.stop()

    asyncio.run(main())
