"""Settings: the broker's word comes first, ours are the coordinator's, the rest is the broker's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from sidecar.api.call import Client
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import MESSAGE_CHARS, TEXT, Code
from sidecar.link.messages import (
    AlterReply,
    AlterSettings,
    ConfiguredGroups,
    ConfiguredReply,
    DescribeSettings,
    SettingChange,
    SettingsReply,
    SettingValue,
)
from sidecar.wire.apis import Api
from sidecar.wire.generated import alter_configs as al
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.primitives import STRING_MAX
from tests.api.play import WHO, Play

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
SHARE = "share.auto.offset.reset"
"""A group's setting that is the broker's business."""
Op = tuple[str, int, str | None]
ResultRow = tuple[int, str, int, str | None]
GONE = Code.COORDINATOR_NOT_AVAILABLE


def group(*ops: Op, name: str = "g") -> ia.AlterConfigsResource:
    return ia.AlterConfigsResource(cf.GROUP, name, [ia.AlterableConfig(*op) for op in ops])


def broker(*ops: Op, name: str = "1") -> ia.AlterConfigsResource:
    return ia.AlterConfigsResource(cf.BROKER, name, [ia.AlterableConfig(*op) for op in ops])


def request(*resources: ia.AlterConfigsResource, validate_only: bool = False) -> ia.IncrementalAlterConfigsRequest:
    return ia.IncrementalAlterConfigsRequest(list(resources), validate_only)


def response(*rows: ResultRow) -> ia.IncrementalAlterConfigsResponse:
    """Type and name of a resource, error code, message."""
    return ia.IncrementalAlterConfigsResponse(
        responses=[ia.AlterConfigsResourceResponse(code, text, kind, name) for kind, name, code, text in rows]
    )


def alter(
    *resources: ia.AlterConfigsResource, validate_only: bool = False, served: Collection[str] = (), **in_force: Any
) -> Play:
    """A request whose handler has got the settings in force."""
    here = [r for r in resources if r.resource_name in ("g", "g2") and any(c.name != SHARE for c in r.configs)]
    managed = tuple(dict.fromkeys(r.resource_name for r in here))
    req = request(*resources, validate_only=validate_only)
    play = Play(
        Api.INCREMENTAL_ALTER_CONFIGS,
        req,
        1,
        client=Client("10.0.0.9"),
        share="share" in served,
        streams="streams" in served,
    )
    return play.coordinates(DescribeSettings("", managed, own=True)).coordinator(SettingsReply(**in_force))


def change(name: str, values: dict[str, str | None], kind: int = cf.GROUP) -> SettingChange:
    return SettingChange(kind, name, values)


def settings(*changes: SettingChange, validate_only: bool = True) -> AlterSettings:
    return AlterSettings("", changes, validate_only, WHO)


G_OK: ResultRow = (cf.GROUP, "g", Code.NONE, None)
BROKER_OFFLOAD = "group." + cf.OFFLOAD
SESSION_55 = change("g", {cf.SESSION: "55000"})


# ---- IncrementalAlterConfigs --------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(2))
def test_a_setting_of_ours_is_checked_shown_to_the_broker_and_written_down(version: int) -> None:
    req = request(group((cf.SESSION, SET, "55000")))
    play = Play(Api.INCREMENTAL_ALTER_CONFIGS, req, version, client=Client("10.0.0.9"))
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(SettingsReply())
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    play.asks(request(group(), validate_only=True), 1).broker(response(G_OK))
    play.coordinates(settings(SESSION_55, validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(response(G_OK))


def test_what_the_leader_of_a_partition_reads_is_the_brokers() -> None:
    name = "share.record.lock.duration.ms"
    play = alter(group((cf.SESSION, SET, "55000"), (name, SET, "20000")), served=("share",))
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    play.asks(request(group((name, SET, "20000")), validate_only=True)).broker(response(G_OK))
    play.asks(request(group((name, SET, "20000")))).broker(response(G_OK))
    play.coordinates(settings(SESSION_55, validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(response(G_OK))


def test_only_validating_writes_nothing_down() -> None:
    play = alter(group((cf.SESSION, SET, "55000"), (SHARE, SET, "earliest")), validate_only=True)
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    shown = request(group((SHARE, SET, "earliest")), validate_only=True)
    play.asks(shown).broker(response(G_OK)).answers(response(G_OK))


@pytest.mark.parametrize("served", [("share", "streams"), ("share",), ("streams",), ()])
@pytest.mark.parametrize("name", ["streams.num.standby.replicas", "share.session.timeout.ms"])
def test_settings_of_share_and_streams_groups_are_kept_here_where_these_are(name: str, served: tuple[str, ...]) -> None:
    play = alter(group((cf.SESSION, SET, "55000"), (name, SET, "1")), served=served)
    here = name.partition(".")[0] in served
    ours = change("g", {cf.SESSION: "55000", name: "1"}) if here else SESSION_55
    theirs = [] if here else [(name, SET, "1")]
    play.coordinates(settings(ours)).coordinator(AlterReply())
    play.asks(request(group(*theirs), validate_only=True)).broker(response(G_OK))
    if theirs:
        play.asks(request(group(*theirs))).broker(response(G_OK))
    play.coordinates(settings(ours, validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(response(G_OK))


def test_ours_and_theirs_in_one_resource() -> None:
    theirs = ((SHARE, SET, "earliest"), (BROKER_OFFLOAD, SET, "false"))
    play = alter(group((cf.SESSION, SET, "55000"), *theirs))
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    play.asks(request(group(*theirs), validate_only=True)).broker(response(G_OK))
    play.asks(request(group(*theirs))).broker(response(G_OK))
    play.coordinates(settings(SESSION_55, validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(response(G_OK))


def test_what_the_broker_refuses_is_refused_whatever_we_think() -> None:
    """A client that may not change a group learns nothing of its settings."""
    denied: ResultRow = (cf.GROUP, "g", Code.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    play = alter(group((cf.SESSION, SET, "1")))
    void = AlterReply(refused={"32/g": (Code.INVALID_CONFIG, "too short")})
    play.coordinates(settings(change("g", {cf.SESSION: "1"}))).coordinator(void)
    play.asks(request(group(), validate_only=True)).broker(response(denied)).reports_settings().answers(
        response(denied)
    )


def test_what_we_refuse_is_not_sent_on() -> None:
    void = (Code.INVALID_CONFIG, "too short")
    play = alter(group((cf.SESSION, SET, "1"), (SHARE, SET, "earliest")), group((cf.SESSION, SET, "55000"), name="g2"))
    both = settings(change("g", {cf.SESSION: "1"}), change("g2", {cf.SESSION: "55000"}))
    play.coordinates(both).coordinator(AlterReply(refused={"32/g": void}))
    shown = request(group(name="g2"), group(), validate_only=True)
    g2_ok: ResultRow = (cf.GROUP, "g2", Code.NONE, None)
    play.asks(shown).broker(response(g2_ok, G_OK))
    play.coordinates(settings(change("g2", {cf.SESSION: "55000"}), validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(response((cf.GROUP, "g", *void), g2_ok))


def test_a_resource_that_is_named_twice_is_refused_and_the_others_are_changed() -> None:
    """Kafka's ConfigAdminManager.preprocess, before its authorizer."""
    once, twice = group((SHARE, SET, "earliest"), name="g2"), group((cf.SESSION, SET, "55000"))
    g2_ok: ResultRow = (cf.GROUP, "g2", Code.NONE, None)
    refused: ResultRow = (cf.GROUP, "g", Code.INVALID_REQUEST, "Each resource must appear at most once.")
    play = alter(twice, once, twice)
    play.asks(request(once, validate_only=True)).broker(response(g2_ok))
    play.asks(request(once)).broker(response(g2_ok)).reports_settings().answers(response(refused, g2_ok, refused))
    alter(twice, twice).reports_settings().answers(response(refused, refused))


