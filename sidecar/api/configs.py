"""DescribeConfigs (api 32), AlterConfigs (api 33), IncrementalAlterConfigs (api 44), ListConfigResources (api 74): as
far as they concern managed groups.

DescribeConfigs
v0: the response shows whether a value is the default; Kafka 4 no longer has this version.
v1: it has the source of a value, and its synonyms.
v3: it adds the type of a value and its documentation (KIP-569). v4 is flexible.

AlterConfigs: v2 is flexible. IncrementalAlterConfigs (KIP-339): v1 is flexible.
ListConfigResources: v0 lists client metrics only; v1 takes the types of resources (KIP-1142).

Some settings are the sidecars' own for every group, also for groups of brokers: the order to move a group
(`sidecar.managed`), a forced rebalance (`sidecar.rebalance`), and the patterns of groups (`sidecar.groups.include`,
`.exclude` of all brokers). Where the broker knows no settings of groups, they need DELETE instead of ALTER_CONFIGS.

A change is shown to the broker first, as `validate_only`: its authorizer and its checks come before the sidecar's. The
sidecars' settings go to the coordinator, which keeps them in the state topic; the rest goes on to the broker. (Kafka's
ConfigHelper, ConfigAdminManager, ConfigurationControlManager.)
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Forward, Handler, SendToCoordinator, Want, ask, coordinate, upstream, who
from sidecar.api.config_changes import (
    DELETE,
    SET,
    Change,
    Errors,
    Key,
    changes_here,
    divided,
    is_move,
    is_ours,
    only_moves,
)
from sidecar.api.owners_group_guard import guards_owners_group
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code, fitting
from sidecar.link.messages import (
    AlterReply,
    AlterSettings,
    ConfiguredGroups,
    ConfiguredReply,
    DescribeSettings,
    SettingChange,
    SettingsPassed,
    SettingsReply,
    SettingValue,
)
from sidecar.wire.apis import Api
from sidecar.wire.frames import response_body
from sidecar.wire.generated import alter_configs as al
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_config_resources as lr

STRING = 2
TYPES = {"boolean": 1, "string": STRING, "int": 3, "list": 7}
NO_GROUP_SETTINGS = (Code.INVALID_REQUEST, Code.UNSUPPORTED_VERSION)
"""Error codes of brokers that know no settings of groups."""
TEXT_OF_RIGHTS = "To move or rebalance a group needs DELETE of the group here, as the broker has no settings of groups."
GROUP_SINCE = 1
"""First version of ListConfigResources that lists more than client metrics."""
Altered = Sequence[ia.AlterConfigsResourceResponse | al.AlterConfigsResourceResponse]


# ---- changes ----------------------------------------------------------------------------------------------------
@guards_owners_group(
    ia.IncrementalAlterConfigsRequest, ia.IncrementalAlterConfigsResponse, "responses", ia.AlterConfigsResourceResponse
)
def incremental_alter_configs(call: Call) -> Handler:
    req = yield from slices.request(call, ia.IncrementalAlterConfigsRequest)
    groups = yield from _groups(call, req.resources)
    offload = yield from slices.chosen(req.resources, _is_offload)
    moves = yield from slices.chosen(req.resources, _moves)
    if not groups and not offload and not moves:
        return (yield from _pass_on(call, any(r.resource_type == cf.BROKER for r in req.resources)))
    here = yield from slices.chosen(req.resources, lambda r: changes_here(call, r))
    settings = yield from _in_force((r.resource_name for r in here), own=True)
    errors = yield from _alter(call, req.resources, req.validate_only, settings)

    def answer(r: ia.AlterConfigsResource) -> ia.AlterConfigsResourceResponse:
        code, message = errors.get((r.resource_type, r.resource_name), (Code.NONE, None))
        return ia.AlterConfigsResourceResponse(code, message, r.resource_type, r.resource_name)

    responses = yield from slices.made(req.resources, answer)
    return (yield from slices.encoded(ia.IncrementalAlterConfigsResponse(responses=responses), call.version))


@guards_owners_group(al.AlterConfigsRequest, al.AlterConfigsResponse, "responses", al.AlterConfigsResourceResponse)
def alter_configs(call: Call) -> Handler:
    """Handles changes as before KIP-339: a setting that is not named gets its default back, at the broker, too."""
    req = yield from slices.request(call, al.AlterConfigsRequest)
    groups = yield from _groups(call, req.resources)
    if not groups and not (yield from slices.chosen(req.resources, _moves)):
        return (yield from _pass_on(call, any(r.resource_type == cf.BROKER for r in req.resources)))
    settings = yield from _in_force(groups, own=True)
    ours = set(groups)

    def in_full(r: al.AlterConfigsResource) -> ia.AlterConfigsResource:
        ops = [ia.AlterableConfig(c.name, SET, c.value) for c in r.configs]
        if r.resource_type == cf.GROUP and r.resource_name in ours:
            own = {s.name for s in settings.groups.get(r.resource_name, ()) if s.own is not None}
            unnamed = sorted(own - {c.name for c in r.configs})
            ops += [ia.AlterableConfig(name, DELETE, None) for name in unnamed]
        return ia.AlterConfigsResource(r.resource_type, r.resource_name, ops)

    resources = yield from slices.made(req.resources, in_full)
    yield from slices.pause(call)
    errors = yield from _alter(call, resources, req.validate_only, settings, in_whole=True)

    def answer(r: al.AlterConfigsResource) -> al.AlterConfigsResourceResponse:
        code, message = errors.get((r.resource_type, r.resource_name), (Code.NONE, None))
        return al.AlterConfigsResourceResponse(code, message, r.resource_type, r.resource_name)

    responses = yield from slices.made(req.resources, answer)
    return (yield from slices.encoded(al.AlterConfigsResponse(responses=responses), call.version))


def _groups(
    call: Call, resources: Iterable[ia.AlterConfigsResource | al.AlterConfigsResource]
) -> Generator[Want, Any, list[str]]:
    """Returns the managed groups among these resources."""
    ours = yield from slices.chosen(resources, lambda r: is_ours(call, r.resource_type, r.resource_name))
    return [r.resource_name for r in ours]


def _moves(r: ia.AlterConfigsResource | al.AlterConfigsResource) -> bool:
    return any(is_move(r.resource_type, c.name) for c in r.configs)


def _is_offload(r: ia.AlterConfigsResource) -> bool:
    return r.resource_type == cf.BROKER and any(c.name in cf.BROKER_OFFLOADS for c in r.configs)


def _pass_on(call: Call, brokers: bool) -> Generator[Want, Any, bytes | Forward]:
    """Passes the request as it is. A change of broker settings takes effect here at once."""
    if not brokers:
        return FORWARD
    body = yield from upstream(call)
    yield SendToCoordinator(SettingsPassed())
    return body


def _in_force(
    groups: Iterable[str], even_if_none: bool = False, own: bool = False
) -> Generator[Want, Any, SettingsReply]:
    """Returns the settings of these groups; `own`: of those that have settings of their own."""
    wanted = tuple(dict.fromkeys(groups))
    if not wanted and not even_if_none:
        return SettingsReply()
    reply: SettingsReply = yield from coordinate(DescribeSettings("", wanted, own))
    return reply


def _alter(
    call: Call,
    resources: Sequence[ia.AlterConfigsResource],
    validate_only: bool,
    settings: SettingsReply,
    in_whole: bool = False,
) -> Generator[Want, Any, Errors]:
    """Makes the changes and returns a broker's errors. `in_whole`: the broker resets settings that are not named."""
    changes, errors, duplicates = yield from divided(call, resources, settings, in_whole)
    yield from slices.pause(call)
    errors |= yield from _settle(call, {k: c for k, c in changes.items() if k not in errors}, validate_only=True)
    # The broker's answer comes first: a client that may not change a group learns nothing of its settings. The broker
    # refuses resources that are named twice before it asks its authorizer.
    to_validate = [(k, c.theirs) for k, c in changes.items() if k not in errors]
    to_validate += [(k, []) for k in errors if k not in duplicates]
    shown = yield from slices.made(to_validate, _resource)
    answers = (yield from _sent(call, shown, True, in_whole)) if shown else {}
    without_settings: set[Key] = set()
    for key, (code, message) in answers.items():
        if code in NO_GROUP_SETTINGS and key not in errors and only_moves(key, changes[key]):
            code = yield from access.refused_delete(call, key[1])
            message = TEXT_OF_RIGHTS if code != Code.NONE else None
            without_settings.add(key)
        if code != Code.NONE and (code not in (Code.UNSUPPORTED_VERSION, Code.INVALID_REQUEST) or key not in errors):
            errors[key] = (code, message)
    if validate_only:
        return errors
    good = {k: c for k, c in changes.items() if k not in errors}
    reset = {k for k in good if in_whole and is_ours(call, *k) and k not in without_settings}
    due = [(k, c.theirs) for k, c in good.items() if c.theirs or k in reset]
    onward = yield from slices.made(due, _resource)
    if onward:
        answers = yield from _sent(call, onward, False, in_whole)
        errors |= {k: error for k, error in answers.items() if error[0] != Code.NONE}
    errors |= yield from _settle(call, {k: c for k, c in good.items() if k not in errors}, validate_only=False)
    yield SendToCoordinator(SettingsPassed())
    return errors


