"""IncrementalAlterConfigs, AlterConfigs, DescribeConfigs, ListConfigResources, where they name managed groups.

A change is shown to the broker first, as `validate_only`: its authorizer and its own checks speak before ours. What
is ours goes to the state topic, whose tail brings it to every sidecar; the rest goes on to the broker.
"""

from __future__ import annotations

from sidecar.api import configs as pc
from sidecar.core import configs as cf
from sidecar.core.errors import Code, CoordinatorError
from sidecar.proxy.connection import Got
from sidecar.runtime.configs import FIELDS, Configs
from sidecar.runtime.front import Front
from sidecar.runtime.host import now
from sidecar.runtime.session import Session
from sidecar.runtime.unfenced import append_unfenced
from sidecar.runtime.writer import WriteLost
from sidecar.wire.apis import Api, response_flexible
from sidecar.wire.frames import response_body
from sidecar.wire.generated import alter_configs as al
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_config_resources as lr

GROUP_SINCE = 1
"""ListConfigResources v0 knew client metrics only."""
Errors = dict[tuple[int, str], tuple[int, str | None]]


def _ours(front: Front, resource_type: int, name: str) -> bool:
    return resource_type == pc.GROUP and front.managed(name)


async def _incremental(
    front: Front, session: Session, got: Got, resources: list[ia.AlterConfigsResource], validate_only: bool
) -> Errors:
    req = ia.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    frame = await front.ask(session, got, Api.INCREMENTAL_ALTER_CONFIGS, 1, req.encode(1), flexible=True)
    res = ia.IncrementalAlterConfigsResponse.decode(1, frame, response_body(frame, True))
    return {(r.resource_type, r.resource_name): (r.error_code, r.error_message) for r in res.responses}


async def _alter(
    front: Front, session: Session, got: Got, resources: list[ia.AlterConfigsResource], validate_only: bool
) -> Errors:
    """Error by resource, as the broker would answer."""
    host, configs = front.host, front.configs
    assert host is not None
    errors: Errors = {}
    changes: dict[tuple[int, str], pc.Change] = {}
    for r in resources:
        key = (r.resource_type, r.resource_name)
        try:
            changes[key] = change = pc.split(r, configs.at_broker(r.resource_name))
            if change.ours and r.resource_type == pc.GROUP:
                after = {**configs.own(r.resource_name), **change.ours}
                cf.validate({n: v for n, v in after.items() if v is not None}, configs.effective())
            if r.resource_type == pc.BROKER and (value := change.ours.get(cf.BROKER_OFFLOAD)) is not None:
                cf.parse(cf.OFFLOAD, value)
        except CoordinatorError as exc:
            errors[key] = (exc.code, exc.message)
    # The broker's word comes first: who may not change a group learns nothing of its settings.
    theirs = [ia.AlterConfigsResource(t, n, c.theirs) for (t, n), c in changes.items()]
    theirs += [ia.AlterConfigsResource(t, n, []) for t, n in errors]
    said = await _incremental(front, session, got, theirs, True)
    for key, (code, message) in said.items():
        if code != Code.NONE and (code not in (Code.UNSUPPORTED_VERSION, Code.INVALID_REQUEST) or key not in errors):
            errors[key] = (code, message)
    good = [k for k in changes if k not in errors]
    if not validate_only:
        onward = [ia.AlterConfigsResource(*k, changes[k].theirs) for k in good if changes[k].theirs]
        if onward:
            errors.update({k: e for k, e in (await _incremental(front, session, got, onward, False)).items() if e[0]})
        for t, name in good:
            if (t, name) not in errors and changes[(t, name)].ours:
                try:
                    await _store(front, configs, t, name, changes[(t, name)].ours, session.host)
                except WriteLost as exc:
                    errors[(t, name)] = (Code.REQUEST_TIMED_OUT, str(exc))
        front.settings_changed()
    return errors


async def _store(
    front: Front, configs: Configs, resource_type: int, name: str, ours: dict[str, str | None], client: str
) -> None:
    group_id = name if resource_type == pc.GROUP else ""
    assert front.host is not None
    records = []
    for key, value in ours.items():
        sub_id = key if group_id else f"{name}/{key}"
        revision = configs.revision(group_id, sub_id) + 1
        why = f"changed by {client}"
        records.append(configs.codec.config(group_id, sub_id, value, now().wall_ms, revision, why))
    await append_unfenced(front.host, configs.partition_of(group_id) if group_id else 0, records)


def _concerns_us(front: Front, resources: list[ia.AlterConfigsResource] | list[al.AlterConfigsResource]) -> bool:
    return any(
        _ours(front, r.resource_type, r.resource_name)
        or (r.resource_type == pc.BROKER and any(c.name == cf.BROKER_OFFLOAD for c in r.configs))
        for r in resources
    )