@pytest.mark.parametrize("code", [Code.UNSUPPORTED_VERSION, Code.INVALID_REQUEST])
def test_an_error_of_ours_is_better_than_that_of_a_broker_that_knows_no_groups(code: Code) -> None:
    unknown: ResultRow = (cf.GROUP, "g", code, "Unknown resource type.")
    void: ResultRow = (cf.GROUP, "g", Code.INVALID_CONFIG, "too short")
    play = alter(group((cf.SESSION, SET, "1")), validate_only=True)
    play.coordinates(settings(change("g", {cf.SESSION: "1"}))).coordinator(AlterReply(refused={"32/g": void[2:]}))
    play.asks(request(group(), validate_only=True)).broker(response(unknown)).answers(response(void))
    play = alter(group((cf.SESSION, SET, "55000")), validate_only=True)
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    play.asks(request(group(), validate_only=True)).broker(response(unknown)).answers(response(unknown))


@pytest.mark.parametrize(
    ("ops", "code", "message"),
    [
        (
            [(cf.SESSION, SET, "50000"), (cf.SESSION, DELETE, None)],
            Code.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            [(cf.SESSION, SET, None), (SHARE, APPEND, None)],
            Code.INVALID_REQUEST,
            f"Null value not supported for : {cf.SESSION},{SHARE}",
        ),
        (
            [(cf.SESSION, APPEND, "1")],
            Code.INVALID_CONFIG,
            f"Can't APPEND to key {cf.SESSION} because its type is not LIST.",
        ),
        (
            [(cf.SESSION, SUBTRACT, "1")],
            Code.INVALID_CONFIG,
            f"Can't SUBTRACT to key {cf.SESSION} because its type is not LIST.",
        ),
        ([(cf.SESSION, 4, "50000")], Code.UNKNOWN_SERVER_ERROR, None),
        ([(cf.SESSION, -2, "50000")], Code.UNKNOWN_SERVER_ERROR, None),
    ],
    ids=["twice", "null", "append", "subtract", "no such operation", "a negative one"],
)
def test_requests_that_make_no_sense(ops: list[Op], code: Code, message: str | None) -> None:
    play = alter(group(*ops))
    play.asks(request(group(), validate_only=True)).broker(response(G_OK)).reports_settings()
    play.answers(response((cf.GROUP, "g", code, message)))


