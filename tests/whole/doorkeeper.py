"""The answers to clients that may not come to a group: they are told that, and nothing else, and no partition is
theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sidecar.core.streams.status_texts import StatusCode
from sidecar.core.vocabulary.errors import Code, name_of
from tests.whole.client import Client, Place
from tests.whole.judge import Judge
from tests.whole.violation import Violation

NOBODY_KNOWS = ("no answer", name_of(Code.COORDINATOR_NOT_AVAILABLE))


class Doorkeeper:
    """A `client.Judge` of those whom the authorizer keeps out."""

    def __init__(self, judge: Judge, say: Callable[[str, str], None]) -> None:
        self._judge, self._say = judge, say

    def _wrong(self, client: Client, text: str) -> None:
        self._judge.broke(Violation(f"{client.name}, which may not come to {client.habits.group_id}, {text}"))

    def answered(self, client: Client, host: str, what: str, code: int, asked_ms: float) -> None:
        self._judge.figures["strangers refused"] += 1
        if code != Code.GROUP_AUTHORIZATION_FAILED:
            self._wrong(client, f"is answered {name_of(code)} from {host}: {what}")

    def found(self, client: Client, host: str, told: str, asked_ms: float) -> None:
        if told == name_of(Code.GROUP_AUTHORIZATION_FAILED):
            self._judge.figures["strangers refused"] += 1
        elif not told.startswith(NOBODY_KNOWS):
            self._wrong(client, f"is told of its coordinator: {told}")

    def broke(self, problem: Exception) -> None:
        self._judge.broke(problem)

    def told(self, client: Client, what: str, epoch: int) -> None:
        self._wrong(client, f"is told that all is well: {what}")

    def commits(self, client: Client, host: str, place: Place, offset: int) -> None:
        self._wrong(client, f"commits for {place}")

    def committed(self, client: Client, place: Place, offset: int) -> None:
        self._wrong(client, f"has committed for {place}")

    def gives_up(self, client: Client, place: Place, offset: int) -> None:
        """Does nothing: the end of commits is nothing to it."""

    def has_none(self, client: Client, what: str, asked_ms: float) -> None:
        """Does nothing: such a client may lose its connection as any other."""

    def decides(self, host: str, txn_id: str) -> bool:
        return self._judge.decides(host, txn_id)

    def disputed(self, txn_id: str) -> bool:
        return self._judge.disputed(txn_id)

    def timed_out(self, producer_id: int, epoch: int) -> bool:
        return self._judge.timed_out(producer_id, epoch)

    def owns(self, client: Client) -> None:
        if client.owned:
            self._wrong(client, f"owns {sorted(client.owned)}")

    def fetched(self, client: Client, place: Place, offset: int, asked_ms: float) -> None:
        self._wrong(client, f"reads {place} from {offset}")

    def status(self, client: Client, code: StatusCode) -> None:
        """Does nothing: a status goes with an answer that all is well, which is not for such a client."""

    def aborts(self, client: Client, offsets: Mapping[Place, int]) -> None:
        """Does nothing: such a client has nothing to commit."""
