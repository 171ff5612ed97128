"""No client reaches the sidecars' own group or transactional ids by any API, in any version.

Each API whose request can name a group or a transactional id is found by its fields; what reaches the broker or the
coordinator of such a request must not have the sidecars' name in it, and the answer is the broker's to a client without
rights. tests/security/test_matrix_is_whole.py compares the table with Kafka's own messages.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import fields

from sidecar.api import slices
from sidecar.api.call import Ask, Call, Client, Coordinate, Forward, OwnNames, Pause, Scope, Sizes, Store, Want
from sidecar.api.handlers import HANDLERS, READ_THEIR_HEADER
from sidecar.core.runtime.events import Event, GroupsWithRecords, GroupsWithRecordsReply, ListGroups, ListReply
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import View
from sidecar.wire.apis import SERVED, Api, message_name
from sidecar.wire.frames import PREFIX, header_end, request_frame, response_frame
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_transactions as dt
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import list_transactions as lt
from tests.api.grown import is_message
from tests.api.play import flexible
from tools.wire_model import snake

GROUP, TOPIC = "__state_owners", "__state"
ID = f"{TOPIC}-7"
OWN = OwnNames(GROUP, TOPIC)
OF_GROUP, OF_ID, OF_CLUSTER = (
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
)
GROUP_FIELDS = {"group_id", "group_ids", "groups_names", "groups"}
ID_FIELDS = {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
NAMED_OTHERWISE = {
    Api.FIND_COORDINATOR: "a key of a type",
    Api.DESCRIBE_CONFIGS: "a resource of a type",
    Api.ALTER_CONFIGS: "a resource of a type",
    Api.INCREMENTAL_ALTER_CONFIGS: "a resource of a type",
}
LISTS = {Api.LIST_GROUPS, Api.LIST_CONFIG_RESOURCES, Api.LIST_TRANSACTIONS}


def module(api: Api) -> Any:
    return importlib.import_module(f"sidecar.wire.generated.{snake(message_name(api))}")


def request_of(api: Api) -> Any:
    return getattr(module(api), f"{message_name(api)}Request")


def element(cls: Any, name: str) -> Any:
    """The class of a field, or of its elements."""
    kind = typing.get_type_hints(cls)[name]
    while args := [a for a in typing.get_args(kind) if a is not type(None)]:
        kind = args[0]
    return kind


def names(cls: Any) -> Iterator[str]:
    """The fields of a message, at any depth."""
    for f in fields(cls):
        yield f.name
        inner = element(cls, f.name)
        if is_message(inner):
            yield from names(inner)


def filled(cls: Any, group: str, transactional: str) -> Any:
    """A message with one element in each array, which names these."""
    values: dict[str, Any] = {}
    for f in fields(cls):
        inner = element(cls, f.name)
        several = "list" in str(typing.get_type_hints(cls)[f.name])
        if f.name in GROUP_FIELDS and inner is str:
            values[f.name] = [group] if several else group
        elif f.name in ("protocol_type", "protocol_name"):
            values[f.name] = "consumer"
        elif f.name in ID_FIELDS:
            values[f.name] = [transactional] if several else transactional
        elif is_message(inner):
            made = filled(inner, group, transactional)
            values[f.name] = [made] if several else made
        elif several:
            values[f.name] = [{str: "x", bytes: b"x" * 16}.get(inner, 0)]
    return cls(**values)


def call_of(api: Api, request: Any, version: int, managing: bool) -> Call:
    frame = request_frame(api, version, 7, "app", flexible(api, version), request.encode(version))
    told, pos = None, PREFIX.size
    if api not in READ_THEIR_HEADER:
        told, pos = header_end(frame, pos, flexible(api, version))
    scope = Scope(1, lambda g: g == GROUP or (managing and g == "g"), managing, 10_000, lambda: "new", own=OWN)
    keeper = 2 if managing else 1
    view = View(owners=(1,), leaders=(keeper,), brokers={1: ("b1", 1), 2: ("b2", 2)})
    return Call(scope, Client("h"), view, api, version, 7, frame, pos, told, 1_000)


class Reached(AssertionError):
    """Something of the sidecars' has got further than the front."""


def play(api: Api, request: Any, version: int, managing: bool = True) -> Any:
    """The answer, with nothing that names the sidecars getting past the handler, FindCoordinator's question apart."""
    handler = HANDLERS[api](call_of(api, request, version, managing))
    said: Any = None
    try:
        while True:
            said = reply(handler.send(said), api)
    except StopIteration as end:
        if isinstance(end.value, Forward):
            raise Reached("it is forwarded") from None
        return getattr(module(api), f"{message_name(api)}Response").decode(version, end.value)


def reply(want: Want, api: Api) -> Any:
    if isinstance(want, Coordinate):
        return coordinated(want.event)
    if isinstance(want, Store):
        raise Reached(f"stored at {want.node_id}")
    assert isinstance(want, Ask), want
    _, asked, version, _ = PREFIX.unpack_from(want.frame)
    _, pos = header_end(want.frame, PREFIX.size, flexible(asked, version))
    if asked != Api.FIND_COORDINATOR and (GROUP.encode() in want.frame or ID.encode() in want.frame):
        raise Reached(f"{Api(asked).name} v{version}")
    return response_frame(7, flexible(asked, version), from_broker(Api(asked), version, want.frame, pos))