def _resource(change: tuple[Key, list[ia.AlterableConfig]]) -> ia.AlterConfigsResource:
    return ia.AlterConfigsResource(*change[0], change[1])


def _settle(call: Call, changes: Mapping[Key, Change], validate_only: bool) -> Generator[Want, Any, Errors]:
    """Lets the coordinator check the sidecars' settings, and unless `validate_only` write them. Returns errors."""
    ours = tuple(SettingChange(*key, change.ours) for key, change in changes.items() if change.ours)
    if not ours:
        return {}
    reply: AlterReply = yield from coordinate(AlterSettings("", ours, validate_only, who(call)))
    if reply.code != Code.NONE:
        return {(c.resource_type, c.name): (reply.code, reply.message) for c in ours}
    refused = {(c.resource_type, c.name): reply.refused.get(f"{c.resource_type}/{c.name}") for c in ours}
    return {key: error for key, error in refused.items() if error is not None}


def _sent(
    call: Call, resources: list[ia.AlterConfigsResource], validate_only: bool, in_whole: bool
) -> Generator[Want, Any, Errors]:
    """Returns the broker's answers by resource. A broker without settings of groups is asked for the others only."""
    unknown: Errors = {}
    if not access.knows_group_settings(call):
        groups = yield from slices.chosen(resources, lambda r: r.resource_type == cf.GROUP)
        unknown = {(cf.GROUP, r.resource_name): _unknown_type(r.resource_name) for r in groups}
        resources = yield from slices.chosen(resources, lambda r: r.resource_type != cf.GROUP)
        if not resources:
            return unknown
    responses = yield from (_in_whole if in_whole else _incremental)(call, resources, validate_only)
    answers = yield from slices.made(
        responses, lambda r: ((r.resource_type, r.resource_name), (r.error_code, r.error_message))
    )
    return unknown | dict(answers)


