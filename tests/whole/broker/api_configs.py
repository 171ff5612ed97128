"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.wire.generated import alter_configs as ac
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_config_resources as lr
from tests.whole.broker import rights as rt
from tests.whole.broker.api_cluster import at_controller, legal
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.image import BROKER, GROUP, TOPIC
from tests.whole.broker.node import Node
from tests.whole.broker.settings import BOOLEAN, DOUBLE, INT, LIST, LONG, SHORT, Known, known

LOGGER = 8
CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT_MS = 30_000
GROUP_RULES = {
    "consumer.session.timeout.ms": ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
}
"""The broker's settings between which a group's own value must be."""


# ---- DescribeConfigs ----------------------------------------------------------------------------------------------
def describe_configs(ctx: Context, req: dc.DescribeConfigsRequest, reply: Reply) -> None:
    denied, found = [], []
    for r in req.resources:
        if _may_see(ctx, r.resource_type, r.resource_name):
            found.append(_describe(ctx, r, req.include_synonyms))
        else:
            code = _refusal(r.resource_type)
            denied.append(dc.DescribeConfigsResult(code, _text(code), r.resource_type, r.resource_name))
    reply(dc.DescribeConfigsResponse(0, [*found, *denied]))


def _may_see(ctx: Context, kind: int, name: str) -> bool:
    if kind == TOPIC:
        return ctx.may(rt.DESCRIBE_CONFIGS, rt.TOPIC, name)
    if kind == GROUP:
        return ctx.may(rt.DESCRIBE_CONFIGS, rt.GROUP, name)
    return ctx.may(rt.DESCRIBE_CONFIGS, rt.CLUSTER, rt.CLUSTER_NAME)


def _refusal(kind: int) -> Err:
    if kind == TOPIC:
        return Err.TOPIC_AUTHORIZATION_FAILED
    return Err.GROUP_AUTHORIZATION_FAILED if kind == GROUP else Err.CLUSTER_AUTHORIZATION_FAILED


def _text(code: Err) -> str:
    if code == Err.TOPIC_AUTHORIZATION_FAILED:
        return "Topic authorization failed."
    return "Group authorization failed." if code == Err.GROUP_AUTHORIZATION_FAILED else "Cluster authorization failed."


def _describe(ctx: Context, r: dc.DescribeConfigsResource, synonyms: bool) -> dc.DescribeConfigsResult:
    node, kind, name = ctx.node, r.resource_type, r.resource_name
    result = dc.DescribeConfigsResult(Err.NONE, "", kind, name)
    try:
        if kind == TOPIC:
            if not legal(name):
                raise Refused(Err.INVALID_TOPIC_EXCEPTION, None)
            if name not in node.image.topics:
                result.error_code = Err.UNKNOWN_TOPIC_OR_PARTITION
                return result
        elif kind == BROKER:
            _check_broker(node, name)
        elif kind == GROUP:
            if not name:
                raise Refused(Err.INVALID_REQUEST, "Group name must not be empty")
        else:
            raise Refused(Err.INVALID_REQUEST, f"Unsupported resource type: {kind}")
    except Refused as exc:
        result.error_code, result.error_message = exc.code, exc.text
        return result
    wanted = None if r.configuration_keys is None else set(r.configuration_keys)
    specs = [s for s in known(kind).values() if wanted is None or s.name in wanted]
    result.configs = [c for s in specs if (c := _entry(node, kind, name, s, synonyms)) is not None]
    return result


def _check_broker(node: Node, name: str) -> None:
    if name and not (name.lstrip("-").isdigit() and int(name) == node.node_id):
        if not name.lstrip("-").isdigit():
            raise Refused(Err.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        text = f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}"
        raise Refused(Err.INVALID_REQUEST, text)