def coordinated(event: Event) -> Any:
    if isinstance(event, ListGroups):
        return ListReply(groups=())
    if isinstance(event, GroupsWithRecords):
        return GroupsWithRecordsReply(groups=frozenset())  # which only tells whether anything is known of it
    raise Reached(f"coordinated: {event}")


def from_broker(api: Api, version: int, frame: bytes, pos: int) -> bytes:
    """Returns a broker's response that lists the sidecars' own names, and names a coordinator for every key."""
    if api == Api.LIST_GROUPS:
        groups = [lg.ListedGroup(g, "consumer") for g in (GROUP, "theirs")]
        return lg.ListGroupsResponse(groups=groups).encode(version)
    if api == Api.LIST_CONFIG_RESOURCES:
        found = [lr.ConfigResource(g, cf.GROUP) for g in (GROUP, "theirs")]
        return lr.ListConfigResourcesResponse(config_resources=found).encode(version)
    if api == Api.LIST_TRANSACTIONS:
        states = [lt.TransactionState(t, 1, "Ongoing") for t in (ID, "theirs")]
        return lt.ListTransactionsResponse(transaction_states=states).encode(version)
    if api == Api.FIND_COORDINATOR:
        asked = fc.FindCoordinatorRequest.decode(version, frame, pos)
        each = [fc.Coordinator(k, 1, "b1", 1) for k in asked.coordinator_keys]
        return fc.FindCoordinatorResponse(node_id=1, host="b1", port=1, coordinators=each).encode(version)
    raise Reached(f"{api.name} v{version} at the broker")


def codes(message: Any) -> set[int]:
    """Returns all error codes in a message."""
    found: set[int] = set()
    for f in fields(message):
        value = getattr(message, f.name)
        if f.name.endswith("error_code"):
            found.add(value)
        for item in value if isinstance(value, list) else [value]:
            if is_message(item):
                found |= codes(item)
    return found


APIS = [Api(key) for key in SERVED]
NAMING_GROUPS = [a for a in APIS if set(names(request_of(a))) & GROUP_FIELDS and a not in LISTS]
NAMING_IDS = [a for a in APIS if set(names(request_of(a))) & ID_FIELDS and a not in LISTS]
ASKED = [(a, v) for a in NAMING_GROUPS for v in range(SERVED[a].low, SERVED[a].high + 1)]
ASKED_IDS = [(a, v) for a in NAMING_IDS for v in range(SERVED[a].low, SERVED[a].high + 1)]


def called(value: object) -> str:
    return value.name.lower() if isinstance(value, Api) else f"v{value}"


@pytest.mark.parametrize("managing", (True, False), ids=("managing", "bare"))
@pytest.mark.parametrize(("api", "version"), ASKED, ids=called)
def test_the_owners_group_is_refused(api: Api, version: int, managing: bool) -> None:
    answer = play(api, filled(request_of(api), GROUP, "theirs"), version, managing)
    assert codes(answer) - {0} == {OF_GROUP}, answer


@pytest.mark.parametrize(("api", "version"), ASKED_IDS, ids=called)
def test_the_transactional_ids_are_refused(api: Api, version: int) -> None:
    answer = play(api, filled(request_of(api), "theirs", ID), version)
    of_brokers = api == Api.ADD_PARTITIONS_TO_TXN and version >= 4
    assert codes(answer) - {0} == {OF_CLUSTER if of_brokers else OF_ID}, answer


def test_the_table_has_what_is_served() -> None:
    assert {Api.JOIN_GROUP, Api.OFFSET_FETCH, Api.DELETE_GROUPS, Api.SHARE_GROUP_HEARTBEAT} <= set(NAMING_GROUPS)
    assert {Api.INIT_PRODUCER_ID, Api.TXN_OFFSET_COMMIT, Api.END_TXN, Api.DESCRIBE_TRANSACTIONS} <= set(NAMING_IDS)
    silent = set(APIS) - set(NAMING_GROUPS) - set(NAMING_IDS) - LISTS - NAMED_OTHERWISE.keys()
    assert silent == {Api.API_VERSIONS, Api.METADATA, Api.SASL_AUTHENTICATE}


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize(
    ("key_type", "key", "code"), [(0, GROUP, OF_GROUP), (1, ID, OF_ID), (2, f"{GROUP}:{'A' * 22}:0", OF_GROUP)]
)
def test_find_coordinator_refuses_the_sidecars_own_names(version: int, key_type: int, key: str, code: Code) -> None:
    if (version == 0 and key_type) or (version < 6 and key_type == 2):
        return
    keys = [key, "theirs"]
    res = play(Api.FIND_COORDINATOR, fc.FindCoordinatorRequest(key, key_type, keys), version)
    found = res.coordinators if version >= 4 else [res]
    assert (found[0].error_code, found[0].node_id, found[0].port) == (code, -1, -1)
    assert [c.node_id for c in found[1:]] == [1] * (version >= 4), "the others' are as the broker told them"