async def incremental_alter_configs(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    req = ia.IncrementalAlterConfigsRequest.decode(got.version, got.frame, pos)
    if front.host is None or not _concerns_us(front, req.resources):
        await _pass_on(front, session, got, any(r.resource_type == pc.BROKER for r in req.resources))
        return
    errors = await _alter(front, session, got, req.resources, req.validate_only)
    res = ia.IncrementalAlterConfigsResponse()
    for r in req.resources:
        code, message = errors.get((r.resource_type, r.resource_name), (0, None))
        res.responses.append(ia.AlterConfigsResourceResponse(code, message, r.resource_type, r.resource_name))
    front.body_reply(session, got, res.encode(got.version))


async def alter_configs(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    """The old way (before KIP-339): what is not named goes back to its default."""
    req = al.AlterConfigsRequest.decode(got.version, got.frame, pos)
    if front.host is None or not any(_ours(front, r.resource_type, r.resource_name) for r in req.resources):
        await _pass_on(front, session, got, any(r.resource_type == pc.BROKER for r in req.resources))
        return
    resources = []
    for r in req.resources:
        ops = [ia.AlterableConfig(c.name, pc.SET, c.value) for c in r.configs]
        if _ours(front, r.resource_type, r.resource_name):
            named = {c.name for c in r.configs}
            gone = front.configs.own(r.resource_name).keys() - named
            ops += [ia.AlterableConfig(n, pc.DELETE, None) for n in sorted(gone)]
        resources.append(ia.AlterConfigsResource(r.resource_type, r.resource_name, ops))
    errors = await _alter(front, session, got, resources, req.validate_only)
    res = al.AlterConfigsResponse()
    for r in req.resources:
        code, message = errors.get((r.resource_type, r.resource_name), (0, None))
        res.responses.append(al.AlterConfigsResourceResponse(code, message, r.resource_type, r.resource_name))
    front.body_reply(session, got, res.encode(got.version))


async def _pass_on(front: Front, session: Session, got: Got, brokers: bool) -> None:
    """As it is; a change of broker settings takes effect here at once."""
    if not brokers:
        session.forward(got)
        return
    frame = await session.ask(got.token, got.frame)
    front.settings_changed()
    session.reply(got.token, frame)


async def describe_configs(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    req = dc.DescribeConfigsRequest.decode(got.version, got.frame, pos)
    wanted = {
        r.resource_name: r.configuration_keys for r in req.resources if _ours(front, r.resource_type, r.resource_name)
    }
    if not wanted:
        session.forward(got)
        return
    frame = await session.ask(got.token, got.frame)
    res = dc.DescribeConfigsResponse.decode(
        got.version, frame, response_body(frame, response_flexible(got.api_key, got.version))
    )
    configs = front.configs
    defaults = front.settings.consumer.model_fields
    effective = configs.effective()
    for result in res.results:
        if (
            not _ours(front, result.resource_type, result.resource_name)
            or result.error_code == Code.GROUP_AUTHORIZATION_FAILED
        ):
            continue
        result.error_code, result.error_message = Code.NONE, None
        own = configs.own(result.resource_name)
        entries = []
        for s in cf.SETTINGS.values():
            value = effective[s.broker_name]
            text, plain = cf.text(value), cf.text(defaults[FIELDS[s.broker_name]].default)
            _, source = configs.broker_value(s.broker_name)
            if source == pc.DEFAULT and text != plain:
                source = pc.STATIC
            entries.append(
                pc.entry(s, own.get(s.name), (text, source), plain, req.include_synonyms, req.include_documentation)
            )
        pc.overlay(result, wanted[result.resource_name], entries)
    front.body_reply(session, got, res.encode(got.version))


async def list_config_resources(front: Front, session: Session, got: Got, client_id: str | None, pos: int) -> None:
    """Those of managed groups beside the broker's."""
    req = lr.ListConfigResourcesRequest.decode(got.version, got.frame, pos)
    if got.version < GROUP_SINCE or (req.resource_types and pc.GROUP not in req.resource_types) or not front.managing:
        session.forward(got)
        return
    frame = await session.ask(got.token, got.frame)
    res = lr.ListConfigResourcesResponse.decode(
        got.version, frame, response_body(frame, response_flexible(got.api_key, got.version))
    )
    if res.error_code == Code.NONE:
        there = {r.resource_name for r in res.config_resources if r.resource_type == pc.GROUP}
        mine = [g for g in front.configs.configured() if g not in there]
        res.config_resources += [lr.ConfigResource(g, pc.GROUP) for g in mine]
    front.body_reply(session, got, res.encode(got.version))
