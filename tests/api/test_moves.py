"""The owner of a group, forced rebalances and patterns: settings that only sidecars know, of any group."""

from __future__ import annotations

import pytest

from sidecar.api.call import Client
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import AlterReply, AlterSettings, DescribeSettings, SettingChange, SettingsReply
from sidecar.wire.apis import Api
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import incremental_alter_configs as ia
from tests.api.play import WHO, Play

SET, DELETE, APPEND = 0, 1, 2


def request(
    kind: int, name: str, *ops: tuple[str, int, str | None], validate_only: bool = False
) -> ia.IncrementalAlterConfigsRequest:
    resource = ia.AlterConfigsResource(kind, name, [ia.AlterableConfig(*op) for op in ops])
    return ia.IncrementalAlterConfigsRequest([resource], validate_only)


def response(
    kind: int, name: str, code: int = Code.NONE, text: str | None = None
) -> ia.IncrementalAlterConfigsResponse:
    return ia.IncrementalAlterConfigsResponse(responses=[ia.AlterConfigsResourceResponse(code, text, kind, name)])


def settings(kind: int, name: str, values: dict[str, str | None], validate_only: bool) -> AlterSettings:
    return AlterSettings("", (SettingChange(kind, name, values),), validate_only, WHO)


def play(req: ia.IncrementalAlterConfigsRequest) -> Play:
    return Play(Api.INCREMENTAL_ALTER_CONFIGS, req, 1, client=Client("10.0.0.9"))


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (cf.GROUP, "theirs", cf.MANAGED, "true"),
        (cf.GROUP, "theirs", cf.REBALANCE, "lag"),
        (cf.BROKER, "", cf.INCLUDE, "a.*,b"),
    ],
)
def test_the_broker_is_asked_for_the_right_and_never_shown_the_setting(
    kind: int, name: str, key: str, value: str
) -> None:
    p = play(request(kind, name, (key, SET, value)))
    p.coordinates(settings(kind, name, {key: value}, True)).coordinator(AlterReply())
    p.asks(request(kind, name, validate_only=True), 1).broker(response(kind, name))
    p.coordinates(settings(kind, name, {key: value}, False)).coordinator(AlterReply())
    p.reports_settings().answers(response(kind, name))


def test_the_broker_refuses_whoever_may_not() -> None:
    p = play(request(cf.GROUP, "theirs", (cf.MANAGED, DELETE, None)))
    p.coordinates(settings(cf.GROUP, "theirs", {cf.MANAGED: None}, True)).coordinator(AlterReply())
    refusal = response(cf.GROUP, "theirs", Code.GROUP_AUTHORIZATION_FAILED, "no")
    p.asks(request(cf.GROUP, "theirs", validate_only=True), 1).broker(refusal).reports_settings().answers(refusal)


@pytest.mark.parametrize("code", [Code.NONE, Code.GROUP_AUTHORIZATION_FAILED])
def test_where_the_broker_has_no_settings_of_groups_delete_is_asked_for(code: Code) -> None:
    p = play(request(cf.GROUP, "theirs", (cf.MANAGED, SET, "true")))
    p.coordinates(settings(cf.GROUP, "theirs", {cf.MANAGED: "true"}, True)).coordinator(AlterReply())
    p.asks(request(cf.GROUP, "theirs", validate_only=True), 1).broker(
        response(cf.GROUP, "theirs", Code.INVALID_REQUEST)
    )
    p.may_delete("theirs", code)
    if code == Code.NONE:
        p.coordinates(settings(cf.GROUP, "theirs", {cf.MANAGED: "true"}, False)).coordinator(AlterReply())
        p.reports_settings().answers(response(cf.GROUP, "theirs"))
    else:
        p.reports_settings()
        told = ia.IncrementalAlterConfigsResponse.decode(1, p.gives()).responses[0]
        assert told.error_code == code and "DELETE of the group" in (told.error_message or "")


def test_patterns_are_the_same_for_all_brokers() -> None:
    p = play(request(cf.BROKER, "1", (cf.INCLUDE, SET, "a")))
    p.asks(request(cf.BROKER, "1", validate_only=True), 1).broker(response(cf.BROKER, "1")).reports_settings()
    told = ia.IncrementalAlterConfigsResponse.decode(1, p.gives()).responses[0]
    assert told.error_code == Code.INVALID_CONFIG and "same for all brokers" in (told.error_message or "")


@pytest.mark.parametrize(
    ("code", "shown"), [(Code.NONE, True), (Code.INVALID_REQUEST, True), (Code.GROUP_AUTHORIZATION_FAILED, False)]
)
def test_the_state_of_a_group_is_described(code: Code, shown: bool) -> None:
    wanted = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(cf.GROUP, "g", None)])
    p = Play(Api.DESCRIBE_CONFIGS, wanted, 4, moved=("g",)).asks()
    p.broker(dc.DescribeConfigsResponse(results=[dc.DescribeConfigsResult(code, None, cf.GROUP, "g")]))
    if code == Code.INVALID_REQUEST:
        p.may_describe("g")
    if shown:
        told = {cf.MANAGED: "true", cf.STATE: "sidecar"}
        p.coordinates(DescribeSettings("", ("g",))).coordinator(SettingsReply(groups={"g": ()}, moves={"g": told}))
    (result,) = dc.DescribeConfigsResponse.decode(4, p.gives()).results
    assert {c.name: (c.value, c.read_only) for c in result.configs} == (
        {cf.MANAGED: ("true", False), cf.STATE: ("sidecar", True)} if shown else {}
    )


def test_the_sidecars_command_is_shown_the_state_of_a_group_without_an_order() -> None:
    """Kafka's own tools are shown what Kafka shows of it."""
    wanted = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(cf.GROUP, "g-1", None)])
    answer = dc.DescribeConfigsResponse(results=[dc.DescribeConfigsResult(Code.NONE, None, cf.GROUP, "g-1")])
    p = Play(Api.DESCRIBE_CONFIGS, wanted, 4, client_id=cf.CLI_CLIENT).asks().broker(answer)
    told = {cf.STATE: "sidecar", cf.EPOCH: "7"}
    p.coordinates(DescribeSettings("", ("g-1",))).coordinator(SettingsReply(groups={"g-1": ()}, moves={"g-1": told}))
    (result,) = dc.DescribeConfigsResponse.decode(4, p.gives()).results
    assert {c.name: c.value for c in result.configs} == told