def _unknown_type(name: str) -> tuple[int, str]:
    """Returns the answer of brokers that know no settings of groups."""
    return Code.INVALID_REQUEST, fitting(f"Unexpected resource type UNKNOWN for resource {name}")


def _incremental(
    call: Call, resources: list[ia.AlterConfigsResource], validate_only: bool
) -> Generator[Want, Any, Altered]:
    req = ia.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    body = yield from slices.encoded(req, 1)
    frame = yield from ask(call, Api.INCREMENTAL_ALTER_CONFIGS, 1, body, True, call.client_id)
    res = yield from slices.decoded(ia.IncrementalAlterConfigsResponse, 1, frame, response_body(frame, True))
    return res.responses


def _in_whole(
    call: Call, resources: list[ia.AlterConfigsResource], validate_only: bool
) -> Generator[Want, Any, Altered]:
    """Sends an AlterConfigs request: the broker resets what is not named."""

    def changed(r: ia.AlterConfigsResource) -> al.AlterConfigsResource:
        named = [al.AlterableConfig(c.name, c.value) for c in r.configs if c.config_operation != DELETE]
        return al.AlterConfigsResource(r.resource_type, r.resource_name, named)

    req = al.AlterConfigsRequest(resources=(yield from slices.made(resources, changed)), validate_only=validate_only)
    body = yield from slices.encoded(req, call.version)
    res_body = yield from upstream(call, body)
    res = yield from slices.decoded(al.AlterConfigsResponse, call.version, res_body)
    return res.responses


