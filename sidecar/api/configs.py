"""Settings in requests and answers: what of a change is the sidecar's, what the broker's; an answer with ours in it.

Pure. Source: Kafka's ConfigHelper, ConfigAdminManager, ConfigurationControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.core.configs import BROKER_OFFLOAD, SETTINGS, Setting, invalid
from sidecar.core.errors import Code, CoordinatorError
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import incremental_alter_configs as ia

BROKER, GROUP = 4, 32
"""Resource types."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, GROUP_CONFIG = 2, 3, 4, 5, 8
"""Config sources."""
TYPES = {"boolean": 1, "int": 3}
VALUE_MAX = 32_767
Value = tuple[str, int]
"""Text and source."""


@dataclass(slots=True)
class Change:
    """Of one resource. `ours`: name -> new value, None removes; `theirs`: what goes on to the broker."""

    ours: dict[str, str | None] = field(default_factory=dict)
    theirs: list[ia.AlterableConfig] = field(default_factory=list)


def split(resource: ia.AlterConfigsResource, held: Mapping[str, str]) -> Change:
    """`held`: settings of this group that the broker holds from before. Raises CoordinatorError as a broker would."""
    names = [c.name for c in resource.configs]
    if len(set(names)) < len(names):
        raise CoordinatorError(Code.INVALID_REQUEST, "Error due to duplicate config keys")
    null = [c.name for c in resource.configs if c.value is None and c.config_operation != DELETE]
    if null:
        raise CoordinatorError(Code.INVALID_REQUEST, f"Null value not supported for : {','.join(null)}")
    change = Change()
    for c in resource.configs:
        if resource.resource_type == GROUP and c.name in SETTINGS:
            if c.config_operation in (APPEND, SUBTRACT):
                verb = "APPEND" if c.config_operation == APPEND else "SUBTRACT"
                raise invalid(f"Can't {verb} to key {c.name} because its type is not LIST.")
            if c.value is not None and len(c.value) > VALUE_MAX:
                what = "The configuration value cannot be added because it exceeds the maximum value size"
                raise invalid(f"{what} of {VALUE_MAX} bytes.")
            change.ours[c.name] = None if c.config_operation == DELETE else c.value
            if c.config_operation == DELETE and c.name in held:
                change.theirs.append(c)
        else:
            if resource.resource_type == BROKER and c.name == BROKER_OFFLOAD:
                change.ours[c.name] = None if c.config_operation == DELETE else c.value
            change.theirs.append(c)
    return change


def entry(
    s: Setting, own: str | None, broker: Value, default: str, synonyms: bool, documentation: bool
) -> dc.DescribeConfigsResourceResult:
    """One setting of a group as DescribeConfigs tells it. `broker`: value and source at broker level."""
    chain: list[tuple[str, str, int]] = []
    if own is not None:
        chain.append((s.name, own, GROUP_CONFIG))
    if broker[1] != DEFAULT:
        chain.append((s.broker_name, *broker))
    chain.append((s.broker_name, default, DEFAULT))
    return dc.DescribeConfigsResourceResult(
        name=s.name,
        value=chain[0][1] if own is not None else broker[0],
        config_source=chain[0][2],
        synonyms=[dc.DescribeConfigsSynonym(*c) for c in chain] if synonyms else [],
        config_type=TYPES[s.kind],
        documentation=s.documentation if documentation else None,
    )


def overlay(
    result: dc.DescribeConfigsResult,
    wanted: Sequence[str] | None,
    entries: Iterable[dc.DescribeConfigsResourceResult],
) -> None:
    """Put ours in the place of the broker's. The broker's words for the documentation stay."""
    at = {c.name: i for i, c in enumerate(result.configs)}
    for e in entries:
        if wanted and e.name not in wanted:
            continue
        if e.name in at:
            e.documentation = result.configs[at[e.name]].documentation
            result.configs[at[e.name]] = e
        else:
            result.configs.append(e)
