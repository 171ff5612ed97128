"""The broker's word on rights: it is asked once, again when its answer is old, and no list is too long."""

from __future__ import annotations

import pytest

from sidecar.api.call import Client, Learnt
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.offset_checks import CheckReply, FetchCheck
from sidecar.core.vocabulary.cache import ENTRY_BYTES, Shared
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import View
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from tests.api.play import KEEP_MS, NO_AUTHORIZER, VIEW, Clock, Play

KEPT = 1_000
"""Answers that a connection of these tests has room for."""


class Connection:
    """One client's connection."""

    def __init__(self, learnt: Learnt | None = None, view: View = VIEW, authenticates: bool = False) -> None:
        self.client, self.clock = Client("h", authenticates=authenticates), Clock()
        self.learnt, self.view = learnt, view
        for kept in (self.client.topics, self.client.describable):
            kept.limit_bytes = KEPT * (ENTRY_BYTES + len("t00000"))

    def beat(self, *topics: str, group: str = "g") -> Play:
        request = ch.ConsumerGroupHeartbeatRequest(group, "m", 1, subscribed_topic_names=list(topics) or None)
        given = {"client": self.client, "clock": self.clock, "learnt": self.learnt, "view": self.view}
        return Play(Api.CONSUMER_GROUP_HEARTBEAT, request, 1, **given)  # type: ignore[arg-type]


def served(play: Play, *topics: str, group: str = "g") -> None:
    names = topics or None
    event = ConsumerHeartbeat(group, "m", 1, topic_names=names, client_id="app", client_host="/h")
    play.coordinates(event).coordinator(HeartbeatReply()).gives()


def refused(play: Play, code: Code) -> None:
    assert ch.ConsumerGroupHeartbeatResponse.decode(1, play.gives()).error_code == code


def test_read_is_asked_once_and_again_when_the_answer_is_old() -> None:
    c = Connection()
    served(c.beat().may_read("g"))
    c.clock.ms += KEEP_MS - 1
    served(c.beat())
    c.clock.ms += 1
    served(c.beat().may_read("g"))


def test_a_refusal_is_kept_as_long() -> None:
    c = Connection()
    refused(c.beat().may_not_read("g"), Code.GROUP_AUTHORIZATION_FAILED)
    c.clock.ms += KEEP_MS - 1
    refused(c.beat(), Code.GROUP_AUTHORIZATION_FAILED)
    c.clock.ms += 1
    served(c.beat().may_read("g"))


def test_each_error_but_the_authorizers_means_that_it_had_nothing_against_it() -> None:
    for code in (Code.NONE, Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.UNKNOWN_MEMBER_ID):
        served(Connection().beat().may_read("g", code))


# ---- an authorizer that fails ----------------------------------------------------------------------------------------
FAILURES = [Code.UNKNOWN_SERVER_ERROR, Code.REQUEST_TIMED_OUT]
"""A broker's answer when its authorizer throws: neither allowed nor denied."""


@pytest.mark.parametrize("code", FAILURES)
def test_it_has_not_allowed_anything_and_is_asked_again(code: Code) -> None:
    c = Connection()
    refused(c.beat().may_read("g", code), Code.COORDINATOR_NOT_AVAILABLE)
    refused(c.beat().may_read("g", code), Code.COORDINATOR_NOT_AVAILABLE)
    served(c.beat().may_read("g"))
    refused(c.beat("t").may_describe_topics("t", code=code), Code.TOPIC_AUTHORIZATION_FAILED)
    served(c.beat("t").may_describe_topics("t"), "t")


@pytest.mark.parametrize("code", FAILURES)
def test_it_says_nothing_of_all_connections_either(code: Code) -> None:
    learnt = Learnt()
    refused(Connection(learnt, NO_AUTHORIZER).beat().may_read("g", code), Code.COORDINATOR_NOT_AVAILABLE)
    served(Connection(learnt, NO_AUTHORIZER).beat().may_read("g"))


@pytest.mark.parametrize("code", FAILURES)
def test_it_lets_nothing_be_deleted_or_described(code: Code) -> None:
    play = Play(Api.OFFSET_DELETE, od.OffsetDeleteRequest("g"), 0).may_delete("g", code)
    play.answers(od.OffsetDeleteResponse(error_code=Code.COORDINATOR_NOT_AVAILABLE))
    play = Play(Api.CONSUMER_GROUP_DESCRIBE, cd.ConsumerGroupDescribeRequest(["g"]), 1)
    said = dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(code, group_id="g")])
    told = cd.ConsumerGroupDescribeResponse.decode(
        1, play.asks(dg.DescribeGroupsRequest(["g"]), 0).broker(said).gives()
    )
    assert told.groups[0].error_code == Code.GROUP_AUTHORIZATION_FAILED


def test_what_it_has_left_out_it_has_not_allowed() -> None:
    c = Connection()
    wanted = [lo.ListOffsetsTopic("t", [lo.ListOffsetsPartition(0, timestamp=-1)])]
    play = c.beat("t").may_read("g").asks(lo.ListOffsetsRequest(-1, topics=wanted), 1)
    refused(play.broker(lo.ListOffsetsResponse()), Code.TOPIC_AUTHORIZATION_FAILED)


def test_each_connection_has_its_own_answers() -> None:
    first, second = Connection(), Connection()
    served(first.beat().may_read("g"))
    refused(second.beat().may_not_read("g"), Code.GROUP_AUTHORIZATION_FAILED)


