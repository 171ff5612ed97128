"""Front and coordinator in one process: what passes at once, what waits for the loop, and that all stays in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sidecar.core.runtime.events import Answer, DeletionCheck
from sidecar.link.loopback import IN_A_ROW, Loopback
from sidecar.link.messages import (
    AskAccess,
    Grant,
    GroupRules,
    Lease,
    Reply,
    Request,
    ToCoordinator,
    ToFront,
    View,
    Void,
)
from sidecar.link.ports import FrontEnd


class LoopbackEnds:
    """Both ends; `turn` is a turn of the loop. The coordinator answers at once if it is told to."""

    def __init__(self, at_once: bool = False) -> None:
        self.soon: list[Callable[[], None]] = []
        self.asked: list[int] = []
        self.received: list[ToFront] = []
        self.at_once = at_once
        self.broken = False
        self.lost = 0
        self.disconnected = 0
        self.link = Loopback(self.soon.append)
        self.send = self.link.attach(self)
        self.link.serve(self)

    def connect(self, front: FrontEnd) -> None:
        pass

    def disconnect(self, front: FrontEnd) -> None:
        self.disconnected += 1

    def link_lost(self) -> None:
        self.lost += 1

    def from_front(self, front: FrontEnd, message: ToCoordinator) -> None:
        assert isinstance(message, Request)
        self.asked.append(message.token)
        if self.broken:
            raise RuntimeError("a bug")
        if self.at_once:
            front.from_coordinator(Reply(message.token, Answer()))

    def from_coordinator(self, message: ToFront) -> None:
        self.received.append(message)

    def ask(self, first: int, last: int) -> None:
        for token in range(first, last):
            self.send(Request(token, DeletionCheck("g")))

    def reply(self, first: int, last: int) -> None:
        for token in range(first, last):
            self.link.from_coordinator(Reply(token, Answer()))

    def grant(self, token: int, group_id: str) -> Reply:
        reply = Reply(token, Answer(), Grant(group_id, "m", 1, 1 << 40))
        self.link.from_coordinator(reply)
        return reply

    def granted(self) -> list[str]:
        """Groups of the grants that the front has got."""
        return [m.grant.group_id for m in self.received if isinstance(m, Reply) and m.grant is not None]

    def answered_tokens(self) -> list[int]:
        return [m.token for m in self.received if isinstance(m, Reply)]

    def turn(self) -> None:
        due, self.soon[:] = list(self.soon), []
        for call in due:
            call()


def test_requests_that_wait_let_the_loop_turn() -> None:
    ends = LoopbackEnds()
    ends.ask(0, 3 * IN_A_ROW)
    assert ends.asked == list(range(IN_A_ROW))
    ends.turn()
    ends.ask(3 * IN_A_ROW, 3 * IN_A_ROW + 1)
    assert ends.asked == list(range(2 * IN_A_ROW)), "what comes later stays behind"
    ends.turn()
    ends.turn()
    assert ends.asked == list(range(3 * IN_A_ROW + 1)) and not ends.soon


def test_requests_that_are_answered_at_once_pass_however_many_they_are() -> None:
    ends = LoopbackEnds(at_once=True)
    ends.ask(0, 5 * IN_A_ROW)
    assert ends.asked == ends.answered_tokens() == list(range(5 * IN_A_ROW)) and not ends.soon


def test_replies_that_are_released_together_let_the_loop_turn() -> None:
    ends = LoopbackEnds()
    ends.reply(0, 2 * IN_A_ROW + 1)
    assert ends.answered_tokens() == list(range(IN_A_ROW))
    ends.turn()
    assert ends.answered_tokens() == list(range(2 * IN_A_ROW))
    ends.turn()
    assert ends.answered_tokens() == list(range(2 * IN_A_ROW + 1)) and not ends.soon


def test_an_answer_at_once_stays_behind_replies_that_wait() -> None:
    ends = LoopbackEnds(at_once=True)
    ends.reply(0, IN_A_ROW + 1)
    ends.ask(IN_A_ROW + 1, IN_A_ROW + 2)
    assert ends.answered_tokens() == list(range(IN_A_ROW))
    ends.turn()
    assert ends.answered_tokens() == list(range(IN_A_ROW + 2))


@pytest.mark.parametrize("message", [Lease(0), Lease(1 << 40), Void(("g",))])
def test_what_ends_grants_passes_before_replies_that_wait(message: Lease | Void) -> None:
    """Symptom: each of these messages sent all replies that waited, 10,000 of them, in one iteration of the loop."""
    ends = LoopbackEnds()
    ends.reply(0, 3 * IN_A_ROW)
    ends.link.from_coordinator(message)
    assert ends.received[-1] is message and ends.answered_tokens() == list(range(IN_A_ROW))
    ends.turn()
    ends.turn()
    assert ends.answered_tokens() == list(range(3 * IN_A_ROW)) and not ends.soon


@pytest.mark.parametrize("message", [View(), GroupRules(), AskAccess(7, frozenset())])
def test_other_messages_stay_in_order_with_replies(message: View | GroupRules | AskAccess) -> None:
    ends = LoopbackEnds()
    ends.reply(0, 2 * IN_A_ROW)
    ends.link.from_coordinator(message)
    ends.reply(2 * IN_A_ROW, 2 * IN_A_ROW + 1)
    assert len(ends.received) == IN_A_ROW
    ends.turn()
    ends.turn()
    assert ends.received[2 * IN_A_ROW] is message and isinstance(ends.received[-1], Reply)


def test_a_reply_that_waits_loses_the_grant_that_a_void_ends() -> None:
    """The front takes a grant in when its reply arrives. Behind the Void that ended it, it would count again."""
    ends = LoopbackEnds()
    ends.reply(0, IN_A_ROW)
    voided = ends.grant(100, "g")
    ends.grant(101, "other")
    ends.link.from_coordinator(Void(("g", "third")))
    ends.grant(102, "g")
    ends.turn()
    assert ends.answered_tokens()[-3:] == [100, 101, 102]
    assert ends.granted() == ["other", "g"], "the last one was granted after the Void"
    assert voided.grant is not None, "others may hold this reply"
    ends.link.from_coordinator(Void(("g",)))
    ends.reply(0, IN_A_ROW)
    ends.grant(103, "g")
    ends.turn()
    assert ends.granted() == ["other", "g", "g"], "a Void ends nothing that comes after it"


def test_replies_that_wait_lose_all_grants_when_the_lease_ends() -> None:
    ends = LoopbackEnds()
    ends.reply(0, IN_A_ROW)
    ends.grant(100, "g")
    ends.link.from_coordinator(Lease(0))
    ends.link.from_coordinator(Lease(1 << 40))
    ends.grant(101, "other")
    ends.turn()
    assert ends.granted() == ["other"], "the first one would count again under the next lease"


def test_after_a_request_that_breaks_the_coordinator_replies_still_let_the_loop_turn() -> None:
    """Symptom: from then on any number of replies passed in a row."""
    ends = LoopbackEnds()
    ends.broken = True
    with pytest.raises(RuntimeError):
        ends.ask(0, 1)
    ends.reply(0, 2 * IN_A_ROW)
    assert ends.answered_tokens() == list(range(IN_A_ROW))


def test_a_coordinator_that_is_gone_hears_and_says_nothing_more() -> None:
    ends = LoopbackEnds()
    ends.ask(0, 2 * IN_A_ROW)
    ends.reply(0, 2 * IN_A_ROW)
    asked, told = len(ends.asked), len(ends.answered_tokens())
    ends.link.lose()
    ends.link.lose()
    assert (ends.lost, ends.disconnected) == (1, 1)
    ends.ask(500, 501)
    ends.turn()
    assert (len(ends.asked), len(ends.answered_tokens())) == (asked, told), "what waited has gone with it"
    ends.link.serve(ends)
    ends.turn()
    ends.ask(600, 601)
    assert ends.asked[-1] == 600
