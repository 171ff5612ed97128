"""The coordinator's questions about topics, which the client's own connection carries to the broker."""

from __future__ import annotations

import pytest

from sidecar.api import access
from sidecar.core.consumer.events import HeartbeatReply
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import AccessAnswer, AskAccess
from sidecar.wire.apis import Api
from tests.front.test_front import run
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import turns
from tests.inprocess.messages import beat, metadata, to_frame

TOPICS = frozenset(("orders", "payments"))
PASSED = to_frame(metadata(*(f"topic-{n}" for n in range(100))), 9, 77)


@pytest.mark.parametrize("half", [0, 500, len(PASSED)])
def test_they_end_with_the_request(half: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a heartbeat was answered while its questions were under way. The next question was written into the
    middle of the request that the client sent next, and the broker lost count."""

    monkeypatch.setattr(access, "ASKED", 1)

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=True)
        client = await embedded.client()
        client.post(beat("g", "m", 5), 1)
        request = await embedded.request()
        question = embedded.brokers.faults.hang(Api.LIST_OFFSETS)
        written: list[bytes] = []
        send = client.session.upstream.send

        def spy(data: bytes) -> None:
            written.append(bytes(data))
            send(data)

        client.session.upstream.send = spy  # type: ignore[method-assign]
        embedded.front.from_coordinator(AskAccess(request.token, TOPICS))
        await turns()
        embedded.reply(request, HeartbeatReply(Code.NOT_COORDINATOR))
        await turns()
        assert question.met == 1 and client.waiting == 1
        written.clear()
        client.send(PASSED[:half])
        question.release()
        await turns()
        client.send(PASSED[half:])
        await turns()
        through = b"".join(written) == PASSED
        assert through and not client.closed
        assert embedded.of(AccessAnswer) == [AccessAnswer(request.token, None)]

    run(test)