def test_a_listener_that_wants_nobody_to_authenticate_is_asked_once_for_all() -> None:
    """safety.md, Scale: 100,000 members are asked for every ten seconds, even where there is no authorizer."""
    learnt = Learnt()
    first, second = (Connection(learnt, NO_AUTHORIZER) for _ in range(2))
    served(first.beat().may_read("g"))
    served(second.beat())
    served(second.beat(group="g2"), group="g2")
    second.clock.ms += KEEP_MS
    served(second.beat().may_read("g"))
    third = Connection(learnt, NO_AUTHORIZER)
    third.clock.ms += KEEP_MS
    served(third.beat())


def test_where_clients_authenticate_or_rights_differ_each_connection_is_asked_for() -> None:
    learnt = Learnt()
    served(Connection(learnt, NO_AUTHORIZER, authenticates=True).beat().may_read("g"))
    served(Connection(learnt, NO_AUTHORIZER).beat().may_read("g"))
    served(Connection(learnt, NO_AUTHORIZER, authenticates=True).beat().may_read("g"))
    served(Connection(learnt).beat().may_read("g"))


def test_only_the_topics_that_are_not_known_yet_are_asked_for() -> None:
    c = Connection()
    served(c.beat("a", "b").may_read("g").may_describe_topics("a", "b"), "a", "b")
    served(c.beat("b", "c").may_describe_topics("c"), "b", "c")
    c.clock.ms += KEEP_MS
    served(c.beat("c", "a").may_read("g").may_describe_topics("a", "c"), "c", "a")


def test_a_hidden_topic_is_kept_with_the_others() -> None:
    c = Connection()
    refused(c.beat("a", "b").may_read("g").may_describe_topics("a", "b", hidden=["b"]), Code.TOPIC_AUTHORIZATION_FAILED)
    served(c.beat("a"), "a")
    refused(c.beat("b"), Code.TOPIC_AUTHORIZATION_FAILED)


def names(first: int, last: int) -> list[str]:
    return [f"t{n:05}" for n in range(first, last)]


def test_more_topics_than_are_kept() -> None:
    """safety.md, Scale: a KeyError past 1,000 cached topics."""
    c, many = Connection(), names(0, 3 * KEPT)
    served(c.beat(*many).may_read("g").may_describe_topics(*many), *many)
    assert 0 < len(c.client.topics) <= KEPT
    served(c.beat(*many).may_describe_topics(*(t for t in many if t not in c.client.topics)), *many)


def test_known_topics_make_room_while_the_broker_is_asked_about_others() -> None:
    c, some, more = Connection(), names(0, KEPT - 1), names(0, KEPT + 1)
    served(c.beat(*some).may_read("g").may_describe_topics(*some), *some)
    refused(
        c.beat(*more).may_describe_topics(*names(KEPT - 1, KEPT + 1), hidden=[names(KEPT, KEPT + 1)[0]]),
        Code.TOPIC_AUTHORIZATION_FAILED,
    )
    assert len(c.client.topics) <= KEPT


def test_an_answer_that_grows_old_while_the_broker_is_asked_still_counts_for_this_request() -> None:
    c, some = Connection(), names(0, KEPT)
    served(c.beat(*some).may_read("g").may_describe_topics(*some), *some)
    c.clock.ms += KEEP_MS - 1
    play = c.beat(*some, "new")
    c.clock.ms += 1
    served(play.may_describe_topics("new"), *some, "new")


def test_what_is_too_old_goes_first() -> None:
    c, old, young, new = Connection(), names(0, KEPT - 5), names(KEPT, KEPT + 3), names(2 * KEPT, 2 * KEPT + 10)
    served(c.beat(*old).may_read("g").may_describe_topics(*old), *old)
    c.clock.ms += KEEP_MS - 1
    served(c.beat(*young).may_describe_topics(*young), *young)
    c.clock.ms += 1
    served(c.beat(*new).may_read("g").may_describe_topics(*new), *new)
    assert {*young, *new} <= c.client.topics.keys() and len(c.client.topics) <= KEPT
    served(c.beat(*young), *young)


def test_more_groups_than_are_kept() -> None:
    c = Connection()
    for n in range(KEPT + 50):
        request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(f"g{n}")])
        play = Play(Api.OFFSET_FETCH, request, 9, client=c.client, clock=c.clock, managed=[f"g{n}"])
        play.may_describe(f"g{n}", hidden=[f"g{n}"]).gives()
    assert c.client.describable.used_bytes <= c.client.describable.limit_bytes and len(c.client.describable) < KEPT


def test_what_is_kept_of_all_connections_has_a_limit() -> None:
    """Else 10,000 connections would keep 3 MiB each; and what one keeps is given back when it ends."""
    shared = Shared(10 * (ENTRY_BYTES + len("t00000")))
    first, second = Connection(), Connection()
    for c in (first, second):
        c.client.share(shared)
    served(first.beat(*names(0, 6)).may_read("g").may_describe_topics(*names(0, 6)), *names(0, 6))
    served(second.beat(*names(0, 2)).may_read("g").may_describe_topics(*names(0, 2)), *names(0, 2))
    assert shared.forgotten == 0 and shared.used_bytes == sum(map(used, (first, second)))
    served(second.beat(*names(2, 4)).may_describe_topics(*names(2, 4)), *names(2, 4))
    assert shared.forgotten == 1 and not first.client.topics and shared.used_bytes == used(second)
    second.client.forget()
    assert shared.used_bytes == 0


def used(c: Connection) -> int:
    return c.client.readable.used_bytes + c.client.topics.used_bytes


def test_without_an_authorizer_the_first_group_shows_that_the_client_has_authenticated() -> None:
    c = Connection()
    request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g")])
    for probed in (True, False):
        play = Play(Api.OFFSET_FETCH, request, 9, view=NO_AUTHORIZER, client=c.client, clock=c.clock)
        play = play.may_describe("g") if probed else play
        play.coordinates(FetchCheck("g", None, -1)).coordinator(CheckReply(Code.STALE_MEMBER_EPOCH)).gives()
