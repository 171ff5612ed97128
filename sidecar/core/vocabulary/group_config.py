"""Settings of groups, rows by kind: names, types, ranges, layers, and Kafka's error messages for wrong values.

Source: GroupConfig, GroupCoordinatorConfig and ControllerConfigurationValidator of Kafka 4.4; KIP-1263 'Group
Configurations' (-1 = the broker's, which Kafka refuses; offload, which Kafka lacks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.group_patterns import fault

INT_MAX = 2**31 - 1
BROKER, GROUP = 4, 32
"""Types of resources that have settings."""
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, GROUP_CONFIG = 2, 3, 4, 5, 8
"""Sources of a setting in DescribeConfigs."""
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL, OFFLOAD = "consumer.assignment.interval.ms", "consumer.assignor.offload.enable"
MANAGED, REBALANCE = "sidecar.managed", "sidecar.rebalance"
"""Orders for any group, whichever its coordinator. MANAGED: `true` or `false` overrides the patterns. REBALANCE: each
change of its value, the reason, forces one rebalance."""
VERDICT, LATER = "sidecar.managed.verdict", "later"
"""The owner's verdict on the present order. `later: <order>`: the owner waits until it can take the group in; `false:
<order>`: it has given up; `true: <order>`: it does not give the group back. Only owners write it, and never in place of
an order."""
NOT_GIVEN_BACK = "not given back: "
"""Prefix of the reason for a verdict that the owner does not give the group back."""
INCLUDE, EXCLUDE = "sidecar.groups.include", "sidecar.groups.exclude"
"""Settings of all brokers (resource ""): patterns of the managed groups, which override the sidecars' own settings."""
STATE, WHY, EPOCH = "sidecar.state", "sidecar.why", "sidecar.epoch"
"""Read-only settings of a group: its place, the reason, and the epoch or generation of its last assignment."""
CLI_CLIENT = "sidecar-groups"
"""Client id of the command `sidecar groups`, which is shown the place of every group. Other tools see it only of groups
with an order, and of all others the same as from Kafka."""
LISTS = ("assignors", "rack_aware_assignment_tags")
"""Fields whose values are lists."""
Value = int | bool | str | tuple[str, ...]
Level = Mapping[str, Any]
"""Values at broker level, by the brokers' names of the settings."""
GROUP_MOVES, BROKER_MOVES = (MANAGED, REBALANCE), (INCLUDE, EXCLUDE)


@dataclass(frozen=True, slots=True)
class Setting:
    """A group-level setting, named `<kind of group>.<field>`. `floor`: of the type; `ranged`: two settings of the
    broker bound it; `most`: a single one does, from above; `among`: the broker's list from which the value must come,
    by default the first."""

    name: str
    kind: str
    floor: int = 0
    documentation: str = ""
    ranged: bool = True
    most: str = ""
    among: str = ""

    @property
    def field(self) -> str:
        """The field's name in the settings that the coordinator works with."""
        return self.name.partition(".")[2].replace(".", "_")

    @property
    def broker_name(self) -> str:
        return self.among or "group." + self.name

    @property
    def limits(self) -> tuple[str, str]:
        """Names of the broker settings that bound this one."""
        of, _, rest = self.broker_name.removeprefix("group.").partition(".")
        return f"group.{of}.min.{rest}", f"group.{of}.max.{rest}"

    def range_in(self, effective: Level) -> tuple[int, int] | None:
        """Returns the range that the broker allows, from `effective` values at broker level; None: unlimited."""
        if self.most:
            return self.floor, effective[self.most]
        if not self.ranged:
            return None
        low, high = self.limits
        return effective[low], effective[high]

    def inherits(self, value: Value) -> bool:
        """Whether this value means the broker's value (KIP-1263)."""
        return self.floor == -1 and value == -1


@dataclass(frozen=True, slots=True)
class KindSettings:
    """Settings that a group of one kind may have of its own; `brokers`: fields that only brokers set."""

    session: Setting
    heartbeat: Setting
    interval: Setting
    offload: Setting
    more: tuple[Setting, ...] = ()
    brokers: tuple[str, ...] = ("max_size", "assignors")

    @property
    def rows(self) -> tuple[Setting, ...]:
        """Group-level settings in the order in which they are described."""
        return (self.session, self.heartbeat, self.interval, self.offload, *self.more)

    @property
    def bounded(self) -> tuple[Setting, ...]:
        """Settings with a range, in the order in which Kafka checks them."""
        return (self.heartbeat, self.session, *(s for s in self.more if s.ranged or s.most), self.interval)


KINDS: Mapping[str, KindSettings] = {
    "consumer": KindSettings(
        Setting(SESSION, "int", 1, "The timeout to detect client failures when using the consumer group protocol."),
        Setting(HEARTBEAT, "int", 1, "The heartbeat interval given to the members of a consumer group."),
        Setting(INTERVAL, "int", -1, "The interval between assignment updates for a consumer group. -1: the broker's."),
        Setting(OFFLOAD, "boolean", 0, "Whether to run the assignor on the background threads (KIP-1263).", False),
        brokers=("max_size", "regex_refresh_interval_ms", "assignors"),
    ),
    "share": KindSettings(
        Setting("share.session.timeout.ms", "int", 1, "The timeout to detect failures of members of a share group."),
        Setting("share.heartbeat.interval.ms", "int", 1, "The heartbeat interval given to members of a share group."),
        Setting("share.assignment.interval.ms", "int", -1, "The interval between two assignments. -1: the broker's."),
        Setting(
            "share.assignor.offload.enable", "boolean", 0, "Whether to run the assignor on background threads.", False
        ),
    ),
    "streams": KindSettings(
        Setting("streams.session.timeout.ms", "int", 1, "The timeout to detect failures of streams clients."),
        Setting("streams.heartbeat.interval.ms", "int", 1, "The heartbeat interval given to streams clients."),
        Setting("streams.assignment.interval.ms", "int", -1, "The interval between two assignments. -1: the broker's."),
        Setting(
            "streams.assignor.offload.enable", "boolean", 0, "Whether to run the assignor on background threads.", False
        ),
        (
            Setting(
                "streams.num.standby.replicas",
                "int",
                0,
                "The number of standby replicas of each task with state.",
                ranged=False,
                most="group.streams.max.standby.replicas",
            ),
            Setting(
                "streams.initial.rebalance.delay.ms",
                "int",
                0,
                "How long the first assignment of an empty group waits for more members.",
                ranged=False,
            ),
            Setting(
                "streams.rack.aware.assignment.tags",
                "list",
                0,
                "Client tags over which standby replicas of a task are spread.",
                ranged=False,
            ),
            Setting(
                "streams.assignor.name",
                "string",
                0,
                "Which of the broker's task assignors; it counts from the next rebalance on.",
                ranged=False,
                among="group.streams.assignors",
            ),
        ),
        brokers=("max_size", "assignors", "max_standby_replicas"),
    ),
}
"""In Kafka's order. A sidecar keeps the settings of the kinds that it serves (`groups.kinds`)."""
SETTINGS: Mapping[str, Setting] = {s.name: s for kind in KINDS.values() for s in kind.rows}
BROKER_OFFLOADS: Mapping[str, str] = {kind.offload.broker_name: kind.offload.name for kind in KINDS.values()}
"""Offload settings by their broker names. Brokers do not know them: if changed through a sidecar, they are kept in the
state topic."""


def invalid(message: str) -> CoordinatorError:
    return CoordinatorError(Code.INVALID_CONFIG, message)


def text(value: Value) -> str:
    """Returns a value as Kafka writes it."""
    if isinstance(value, tuple):
        return ",".join(value)
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def truth(given: str) -> bool:
    """Returns a boolean as Kafka reads it."""
    return given.strip().lower() == "true"


def listed(given: str) -> tuple[str, ...]:
    """Returns the items of a list as Kafka reads it."""
    return tuple(part.strip() for part in given.split(",")) if given.strip() else ()


def parse(name: str, given: str) -> Value:
    """Returns the value of a setting from its text. Raises INVALID_CONFIG with Kafka's messages (ConfigDef.parseType
    and its validators)."""
    s = SETTINGS[name]
    value = given.strip()
    if s.kind == "string":
        return value
    if s.kind == "list":
        if not all(parts := listed(given)):
            raise invalid(f"Configuration '{name}' values must not be empty.")
        return parts
    if s.kind == "boolean":
        if value.lower() not in ("true", "false"):
            raise invalid(f"Invalid value {given} for configuration {name}: Expected value to be either true or false")
        return truth(value)
    try:
        number = int(value)
    except ValueError:
        number = INT_MAX + 1
    if "_" in value or not -INT_MAX - 1 <= number <= INT_MAX:  # Java reads no 45_000
        raise invalid(f"Invalid value {given} for configuration {name}: Not a number of type INT")
    if number < s.floor:
        least = max(s.floor, 0)
        raise invalid(f"Invalid value {value} for configuration {name}: Value must be at least {least}")
    return number


def check_move(name: str, value: str) -> None:
    """Checks the value of an order or of patterns. Raises INVALID_CONFIG."""
    if name == MANAGED and value not in ("true", "false"):
        raise invalid(f"Invalid value {value} for configuration {name}: Expected value to be either true or false")
    if name == REBALANCE and not value.strip():
        raise invalid(f"Invalid value {value} for configuration {name}: Value must be a reason")
    if name in BROKER_MOVES and (why := fault(value)):
        raise invalid(f"Invalid value {value} for configuration {name}: {why}")


def validate(own: Mapping[str, str], effective: Level) -> None:
    """Checks a group's settings. `own`: all settings that the group would have; `effective`: of the kinds that are
    served. Raises INVALID_CONFIG."""
    for n in (n for n in own if SETTINGS[n].kind == "list"):
        if len(set(parts := listed(own[n]))) < len(parts):
            raise invalid(f"{n} must not contain duplicate tag keys.")
    values: dict[str, Any] = {n: parse(n, given) for n, given in own.items()}
    kinds = [kind for kind in KINDS.values() if kind.session.broker_name in effective]
    for s in (s for kind in kinds for s in kind.bounded):
        value, allowed = values.get(s.name), s.range_in(effective)
        if value is None or allowed is None or s.inherits(value):
            continue
        low, high = allowed
        if not low <= value <= high:
            allows = f"less than or equal to {high}" if s.most else f"in the range {low} to {high} inclusive."
            raise invalid(f"{s.name} must be {allows}")
    for s in (s for kind in kinds for s in kind.more if s.among and s.name in values):
        if values[s.name] not in effective[s.among]:
            known = ", ".join(effective[s.among])
            raise invalid(
                f"{s.name} '{values[s.name]}' is not a registered task assignor. Registered assignors are: [{known}]."
            )
    for kind in kinds:
        names = {**effective, **{SETTINGS[n].broker_name: v for n, v in values.items()}}
        session, heartbeat = (names[s.broker_name] for s in (kind.session, kind.heartbeat))
        if session <= heartbeat:
            raise invalid(f"{kind.session.name} must be greater than {kind.heartbeat.name}")


def level(kind: str, own: Mapping[str, str], effective: Level) -> dict[str, Value]:
    """Returns the values for a group of this kind, by field: its own, limited to the broker's range as it is now, else
    the broker's."""
    out: dict[str, Value] = {}
    for s in KINDS[kind].rows:
        value = "" if s.among else effective[s.broker_name]
        parsed: Any = parse(s.name, own[s.name]) if s.name in own else -1
        if s.name in own and not s.inherits(parsed):
            value = parsed
            if (allowed := s.range_in(effective)) is not None:
                low, high = allowed
                value = min(max(value, low), high)
        out[s.field] = value
    return out