def _entry(node: Node, kind: int, name: str, spec: Known, synonyms: bool) -> dc.DescribeConfigsResourceResult | None:
    if kind == BROKER:
        layers = [(spec.name, value, source) for value, source in node.settings.layers(spec.name)]
        if not name:  # what is set for all brokers
            layers = [layer for layer in layers if layer[2] == 3]
            if not layers:
                return None
    else:
        layers = list(node.settings.of(kind, name, spec.name))
    value, source = (layers[0][1], layers[0][2]) if layers else (spec.default, 5)
    told = [dc.DescribeConfigsSynonym(*layer) for layer in layers] if synonyms else []
    shown = None if spec.sensitive else value
    return dc.DescribeConfigsResourceResult(
        name=spec.name,
        value=shown,
        read_only=spec.read_only,
        config_source=source,
        is_sensitive=spec.sensitive,
        synonyms=told,
        config_type=spec.value_type,
        documentation=None,
    )


# ---- ListConfigResources ------------------------------------------------------------------------------------------
def list_config_resources(ctx: Context, req: lr.ListConfigResourcesRequest, reply: Reply) -> None:
    if not ctx.may(rt.DESCRIBE_CONFIGS, rt.CLUSTER, rt.CLUSTER_NAME):
        reply(lr.ListConfigResourcesResponse(0, Err.CLUSTER_AUTHORIZATION_FAILED))
        return
    types = (
        [CLIENT_METRICS] if ctx.version == 0 else req.resource_types or [GROUP, CLIENT_METRICS, LOGGER, BROKER, TOPIC]
    )
    if any(t not in (GROUP, CLIENT_METRICS, LOGGER, BROKER, TOPIC) for t in types):
        reply(lr.ListConfigResourcesResponse(0, Err.UNSUPPORTED_VERSION))
        return
    image = ctx.node.image
    found: list[lr.ConfigResource] = []
    if GROUP in types:
        found += [lr.ConfigResource(name, GROUP) for kind, name in image.configs if kind == GROUP]
    for kind in (LOGGER, BROKER):
        if kind in types:
            found += [lr.ConfigResource(str(n), kind) for n in sorted(image.alive)]
    if TOPIC in types:
        found += [lr.ConfigResource(name, TOPIC) for name in image.topics]
    reply(lr.ListConfigResourcesResponse(0, Err.NONE, found))


# ---- AlterConfigs ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Change:
    name: str
    operation: int
    value: str | None


def alter_incrementally(ctx: Context, req: ia.IncrementalAlterConfigsRequest, reply: Reply) -> None:
    asked = [
        (r.resource_type, r.resource_name, [_Change(c.name, c.config_operation, c.value) for c in r.configs])
        for r in req.resources
    ]

    def ask() -> ia.IncrementalAlterConfigsResponse:
        rows = [_alter(ctx, *a, req.validate_only, False) for a in asked]
        return ia.IncrementalAlterConfigsResponse(0, [ia.AlterConfigsResourceResponse(*row) for row in rows])

    late = [ia.AlterConfigsResourceResponse(Err.REQUEST_TIMED_OUT, None, k, n) for k, n, _ in asked]
    at_controller(ctx, TIMEOUT_MS, ask, ia.IncrementalAlterConfigsResponse(0, late), reply)


def alter_configs(ctx: Context, req: ac.AlterConfigsRequest, reply: Reply) -> None:
    asked = [
        (r.resource_type, r.resource_name, [_Change(c.name, SET, c.value) for c in r.configs]) for r in req.resources
    ]

    def ask() -> ac.AlterConfigsResponse:
        rows = [_alter(ctx, *a, req.validate_only, True) for a in asked]
        return ac.AlterConfigsResponse(0, [ac.AlterConfigsResourceResponse(*row) for row in rows])

    late = [ac.AlterConfigsResourceResponse(Err.REQUEST_TIMED_OUT, None, k, n) for k, n, _ in asked]
    at_controller(ctx, TIMEOUT_MS, ask, ac.AlterConfigsResponse(0, late), reply)