# ---- descriptions -----------------------------------------------------------------------------------------------
@guards_owners_group(dc.DescribeConfigsRequest, dc.DescribeConfigsResponse, "results", dc.DescribeConfigsResult)
def describe_configs(call: Call) -> Handler:
    req = yield from slices.request(call, dc.DescribeConfigsRequest)
    ours = yield from slices.chosen(req.resources, lambda r: is_ours(call, r.resource_type, r.resource_name))
    wanted = {r.resource_name: r.configuration_keys for r in ours}
    movable = yield from slices.chosen(req.resources, lambda r: _moved(call, r))
    moved = {(r.resource_type, r.resource_name): r.configuration_keys for r in movable}
    if not wanted and not moved:
        return FORWARD
    res = yield from _at_broker(call, req)
    managed = yield from slices.chosen(res.results, lambda r: is_ours(call, *_key(r)))
    others = yield from slices.chosen(res.results, lambda r: _key(r) in moved)
    yield from _where_brokers_know_none(call, [*managed, *others])
    results = yield from slices.chosen(managed, lambda r: r.error_code == Code.NONE)
    others = yield from slices.chosen(others, lambda r: r.error_code == Code.NONE)
    named = [r.resource_name for r in (*results, *others) if r.resource_type == cf.GROUP]
    settings = yield from _in_force(named, bool(others))

    def fill(result: dc.DescribeConfigsResult) -> None:
        if result.error_code != settings.code:
            result.error_code, result.error_message = settings.code, settings.message
        if settings.code != Code.NONE:
            result.configs = []
            return
        values = settings.groups.get(result.resource_name, ())
        entries = [_entry(v, req.include_synonyms, req.include_documentation) for v in values]
        _overlay(result, wanted.get(result.resource_name), entries)

    def place(result: dc.DescribeConfigsResult) -> None:
        source = cf.GROUP_CONFIG if result.resource_type == cf.GROUP else cf.DYNAMIC_DEFAULT
        entries = [_move_entry(n, v, source) for n, v in settings.moves.get(result.resource_name, {}).items()]
        _overlay(result, moved[(result.resource_type, result.resource_name)], entries)

    yield from slices.each(results, fill)
    yield from slices.each(others if settings.code == Code.NONE else (), place)
    return (yield from slices.encoded(res, call.version))


def _key(r: dc.DescribeConfigsResult | dc.DescribeConfigsResource) -> Key:
    return r.resource_type, r.resource_name


def _at_broker(call: Call, req: dc.DescribeConfigsRequest) -> Generator[Want, Any, dc.DescribeConfigsResponse]:
    """Returns the broker's answer. A broker without settings of groups is asked for the others only."""
    if access.knows_group_settings(call):
        body = yield from upstream(call)
        return (yield from slices.decoded(dc.DescribeConfigsResponse, call.version, body))
    others = yield from slices.chosen(req.resources, lambda r: r.resource_type != cf.GROUP)
    res = dc.DescribeConfigsResponse()
    if others:
        forwarded = dc.DescribeConfigsRequest(others, req.include_synonyms, req.include_documentation)
        body = yield from upstream(call, (yield from slices.encoded(forwarded, call.version)))
        res = yield from slices.decoded(dc.DescribeConfigsResponse, call.version, body)
    by_key = {_key(r): r for r in res.results}

    def result(r: dc.DescribeConfigsResource) -> dc.DescribeConfigsResult:
        refused = dc.DescribeConfigsResult(*_unknown_type(r.resource_name), *_key(r))
        return by_key.get(_key(r), refused)

    res.results = yield from slices.made(req.resources, result)
    return res


