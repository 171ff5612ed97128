"""Settings of consumer groups: names, types, ranges, layers, and Kafka's words for what is wrong with one.

Source: GroupConfig, GroupCoordinatorConfig and ControllerConfigurationValidator of Kafka 4.4; KIP-1263 'Group
Configurations' (-1 = the broker's, which Kafka refuses; offload, which it has not).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.group_patterns import fault

INT_MAX = 2**31 - 1
BROKER, GROUP = 4, 32
"""Types of resources that have settings."""
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, GROUP_CONFIG = 2, 3, 4, 5, 8
"""Where a setting comes from, as DescribeConfigs says it."""
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL, OFFLOAD = "consumer.assignment.interval.ms", "consumer.assignor.offload.enable"
BROKER_OFFLOAD = "group." + OFFLOAD
"""Brokers do not know it: changed through a sidecar it is kept in the state topic."""
MANAGED, REBALANCE = "sidecar.managed", "sidecar.rebalance"
"""Of any group, whoever coordinates it: `true` or `false` is stronger than the patterns; each change of the other,
whose value is the reason, forces one rebalance."""
VERDICT, LATER = "sidecar.managed.verdict", "later"
"""What the owner has found about the order that stands, and about no other: `later: <order>`, it waits until it can
take the group in; or `false: <order>`, it has given up. Only owners say so, and never in the place of an order."""
INCLUDE, EXCLUDE = "sidecar.groups.include", "sidecar.groups.exclude"
"""Of all brokers (resource ""): patterns of the groups that sidecars coordinate, in the place of their own settings."""
STATE, WHY, EPOCH = "sidecar.state", "sidecar.why", "sidecar.epoch"
"""What is told of a group beside them: where it is, why, and the epoch or generation of its last assignment."""
DESK = "sidecar-groups"
"""Client id of the command `sidecar groups`. It is told where any group is; other tools are told so only of groups of
which something was said, so that they show of all others what Kafka shows."""
GROUP_MOVES, BROKER_MOVES = (MANAGED, REBALANCE), (INCLUDE, EXCLUDE)


@dataclass(frozen=True, slots=True)
class Setting:
    """A group-level setting. `floor`: of the type; `limits`: names of the broker settings that bound it."""

    name: str
    kind: str
    floor: int = 0
    limits: tuple[str, str] = ("", "")
    documentation: str = ""

    @property
    def broker_name(self) -> str:
        return "group." + self.name


SETTINGS: Mapping[str, Setting] = {
    s.name: s
    for s in (
        Setting(
            SESSION,
            "int",
            1,
            ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
            "The timeout to detect client failures when using the consumer group protocol.",
        ),
        Setting(
            HEARTBEAT,
            "int",
            1,
            ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
            "The heartbeat interval given to the members of a consumer group.",
        ),
        Setting(
            INTERVAL,
            "int",
            -1,
            ("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
            "The interval between assignment updates for a consumer group. -1: the broker's.",
        ),
        Setting(OFFLOAD, "boolean", documentation="Whether to run the assignor on the background threads (KIP-1263)."),
    )
}


def invalid(message: str) -> CoordinatorError:
    return CoordinatorError(Code.INVALID_CONFIG, message)


def text(value: int | bool) -> str:
    """As Kafka writes values."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def parse(name: str, given: str) -> int | bool:
    """Raises INVALID_CONFIG in Kafka's words (ConfigDef.parseType and its validators)."""
    s = SETTINGS[name]
    value = given.strip()
    if s.kind == "boolean":
        if value.lower() not in ("true", "false"):
            raise invalid(f"Invalid value {given} for configuration {name}: Expected value to be either true or false")
        return value.lower() == "true"
    try:
        number = int(value)
    except ValueError:
        number = INT_MAX + 1
    if not -INT_MAX - 1 <= number <= INT_MAX:
        raise invalid(f"Invalid value {given} for configuration {name}: Not a number of type INT")
    if number < s.floor:
        least = max(s.floor, 0)
        raise invalid(f"Invalid value {value} for configuration {name}: Value must be at least {least}")
    return number


def check_move(name: str, value: str) -> None:
    """Raises INVALID_CONFIG."""
    if name == MANAGED and value not in ("true", "false"):
        raise invalid(f"Invalid value {value} for configuration {name}: Expected value to be either true or false")
    if name == REBALANCE and not value.strip():
        raise invalid(f"Invalid value {value} for configuration {name}: Value must be a reason")
    if name in BROKER_MOVES and (why := fault(value)):
        raise invalid(f"Invalid value {value} for configuration {name}: {why}")


def validate(own: Mapping[str, str], effective: Mapping[str, int | bool]) -> None:
    """`own`: all that the group would have; `effective`: broker level, by broker names. Raises INVALID_CONFIG."""
    values = {n: parse(n, given) for n, given in own.items()}
    for name in (HEARTBEAT, SESSION, INTERVAL):
        value = values.get(name)
        low, high = SETTINGS[name].limits
        if value is None or (name == INTERVAL and value == -1):
            continue
        if not effective[low] <= value <= effective[high]:
            raise invalid(f"{name} must be in the range {effective[low]} to {effective[high]} inclusive.")
    session = values.get(SESSION, effective["group." + SESSION])
    heartbeat = values.get(HEARTBEAT, effective["group." + HEARTBEAT])
    if session <= heartbeat:
        raise invalid(f"{SESSION} must be greater than {HEARTBEAT}")


def level(own: Mapping[str, str], effective: Mapping[str, int | bool]) -> dict[str, int | bool]:
    """Values by group-level names: the group's own, brought into the broker's range as it is now, else the broker's."""
    out: dict[str, int | bool] = {}
    for name, s in SETTINGS.items():
        value = effective[s.broker_name]
        if name in own:
            mine = parse(name, own[name])
            if not (name == INTERVAL and mine == -1):
                value = mine
                if s.limits[0]:
                    value = min(max(value, effective[s.limits[0]]), effective[s.limits[1]])
        out[name] = value
    return out