CONFIGS = (Api.DESCRIBE_CONFIGS, Api.ALTER_CONFIGS, Api.INCREMENTAL_ALTER_CONFIGS)


@pytest.mark.parametrize("api", CONFIGS, ids=called)
def test_settings_of_the_group_are_refused(api: Api) -> None:
    m = module(api)
    resource = m.DescribeConfigsResource if api == Api.DESCRIBE_CONFIGS else m.AlterConfigsResource
    for version in range(SERVED[api].low, SERVED[api].high + 1):
        res = play(api, request_of(api)([resource(cf.GROUP, GROUP, [])]), version)
        (result,) = res.results if api == Api.DESCRIBE_CONFIGS else res.responses
        assert (result.error_code, result.resource_type, result.resource_name) == (OF_GROUP, cf.GROUP, GROUP)


def test_what_is_asked_beside_it_is_answered() -> None:
    """The rest of the request goes to the broker without the group."""
    asked = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(cf.GROUP, n, None) for n in (GROUP, "theirs")])
    handler = HANDLERS[Api.DESCRIBE_CONFIGS](call_of(Api.DESCRIBE_CONFIGS, asked, 4, True))
    want = next(handler)
    assert isinstance(want, Ask) and GROUP.encode() not in want.frame
    told = dc.DescribeConfigsResponse(results=[dc.DescribeConfigsResult(0, None, cf.GROUP, "theirs", [])])
    with pytest.raises(StopIteration) as end:
        handler.send(response_frame(7, True, told.encode(4)))
    res = dc.DescribeConfigsResponse.decode(4, end.value.value)
    assert [(r.resource_name, r.error_code) for r in res.results] == [("theirs", 0), (GROUP, OF_GROUP)]


MANY = 20_000
LARGE = {
    Api.DESCRIBE_CONFIGS: dc.DescribeConfigsRequest([dc.DescribeConfigsResource(cf.GROUP, GROUP, [])] * MANY),
    Api.DESCRIBE_TRANSACTIONS: dt.DescribeTransactionsRequest([f"{TOPIC}-0"] * MANY),
}


@pytest.mark.parametrize("api", LARGE, ids=called)
def test_what_names_them_is_read_and_answered_in_slices_too(api: Api) -> None:
    call = call_of(api, LARGE[api], SERVED[api].high, True)
    assert sum(isinstance(want, Pause) for want in HANDLERS[api](call)) > MANY / slices.SLICE


@pytest.mark.parametrize("api", LARGE, ids=called)
def test_what_names_them_has_the_limit_of_elements(api: Api) -> None:
    call = call_of(api, LARGE[api], SERVED[api].high, True)
    call.scope.sizes = Sizes(request_elements=MANY // 2)
    with pytest.raises(slices.TooManyElements):
        list(HANDLERS[api](call))


@pytest.mark.parametrize(("api", "managing"), list(itertools.product(sorted(LISTS), (True, False))), ids=called)
def test_nothing_of_theirs_is_listed(api: Api, managing: bool) -> None:
    for version in range(SERVED[api].low, SERVED[api].high + 1):
        if api == Api.LIST_CONFIG_RESOURCES and (version == 0 or managing):
            continue  # v0 lists no groups; what is stored for groups is another test's
        told = repr(play(api, request_of(api)(), version, managing))
        assert "theirs" in told and GROUP not in told and ID not in told


@pytest.mark.parametrize("managing", [True, False])
def test_lists_are_without_their_group_where_nothing_else_can_be_kept_from_clients(
    managing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: Kafka's tests of migrations and of lists met a group that they had not made."""
    monkeypatch.setattr(sys.modules[__name__], "OWN", OwnNames(unlisted=GROUP))
    told = repr(play(Api.LIST_GROUPS, lg.ListGroupsRequest(), 5, managing))
    assert "theirs" in told and GROUP not in told


def test_what_only_looks_like_theirs_passes() -> None:
    for other in (f"{TOPIC}-x", f"{TOPIC}-", f"x{ID}", TOPIC, f"{TOPIC}-1-"):
        for api, version in ASKED_IDS:
            if api != Api.TXN_OFFSET_COMMIT:
                with pytest.raises(Reached):
                    play(api, filled(request_of(api), "theirs", other), version)


def test_brokers_verify_transactions_for_each_other_where_they_come_over_this_listener() -> None:
    request = filled(request_of(Api.ADD_PARTITIONS_TO_TXN), "", ID)
    call = call_of(Api.ADD_PARTITIONS_TO_TXN, request, 4, True)
    call.scope.own = OwnNames(GROUP, TOPIC, brokers_come=True)
    with pytest.raises(StopIteration) as end:
        next(HANDLERS[Api.ADD_PARTITIONS_TO_TXN](call))
    assert isinstance(end.value.value, Forward)