def _where_brokers_know_none(call: Call, results: Iterable[dc.DescribeConfigsResult]) -> Generator[Want, Any, None]:
    """Replaces the refusals of a broker that knows no settings of groups, and so no right to them: DESCRIBE of the
    group counts instead."""
    unknown = yield from slices.chosen(
        results, lambda r: r.resource_type == cf.GROUP and r.error_code in NO_GROUP_SETTINGS
    )
    hidden = yield from access.hidden_groups(call, dict.fromkeys(r.resource_name for r in unknown))

    def judge(r: dc.DescribeConfigsResult) -> None:
        refused = r.resource_name in hidden
        r.error_code, r.error_message = (Code.GROUP_AUTHORIZATION_FAILED if refused else Code.NONE), None

    yield from slices.each(unknown, judge)


def _moved(call: Call, r: dc.DescribeConfigsResource) -> bool:
    """Returns whether this resource may have settings that only sidecars know."""
    if r.resource_type == cf.GROUP:
        return call.scope.moved(r.resource_name) or call.client_id == cf.CLI_CLIENT
    return r.resource_type == cf.BROKER and not r.resource_name and call.scope.moved("")


def _move_entry(name: str, value: str, source: int) -> dc.DescribeConfigsResourceResult:
    read_only = name in (cf.STATE, cf.WHY, cf.EPOCH)
    return dc.DescribeConfigsResourceResult(
        name=name, value=value, read_only=read_only, config_source=source, config_type=STRING
    )


def list_config_resources(call: Call) -> Handler:
    """Lists managed groups with settings of their own beside the broker's resources."""
    req = yield from slices.request(call, lr.ListConfigResourcesRequest)
    concerns_groups = not req.resource_types or cf.GROUP in req.resource_types
    own = call.scope.own
    if call.version < GROUP_SINCE or not concerns_groups or not (call.scope.managing or own.group):
        return FORWARD
    body = yield from upstream(call)
    res = yield from slices.decoded(lr.ListConfigResourcesResponse, call.version, body)
    if res.error_code != Code.NONE:
        return body
    res.config_resources = [
        r for r in res.config_resources if not (r.resource_type == cf.GROUP and own.is_group(r.resource_name))
    ]
    if not call.scope.managing:
        return res.encode(call.version)
    ours: ConfiguredReply = yield from coordinate(ConfiguredGroups(""))
    if ours.code != Code.NONE:
        return lr.ListConfigResourcesResponse(error_code=ours.code).encode(call.version)
    at_broker = {r.resource_name for r in res.config_resources if r.resource_type == cf.GROUP}
    res.config_resources += [lr.ConfigResource(g, cf.GROUP) for g in ours.groups if g not in at_broker]
    return (yield from slices.encoded(res, call.version))


def _entry(v: SettingValue, synonyms: bool, documentation: bool) -> dc.DescribeConfigsResourceResult:
    s = cf.SETTINGS[v.name]
    chain: list[tuple[str, str, int]] = []
    if v.own is not None:
        chain.append((s.name, v.own, cf.GROUP_CONFIG))
    if v.source != cf.DEFAULT:
        chain.append((s.broker_name, v.broker, v.source))
    chain += [(s.broker_name, value, source) for value, source in v.hidden]
    chain.append((s.broker_name, v.default, cf.DEFAULT))
    return dc.DescribeConfigsResourceResult(
        name=s.name,
        value=v.broker if v.own is None else v.own,
        is_default=v.own is None and v.source == cf.DEFAULT,
        config_source=chain[0][2],
        synonyms=[dc.DescribeConfigsSynonym(*c) for c in chain] if synonyms else [],
        config_type=TYPES[s.kind],
        documentation=s.documentation if documentation else None,
    )


def _overlay(
    result: dc.DescribeConfigsResult,
    wanted: Collection[str] | None,
    entries: Sequence[dc.DescribeConfigsResourceResult],
) -> None:
    """Puts the sidecars' entries in the place of the broker's. The broker's documentation texts stay."""
    at = {c.name: i for i, c in enumerate(result.configs)}
    for e in entries:
        if wanted and e.name not in wanted:
            continue
        if e.name in at:
            e.documentation = result.configs[at[e.name]].documentation
            result.configs[at[e.name]] = e
        else:
            result.configs.append(e)