def test_texts_about_long_names_fit_into_the_answer() -> None:
    names = cf.SESSION, "x" * STRING_MAX
    text = f"Null value not supported for : {','.join(names)}"[:MESSAGE_CHARS] + "..."
    play = alter(group(*((name, SET, None) for name in names)))
    play.asks(request(group(), validate_only=True)).broker(response(G_OK)).reports_settings()
    play.answers(response((cf.GROUP, "g", Code.INVALID_REQUEST, text)))
    resources = [dc.DescribeConfigsResource(cf.GROUP, name, [cf.INTERVAL]) for name in ("g", names[1])]
    play = Play(Api.DESCRIBE_CONFIGS, dc.DescribeConfigsRequest(resources), 4, client=old()).may_describe("g")
    no = dc.DescribeConfigsResult(Code.INVALID_REQUEST, (UNKNOWN_TYPE + names[1])[:MESSAGE_CHARS] + "...", 32, names[1])
    play.coordinates(FORCE).coordinator(THREE).answers(described(result(row(cf.INTERVAL, "2000", cf.STATIC)), no))


def test_the_longest_value_is_the_coordinators_to_refuse() -> None:
    longest = "1" * STRING_MAX
    play = alter(group((cf.SESSION, SET, longest)), validate_only=True)
    void = (Code.INVALID_CONFIG, "no number")
    play.coordinates(settings(change("g", {cf.SESSION: longest}))).coordinator(AlterReply(refused={"32/g": void}))
    play.asks(request(group(), validate_only=True)).broker(response(G_OK)).answers(response((cf.GROUP, "g", *void)))