def _alter(
    ctx: Context, kind: int, name: str, changes: Sequence[_Change], check_only: bool, whole: bool
) -> tuple[int, str | None, int, str]:
    controller = ctx.node.cluster.controller
    try:
        may = {TOPIC: (rt.TOPIC, name), GROUP: (rt.GROUP, name)}.get(kind, (rt.CLUSTER, rt.CLUSTER_NAME))
        if not ctx.may(rt.ALTER_CONFIGS, *may):
            raise Refused(_refusal(kind), _text(_refusal(kind)))
        if kind == GROUP and not name:
            raise Refused(Err.INVALID_REQUEST, "Default group resources are not allowed.")
        own = {} if whole else dict(controller.image.configs.get((kind, name), {}))
        for c in changes:
            _apply(ctx.node, kind, own, c)
        if kind == GROUP:
            _check_group(ctx.node, own)
        if kind == TOPIC and name not in controller.image.topics:
            raise Refused(Err.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if not check_only:
            controller.set_configs((kind, name), own)
    except Refused as exc:
        return exc.code, exc.text, kind, name
    return Err.NONE, None, kind, name


def _apply(node: Node, kind: int, own: dict[str, str], c: _Change) -> None:
    if c.operation == DELETE or (c.operation == SET and c.value is None):
        own.pop(c.name, None)
        return
    spec = known(kind).get(c.name)
    if spec is None:
        what = {TOPIC: "topic", GROUP: "group"}.get(kind, "")
        text = f"Unknown {what} config name: {c.name}" if what else None
        raise Refused(Err.INVALID_CONFIG if what else Err.INVALID_REQUEST, text)
    if c.operation in (APPEND, SUBTRACT):
        verb = "APPEND" if c.operation == APPEND else "SUBTRACT"
        if spec.value_type != LIST:
            text = f"Can't {verb} to key {c.name} because its type is not LIST."
            raise Refused(Err.INVALID_CONFIG, text)
        parts = [p for p in own.get(c.name, spec.default or "").split(",") if p]
        given = [p for p in (c.value or "").split(",") if p]
        if c.operation == APPEND:
            parts += [p for p in given if p not in parts]
        else:
            parts = [p for p in parts if p not in given]
        own[c.name] = ",".join(parts)
        return
    own[c.name] = _checked(spec, c.value or "")


def _checked(spec: Known, value: str) -> str:
    """In the words of ConfigDef. Raises Refused."""
    words = {INT: "int", SHORT: "short", LONG: "long", DOUBLE: "double", BOOLEAN: "boolean"}
    text = f"Invalid value {value} for configuration {spec.name}: "
    try:
        if spec.value_type in (INT, SHORT, LONG):
            int(value.strip())
        elif spec.value_type == DOUBLE:
            float(value.strip())
    except ValueError:
        kind = "number" if spec.value_type == DOUBLE else f"number of type {words[spec.value_type].upper()}"
        raise Refused(Err.INVALID_CONFIG, f"{text}Not a {kind}") from None
    if spec.value_type == BOOLEAN and value.strip().lower() not in ("true", "false"):
        raise Refused(Err.INVALID_CONFIG, f"{text}Expected value to be either true or false")
    return value


def _check_group(node: Node, own: dict[str, str]) -> None:
    """GroupConfig.validateValues for the settings of consumer groups."""
    for name, (least, most) in GROUP_RULES.items():
        if name not in own:
            continue
        value, low, high = int(own[name]), node.settings.number(least), node.settings.number(most)
        if value < low:
            raise Refused(Err.INVALID_CONFIG, f"{name} must be greater than or equal to {least}")
        if value > high:
            raise Refused(Err.INVALID_CONFIG, f"{name} must be less than or equal to {most}")
    session, beat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    values = [int(own.get(n) or node.settings.number(f"group.{n}")) for n in (session, beat)]
    if values[0] <= values[1]:
        raise Refused(Err.INVALID_CONFIG, f"{session} must be greater than {beat}")
