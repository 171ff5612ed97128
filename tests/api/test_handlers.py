"""One handler for each row of the table, with notes on its versions; requests of others pass."""

from __future__ import annotations

import importlib
import inspect
import re
import sys

import pytest

from sidecar.api.handlers import HANDLERS
from sidecar.wire.apis import SERVED, Api, message_name
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import sync_group as sy
from sidecar.wire.generated import txn_offset_commit as tc
from tests.api.play import Message, Play


def test_each_api_of_the_table_has_a_handler() -> None:
    assert HANDLERS.keys() == SERVED.keys()


@pytest.mark.parametrize("api", [Api(key) for key in SERVED], ids=lambda a: a.name.lower())
def test_the_codec_has_each_version_that_is_served(api: Api) -> None:
    """tests/wire looks at the bytes of all versions that the codec has."""
    module = importlib.import_module(f"sidecar.wire.generated.{api.name.lower()}")
    for kind in ("REQUEST", "RESPONSE"):
        assert getattr(module, f"{api.name}_{kind}_VERSIONS") == (SERVED[api].low, SERVED[api].high)


@pytest.mark.parametrize("api", [Api(key) for key in SERVED], ids=lambda a: a.name.lower())
def test_each_file_tells_its_api_and_what_its_newest_version_brought(api: Api) -> None:
    notes = inspect.getdoc(sys.modules[HANDLERS[api].__module__]) or ""
    assert f"{message_name(api)} (api {int(api)}" in notes
    assert re.search(rf"\bv{SERVED[api].high}\b", notes)


@pytest.mark.parametrize("api", [Api(key) for key in SERVED], ids=lambda a: a.name.lower())
def test_a_handler_is_a_generator_and_does_nothing_before_it_is_driven(api: Api) -> None:
    assert inspect.isgeneratorfunction(HANDLERS[api])


THEIRS: list[tuple[Api, Message]] = [
    (Api.OFFSET_COMMIT, oc.OffsetCommitRequest("theirs")),
    (Api.TXN_OFFSET_COMMIT, tc.TxnOffsetCommitRequest("tx", "theirs")),
    (Api.OFFSET_FETCH, of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("theirs")])),
    (Api.OFFSET_DELETE, od.OffsetDeleteRequest("theirs")),
    (Api.FIND_COORDINATOR, fc.FindCoordinatorRequest(coordinator_keys=["theirs"])),
    (Api.JOIN_GROUP, jg.JoinGroupRequest("theirs")),
    (Api.SYNC_GROUP, sy.SyncGroupRequest("theirs")),
    (Api.HEARTBEAT, hb.HeartbeatRequest("theirs")),
    (Api.LEAVE_GROUP, le.LeaveGroupRequest("theirs")),
    (Api.DESCRIBE_GROUPS, dg.DescribeGroupsRequest(["theirs"])),
    (Api.CONSUMER_GROUP_HEARTBEAT, ch.ConsumerGroupHeartbeatRequest("theirs", "m")),
    (Api.CONSUMER_GROUP_DESCRIBE, cd.ConsumerGroupDescribeRequest(["theirs"])),
    (Api.DESCRIBE_CONFIGS, dc.DescribeConfigsRequest([dc.DescribeConfigsResource(32, "theirs")])),
]


@pytest.mark.parametrize(("api", "request_"), THEIRS, ids=lambda v: v.name.lower() if isinstance(v, Api) else "")
def test_what_concerns_groups_that_are_not_managed_passes_untouched(api: Api, request_: Message) -> None:
    play = Play(api, request_, SERVED[api].high)
    joins = api in (Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT)
    (play.whose("theirs") if joins else play).forwards()


def test_nothing_is_listed_where_no_group_is_managed() -> None:
    Play(Api.LIST_GROUPS, lg.ListGroupsRequest(), 5, managed=()).forwards()


def test_groups_that_are_not_managed_are_the_brokers_to_delete() -> None:
    Play(Api.DELETE_GROUPS, dl.DeleteGroupsRequest(["theirs", "theirs"]), 2).forwards()