def test_a_removed_setting_that_the_broker_still_keeps_is_removed_there_too() -> None:
    """From the time before the group was managed."""
    held = {"g": {cf.SESSION: "50000", cf.HEARTBEAT: "6000"}}
    ops = ((cf.SESSION, DELETE, None), (cf.INTERVAL, DELETE, None), (cf.HEARTBEAT, SET, "7000"))
    play = alter(group(*ops), at_broker=held)
    values: dict[str, str | None] = {cf.SESSION: None, cf.INTERVAL: None, cf.HEARTBEAT: "7000"}
    play.coordinates(settings(change("g", values))).coordinator(AlterReply())
    play.asks(request(group((cf.SESSION, DELETE, None)), validate_only=True)).broker(response(G_OK))
    play.asks(request(group((cf.SESSION, DELETE, None)))).broker(response(G_OK))
    play.coordinates(settings(change("g", values), validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(response(G_OK))


def test_what_the_broker_then_does_not_do_is_not_written_down_here() -> None:
    late: ResultRow = (cf.GROUP, "g", Code.REQUEST_TIMED_OUT, "no controller")
    play = alter(group((cf.SESSION, SET, "55000"), (SHARE, SET, "earliest")))
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    play.asks(request(group((SHARE, SET, "earliest")), validate_only=True)).broker(response(G_OK))
    play.asks(request(group((SHARE, SET, "earliest")))).broker(response(late)).reports_settings().answers(
        response(late)
    )


def test_a_setting_that_cannot_be_written_down() -> None:
    lost = (Code.REQUEST_TIMED_OUT, "no leader")
    play = alter(group((cf.SESSION, SET, "55000")))
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    play.asks(request(group(), validate_only=True)).broker(response(G_OK))
    play.coordinates(settings(SESSION_55, validate_only=False)).coordinator(AlterReply(refused={"32/g": lost}))
    play.reports_settings().answers(response((cf.GROUP, "g", *lost)))


def test_the_coordinator_goes_away_in_between() -> None:
    refused: ResultRow = (cf.GROUP, "g", GONE, TEXT[GONE])
    play = alter(group((cf.SESSION, SET, "55000")))
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    play.asks(request(group(), validate_only=True)).broker(response(G_OK))
    play.coordinates(settings(SESSION_55, validate_only=False)).coordinator(AlterReply(GONE, TEXT[GONE]))
    play.reports_settings().answers(response(refused))


def test_without_a_coordinator_nothing_of_a_managed_group_is_changed_anywhere() -> None:
    refused: ResultRow = (cf.GROUP, "g", GONE, TEXT[GONE])
    change_ = group((cf.SESSION, SET, "55000"), (SHARE, SET, "earliest"))
    play = alter(change_, code=GONE, message=TEXT[GONE])
    play.asks(request(group(), validate_only=True)).broker(response(G_OK)).reports_settings().answers(response(refused))
    denied: ResultRow = (cf.GROUP, "g", Code.GROUP_AUTHORIZATION_FAILED, None)
    play = alter(change_, code=GONE, message=TEXT[GONE])
    play.asks(request(group(), validate_only=True)).broker(response(denied)).reports_settings().answers(
        response(denied)
    )


def test_the_brokers_settings_of_a_managed_group_are_changed_without_a_coordinator() -> None:
    change_ = group((SHARE, SET, "earliest"))
    play = Play(Api.INCREMENTAL_ALTER_CONFIGS, request(change_), 1)
    play.asks(request(change_, validate_only=True)).broker(response(G_OK))
    play.asks(request(change_)).broker(response(G_OK)).reports_settings().answers(response(G_OK))
    ours, theirs = group((cf.SESSION, SET, "55000")), group((SHARE, SET, "earliest"), name="g2")
    refused, g2_ok = (cf.GROUP, "g", GONE, TEXT[GONE]), (cf.GROUP, "g2", Code.NONE, None)
    play = alter(ours, theirs, code=GONE, message=TEXT[GONE])
    play.asks(request(theirs, group(), validate_only=True)).broker(response(g2_ok, G_OK))
    play.asks(request(theirs)).broker(response(g2_ok)).reports_settings().answers(response(refused, g2_ok))


def test_settings_of_a_group_of_others_go_to_the_broker() -> None:
    mine, theirs = group((cf.SESSION, SET, "55000")), group((cf.SESSION, SET, "50000"), name="theirs")
    play = alter(mine, theirs)
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    both = response(G_OK, (cf.GROUP, "theirs", Code.NONE, None))
    play.asks(request(group(), theirs, validate_only=True)).broker(both)
    play.asks(request(theirs)).broker(response((cf.GROUP, "theirs", Code.NONE, None)))
    play.coordinates(settings(SESSION_55, validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(both)


def test_the_offload_switch_of_a_broker_is_kept_on_both_sides() -> None:
    ok: ResultRow = (cf.BROKER, "1", Code.NONE, None)
    ops = ((BROKER_OFFLOAD, SET, "false"), ("x", SET, "2"))
    switched = change("1", {BROKER_OFFLOAD: "false"}, cf.BROKER)
    play = Play(Api.INCREMENTAL_ALTER_CONFIGS, request(broker(*ops)), 1)
    play.coordinates(AlterSettings("", (switched,), True, WHO)).coordinator(AlterReply())
    play.asks(request(broker(*ops), validate_only=True)).broker(response(ok))
    play.asks(request(broker(*ops))).broker(response(ok))
    play.coordinates(AlterSettings("", (switched,), False, WHO)).coordinator(AlterReply())
    play.reports_settings().answers(response(ok))


def test_a_void_value_of_the_offload_switch() -> None:
    void = (Code.INVALID_CONFIG, "neither true nor false")
    play = Play(Api.INCREMENTAL_ALTER_CONFIGS, request(broker((BROKER_OFFLOAD, SET, "maybe"))), 1)
    switched = change("1", {BROKER_OFFLOAD: "maybe"}, cf.BROKER)
    play.coordinates(AlterSettings("", (switched,), True, WHO)).coordinator(AlterReply(refused={"4/1": void}))
    play.asks(request(broker(), validate_only=True)).broker(response((cf.BROKER, "1", Code.NONE, None)))
    play.reports_settings().answers(response((cf.BROKER, "1", *void)))


def test_other_settings_of_brokers_pass_and_take_effect_at_once() -> None:
    ok: ResultRow = (cf.BROKER, "", Code.NONE, None)
    req = request(broker(("group.consumer.assignment.interval.ms", SET, "3000"), name=""))
    Play(Api.INCREMENTAL_ALTER_CONFIGS, req, 1).asks().broker(response(ok)).reports_settings().answers(response(ok))


@pytest.mark.parametrize(("kind", "name"), [(2, "theirs"), (2, "g"), (16, "g"), (cf.GROUP, "theirs")])
def test_what_concerns_neither_managed_groups_nor_brokers_passes(kind: int, name: str) -> None:
    resource = ia.AlterConfigsResource(kind, name, [ia.AlterableConfig(BROKER_OFFLOAD, SET, "1")])
    Play(Api.INCREMENTAL_ALTER_CONFIGS, request(resource), 1).forwards()
    old = al.AlterConfigsResource(kind, name, [al.AlterableConfig("x", "1")])
    Play(Api.ALTER_CONFIGS, al.AlterConfigsRequest([old]), 2).forwards()
    Play(Api.DESCRIBE_CONFIGS, dc.DescribeConfigsRequest([dc.DescribeConfigsResource(kind, name)]), 4).forwards()


def test_a_broker_in_one_request_with_a_group() -> None:
    """The broker's part does not depend on the coordinator."""
    ok: ResultRow = (cf.BROKER, "1", Code.NONE, None)
    theirs = broker((cf.SESSION, SET, "1"), ("x", SET, "2"))
    play = alter(group((cf.SESSION, SET, "55000")), theirs, code=GONE, message=TEXT[GONE])
    play.asks(request(theirs, group(), validate_only=True)).broker(response(ok, G_OK))
    play.asks(request(theirs)).broker(response(ok)).reports_settings().answers(
        response((cf.GROUP, "g", GONE, TEXT[GONE]), ok)
    )


# ---- AlterConfigs -------------------------------------------------------------------------------------------------
def value(
    name: str, own: str | None = None, level: str = "1", source: int = cf.DEFAULT, plain: str = "1"
) -> SettingValue:
    return SettingValue(name, own, level, source, plain)


@pytest.mark.parametrize("version", range(3))
def test_the_old_request_removes_what_it_does_not_name(version: int) -> None:
    resource = al.AlterConfigsResource(cf.GROUP, "g", [al.AlterableConfig(cf.SESSION, "46000")])
    play = Play(Api.ALTER_CONFIGS, al.AlterConfigsRequest([resource]), version, client=Client("10.0.0.9"))
    own = (value(cf.SESSION, "50000"), value(cf.OFFLOAD, "false"), value(cf.INTERVAL), value(cf.HEARTBEAT, "700"))
    told = SettingsReply(groups={"g": own}, at_broker={"g": {cf.HEARTBEAT: "700"}})
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(told)
    wanted = change("g", {cf.SESSION: "46000", cf.OFFLOAD: None, cf.HEARTBEAT: None})
    play.coordinates(settings(wanted)).coordinator(AlterReply())
    done = al.AlterConfigsResponse(responses=[al.AlterConfigsResourceResponse(0, None, cf.GROUP, "g")])
    nothing = al.AlterConfigsResource(cf.GROUP, "g")
    play.asks(al.AlterConfigsRequest([nothing], True), version).broker(done)
    play.asks(al.AlterConfigsRequest([nothing]), version).broker(done)
    play.coordinates(settings(wanted, validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(done)


@pytest.mark.parametrize("named", [[], [al.AlterableConfig(SHARE, "earliest")]], ids=["nothing", "another"])
def test_the_old_request_resets_what_the_broker_keeps_of_the_group(named: list[al.AlterableConfig]) -> None:
    """Symptom: share.* and streams.* kept the values that they have at Kafka only if they are named."""
    resource = al.AlterConfigsResource(cf.GROUP, "g", named)
    play = Play(Api.ALTER_CONFIGS, al.AlterConfigsRequest([resource]), 2, client=Client("10.0.0.9"))
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(SettingsReply())
    done = al.AlterConfigsResponse(responses=[al.AlterConfigsResourceResponse(0, None, cf.GROUP, "g")])
    play.asks(al.AlterConfigsRequest([resource], True), 2).broker(done)
    play.asks(al.AlterConfigsRequest([resource]), 2).broker(done)
    play.reports_settings().answers(done)


def test_the_old_request_is_not_sent_on_where_the_broker_knows_no_settings_of_groups() -> None:
    moved = al.AlterConfigsResource(cf.GROUP, "g", [al.AlterableConfig(cf.MANAGED, "true")])
    play = Play(Api.ALTER_CONFIGS, al.AlterConfigsRequest([moved]), 2, client=Client("10.0.0.9"))
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(SettingsReply())
    wanted = change("g", {cf.MANAGED: "true"})
    play.coordinates(settings(wanted)).coordinator(AlterReply())
    unknown = al.AlterConfigsResourceResponse(Code.INVALID_REQUEST, "unknown", cf.GROUP, "g")
    play.asks(al.AlterConfigsRequest([al.AlterConfigsResource(cf.GROUP, "g")], True), 2)
    play.broker(al.AlterConfigsResponse(responses=[unknown])).may_delete("g")
    play.coordinates(settings(wanted, validate_only=False)).coordinator(AlterReply())
    done = al.AlterConfigsResponse(responses=[al.AlterConfigsResourceResponse(0, None, cf.GROUP, "g")])
    play.reports_settings().answers(done)


def test_the_old_request_for_a_group_and_others() -> None:
    """The broker resets what the others do not name, as it does where no group is among them."""
    resources = [
        al.AlterConfigsResource(k, n, [al.AlterableConfig("x", "1")]) for k, n in ((cf.BROKER, "g"), (32, "u"))
    ]
    own = SettingsReply(groups={"g": (value(cf.SESSION, "50000"),), "u": (value(cf.SESSION, "50000"),)})
    mine = al.AlterConfigsResource(cf.GROUP, "g", [al.AlterableConfig(cf.SESSION, "50000")])
    play = Play(Api.ALTER_CONFIGS, al.AlterConfigsRequest([*resources, mine], True), 2, client=Client("10.0.0.9"))
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(own)
    play.coordinates(settings(change("g", {cf.SESSION: "50000"}))).coordinator(AlterReply())
    shown = al.AlterConfigsRequest([*resources, al.AlterConfigsResource(cf.GROUP, "g")], True)
    play.asks(shown, 2).broker(al.AlterConfigsResponse())
    rows = [(cf.BROKER, "g"), (cf.GROUP, "u"), (cf.GROUP, "g")]
    play.answers(al.AlterConfigsResponse(responses=[al.AlterConfigsResourceResponse(0, None, *row) for row in rows]))


def test_the_old_request_for_a_broker_passes_and_takes_effect_at_once() -> None:
    resource = al.AlterConfigsResource(cf.BROKER, "1", [al.AlterableConfig("x", "1")])
    done = al.AlterConfigsResponse(responses=[al.AlterConfigsResourceResponse(0, None, cf.BROKER, "1")])
    Play(Api.ALTER_CONFIGS, al.AlterConfigsRequest([resource]), 2).asks().broker(done).reports_settings().answers(done)


# ---- DescribeConfigs ----------------------------------------------------------------------------------------------
OWN = value(cf.SESSION, "55000", "45000", plain="45000")
BROKERS = value(cf.INTERVAL, None, "2000", cf.STATIC, "1000")
PLAIN = value(cf.OFFLOAD, None, "true", plain="true")


def result(
    *configs: dc.DescribeConfigsResourceResult, name: str = "g", code: Code = Code.NONE
) -> dc.DescribeConfigsResult:
    return dc.DescribeConfigsResult(code, None, cf.GROUP, name, list(configs))


def row(
    name: str, text: str, source: int, kind: int = 3, documentation: str | None = None
) -> dc.DescribeConfigsResourceResult:
    return dc.DescribeConfigsResourceResult(
        name, text, config_source=source, config_type=kind, documentation=documentation
    )


def described(*results: dc.DescribeConfigsResult) -> dc.DescribeConfigsResponse:
    return dc.DescribeConfigsResponse(results=list(results))


def describe(*names: str, keys: list[str] | None = None, version: int = 4, **options: bool) -> Play:
    wanted = [dc.DescribeConfigsResource(cf.GROUP, n, keys) for n in names]
    return Play(Api.DESCRIBE_CONFIGS, dc.DescribeConfigsRequest(wanted, **options), version).asks()


FORCE = DescribeSettings("", ("g",))
THREE = SettingsReply(groups={"g": (OWN, BROKERS, PLAIN)})


@pytest.mark.parametrize("version", range(1, 5))
def test_our_values_stand_in_the_place_of_the_brokers(version: int) -> None:
    theirs = result(row(SHARE, "latest", cf.DEFAULT), row(cf.SESSION, "45000", cf.DEFAULT))
    play = describe("g", version=version).broker(described(theirs)).coordinates(FORCE).coordinator(THREE)
    play.answers(
        described(
            result(
                row(SHARE, "latest", cf.DEFAULT),
                row(cf.SESSION, "55000", cf.GROUP_CONFIG),
                row(cf.INTERVAL, "2000", cf.STATIC),
                row(cf.OFFLOAD, "true", cf.DEFAULT, kind=1),
            )
        )
    )


def test_version_0_marks_defaults() -> None:
    """3.9 still serves it, and sarama asks in it."""
    play = describe("g", version=0).broker(described(result())).coordinates(FORCE).coordinator(THREE)
    told = dc.DescribeConfigsResponse.decode(0, play.gives()).results[0].configs
    assert {c.name: (c.value, c.is_default) for c in told} == {
        cf.SESSION: ("55000", False),
        cf.INTERVAL: ("2000", False),
        cf.OFFLOAD: ("true", True),
    }


def test_only_the_settings_that_were_asked_for() -> None:
    play = describe("g", keys=[cf.INTERVAL]).broker(described(result())).coordinates(FORCE).coordinator(THREE)
    play.answers(described(result(row(cf.INTERVAL, "2000", cf.STATIC))))


def test_synonyms_and_documentation() -> None:
    theirs = result(row(cf.SESSION, "45000", cf.DEFAULT, documentation="The broker's words."))
    play = describe("g", include_synonyms=True, include_documentation=True).broker(described(theirs))
    play.coordinates(FORCE).coordinator(THREE)
    session = row(cf.SESSION, "55000", cf.GROUP_CONFIG, documentation="The broker's words.")
    session.synonyms = [
        dc.DescribeConfigsSynonym(cf.SESSION, "55000", cf.GROUP_CONFIG),
        dc.DescribeConfigsSynonym("group." + cf.SESSION, "45000", cf.DEFAULT),
    ]
    interval = row(cf.INTERVAL, "2000", cf.STATIC, documentation=cf.SETTINGS[cf.INTERVAL].documentation)
    interval.synonyms = [
        dc.DescribeConfigsSynonym("group." + cf.INTERVAL, "2000", cf.STATIC),
        dc.DescribeConfigsSynonym("group." + cf.INTERVAL, "1000", cf.DEFAULT),
    ]
    offload = row(cf.OFFLOAD, "true", cf.DEFAULT, 1, cf.SETTINGS[cf.OFFLOAD].documentation)
    offload.synonyms = [dc.DescribeConfigsSynonym(BROKER_OFFLOAD, "true", cf.DEFAULT)]
    play.answers(described(result(session, interval, offload)))


def test_all_levels_of_the_broker_are_synonyms() -> None:
    hidden = (("2000", cf.DYNAMIC_DEFAULT), ("1500", cf.STATIC))
    told = SettingValue(cf.INTERVAL, "4000", "3000", cf.DYNAMIC_BROKER, "1000", hidden)
    play = describe("g", keys=[cf.INTERVAL], include_synonyms=True).broker(described(result()))
    interval = row(cf.INTERVAL, "4000", cf.GROUP_CONFIG)
    levels = [("3000", cf.DYNAMIC_BROKER), *hidden, ("1000", cf.DEFAULT)]
    interval.synonyms = [
        dc.DescribeConfigsSynonym(cf.INTERVAL, "4000", cf.GROUP_CONFIG),
        *(dc.DescribeConfigsSynonym("group." + cf.INTERVAL, *level) for level in levels),
    ]
    play.coordinates(FORCE).coordinator(SettingsReply(groups={"g": (told,)})).answers(described(result(interval)))


def unknown(name: str = "g") -> dc.DescribeConfigsResult:
    return dc.DescribeConfigsResult(Code.INVALID_REQUEST, "Unknown resource type.", cf.GROUP, name)


UNKNOWN_TYPE = "Unexpected resource type UNKNOWN for resource "


def old() -> Client:
    """A client of a broker before Kafka 4.0."""
    return Client("10.0.0.9", broker_versions={Api.DESCRIBE_CLUSTER: (0, 1)})


def test_a_broker_that_knows_no_settings_of_groups_is_not_asked_of_them() -> None:
    """Symptom: each description made an error with a stack trace in the log of a broker of 2.8, which refused the
    topics beside the group, too."""
    topic = dc.DescribeConfigsResource(2, "t")
    group_, theirs = (dc.DescribeConfigsResource(cf.GROUP, n, [cf.INTERVAL]) for n in ("g", "theirs"))
    req = dc.DescribeConfigsRequest([group_, topic, theirs], include_synonyms=True)
    of_topic = dc.DescribeConfigsResult(Code.NONE, None, 2, "t")
    play = Play(Api.DESCRIBE_CONFIGS, req, 4, client=old())
    play.asks(dc.DescribeConfigsRequest([topic], include_synonyms=True)).broker(described(of_topic))
    play.may_describe("g").coordinates(FORCE).coordinator(SettingsReply(groups={"g": (PLAIN,)}))
    no = dc.DescribeConfigsResult(Code.INVALID_REQUEST, UNKNOWN_TYPE + "theirs", cf.GROUP, "theirs")
    play.answers(described(result(), of_topic, no))
    play = Play(Api.DESCRIBE_CONFIGS, dc.DescribeConfigsRequest([group_]), 4, client=old()).may_describe("g")
    play.coordinates(FORCE).coordinator(THREE).answers(described(result(row(cf.INTERVAL, "2000", cf.STATIC))))


def test_nor_is_it_told_of_their_changes() -> None:
    move, theirs = (cf.MANAGED, SET, "true"), broker(("x", SET, "1"))
    req = request(group(move), theirs)
    play = Play(Api.INCREMENTAL_ALTER_CONFIGS, req, 1, client=old())
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(SettingsReply())
    mine = change("g", {cf.MANAGED: "true"})
    play.coordinates(settings(mine)).coordinator(AlterReply())
    ok: ResultRow = (cf.BROKER, "1", Code.NONE, None)
    play.asks(request(theirs, validate_only=True)).broker(response(ok)).may_delete("g")
    play.asks(request(theirs)).broker(response(ok))
    play.coordinates(settings(mine, validate_only=False)).coordinator(AlterReply())
    play.reports_settings().answers(response(G_OK, ok))
    play = Play(Api.INCREMENTAL_ALTER_CONFIGS, request(group((cf.SESSION, SET, "55000"))), 1, client=old())
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(SettingsReply())
    play.coordinates(settings(SESSION_55)).coordinator(AlterReply())
    no: ResultRow = (cf.GROUP, "g", Code.INVALID_REQUEST, UNKNOWN_TYPE + "g")
    play.reports_settings().answers(response(no))


def test_nor_by_the_old_request() -> None:
    moved = al.AlterConfigsResource(cf.GROUP, "g", [al.AlterableConfig(cf.MANAGED, "true")])
    play = Play(Api.ALTER_CONFIGS, al.AlterConfigsRequest([moved]), 2, client=old())
    play.coordinates(DescribeSettings("", ("g",), own=True)).coordinator(SettingsReply())
    mine = change("g", {cf.MANAGED: "true"})
    play.coordinates(settings(mine)).coordinator(AlterReply())
    play.may_delete("g").coordinates(settings(mine, validate_only=False)).coordinator(AlterReply())
    done = al.AlterConfigsResponse(responses=[al.AlterConfigsResourceResponse(0, None, cf.GROUP, "g")])
    play.reports_settings().answers(done)


def test_a_broker_that_knows_no_settings_of_groups() -> None:
    play = describe("g", keys=[cf.INTERVAL]).broker(described(unknown())).may_describe("g")
    play.coordinates(FORCE).coordinator(THREE).answers(described(result(row(cf.INTERVAL, "2000", cf.STATIC))))


def test_a_broker_that_knows_no_settings_of_groups_still_knows_who_may_see_a_group() -> None:
    play = describe("g2", "g", keys=[cf.INTERVAL]).broker(described(unknown("g2"), unknown()))
    play = play.may_describe("g2", "g", hidden=["g2"]).coordinates(FORCE).coordinator(THREE)
    denied = result(name="g2", code=Code.GROUP_AUTHORIZATION_FAILED)
    play.answers(described(denied, result(row(cf.INTERVAL, "2000", cf.STATIC))))
    play = describe("g").broker(described(unknown())).may_describe("g", hidden=["g"])
    play.answers(described(result(code=Code.GROUP_AUTHORIZATION_FAILED)))


@pytest.mark.parametrize("code", [Code.GROUP_AUTHORIZATION_FAILED, Code.UNKNOWN_SERVER_ERROR])
def test_what_the_broker_does_not_describe_is_not_described(code: Code) -> None:
    describe("g").broker(described(result(code=code))).answers(described(result(code=code)))


def test_a_hidden_group_is_not_described() -> None:
    denied = result(code=Code.GROUP_AUTHORIZATION_FAILED)
    describe("g").broker(described(denied)).answers(described(denied))


def test_managed_and_other_groups_in_one_description() -> None:
    denied, theirs = result(name="g2", code=Code.GROUP_AUTHORIZATION_FAILED), result(name="theirs")
    play = describe("g2", "theirs", "g", keys=[cf.INTERVAL]).broker(described(denied, theirs, result()))
    play.coordinates(FORCE).coordinator(THREE)
    play.answers(described(denied, theirs, result(row(cf.INTERVAL, "2000", cf.STATIC))))


def test_settings_that_nobody_can_tell_are_not_made_up() -> None:
    theirs = result(name="theirs")
    play = describe("g", "theirs").broker(described(result(row(cf.SESSION, "45000", cf.DEFAULT)), theirs))
    play.coordinates(FORCE).coordinator(SettingsReply(GONE, TEXT[GONE]))
    play.answers(described(dc.DescribeConfigsResult(GONE, TEXT[GONE], cf.GROUP, "g"), theirs))


# ---- ListConfigResources ------------------------------------------------------------------------------------------
def listed(*resources: tuple[str, int], code: Code = Code.NONE) -> lr.ListConfigResourcesResponse:
    return lr.ListConfigResourcesResponse(0, code, [lr.ConfigResource(*r) for r in resources])


def resources(*types: int, version: int = 1, managed: tuple[str, ...] = ("g", "g2")) -> Play:
    return Play(Api.LIST_CONFIG_RESOURCES, lr.ListConfigResourcesRequest(list(types)), version, managed=managed)


@pytest.mark.parametrize("types", [(), (cf.GROUP,), (2, cf.GROUP)])
def test_managed_groups_with_settings_are_listed_once(types: tuple[int, ...]) -> None:
    play = resources(*types).asks().broker(listed(("g", 2), ("g2", cf.GROUP))).coordinates(ConfiguredGroups(""))
    play.coordinator(ConfiguredReply(groups=("g", "g2"))).answers(listed(("g", 2), ("g2", cf.GROUP), ("g", cf.GROUP)))


def test_lists_that_have_no_groups_in_them_pass() -> None:
    resources(2, 4).forwards()
    resources(version=0).forwards()
    resources(cf.GROUP, managed=()).forwards()


def test_a_list_that_the_broker_refuses() -> None:
    denied = listed(code=Code.CLUSTER_AUTHORIZATION_FAILED)
    resources(cf.GROUP).asks().broker(denied).answers(denied)


def test_a_list_without_the_coordinator() -> None:
    play = resources(cf.GROUP).asks().broker(listed(("g2", cf.GROUP))).coordinates(ConfiguredGroups(""))
    play.coordinator(ConfiguredReply(GONE)).answers(listed(code=GONE))
