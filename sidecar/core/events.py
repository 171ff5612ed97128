"""Events in, effects out. Times are Unix milliseconds (`now_ms`) and travel in the event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.core.errors import Code
from sidecar.core.records import Partitions, Record

if TYPE_CHECKING:
    from sidecar.core.consumer.run import RunInput, RunOutput


@dataclass(slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat (api 68, KIP-848). `None` = not changed since the last one.

    Not frozen, as that triples the cost of making one, and one is made for each heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    version: int = 1
    new_member_id: str = ""
    """Used for a v0 request without a member id: the caller brings the randomness."""


@dataclass(slots=True)
class HeartbeatReply:
    code: Code = Code.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True)
class CommitCheck:
    """May this member commit? (OffsetCommit, TxnOffsetCommit; KIP-848 'Offset commit', KIP-1251)."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    version: int
    transactional: bool
    partitions: tuple[tuple[str, bytes, int], ...]
    """(topic name or "", topic id or zeros, partition)"""


@dataclass(frozen=True, slots=True)
class FetchCheck:
    """May this member fetch offsets? (OffsetFetch v9+)."""

    group_id: str
    member_id: str | None
    member_epoch: int


@dataclass(frozen=True, slots=True)
class CheckReply:
    """`partitions` lists those refused with `partition_code`, when only some are."""

    code: Code = Code.NONE
    partition_code: Code = Code.NONE
    partitions: frozenset[tuple[str, bytes, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class ResolveRegex:
    """Effect: resolve these over the topics; the answer comes back as `RegexResolved`."""

    group_id: str
    member_id: str
    regexes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegexResolved:
    group_id: str
    topics: Mapping[str, tuple[str, ...]]
    names_version: int


@dataclass(frozen=True, slots=True)
class RunAssignor:
    """Effect: run this off the event loop; the answer comes back as `AssignorDone`."""

    input: RunInput


@dataclass(frozen=True, slots=True)
class AssignorDone:
    """`output` None: it failed, `error` says why. `encoded`: the members' records made beforehand."""

    input: RunInput
    output: RunOutput | None
    error: str = ""
    encoded: object = None


@dataclass(frozen=True, slots=True)
class Log:
    """Effect: a line in the log. Logging is a command, so tests can see it."""

    event: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Effects:
    """What an event led to. The reply is sent only after the records are committed."""

    records: list[Record] = field(default_factory=list)
    commands: list[ResolveRegex | RunAssignor | Log] = field(default_factory=list)

    def log(self, event: str, **fields: object) -> None:
        self.commands.append(Log(event, fields))


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's names with dots as underscores; kafka-behaviour.md section 7 has defaults and ranges."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    assignment_interval_ms: int = 1_000
    assignor_offload_enable: bool = True
    assignor_timeout_ms: int = 30_000
    regex_refresh_interval_ms: int = 600_000
    regex_min_interval_ms: int = 10_000
