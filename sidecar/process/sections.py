"""The settings by section: `groups`, `consumer`, `state`, `limits` and so on. settings.py puts them together and says
where values come from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from sidecar.process.section import INT_MAX, Section
from sidecar.process.setting_kinds import TopicName, compiled


class Groups(Section):
    include: tuple[str, ...] = Field(
        (),
        description="Regular expressions (RE2, whole name) of groups the sidecar coordinates. Empty: none, the broker has all.",
    )
    exclude: tuple[str, ...] = Field((), description="Groups that stay with the broker though `include` matches.")
    kinds: tuple[Literal["classic", "consumer", "share", "streams"], ...] = Field(
        ("classic", "consumer"),
        description="Kinds of groups that the sidecar coordinates; others are the broker's. Groups of share or "
        "streams begin when all sidecars coordinate that kind.",
    )
    stale_claims: Literal["report", "strip"] = Field(
        "report",
        description="A member claims partitions that others have since (KIP-792): report, or also strip the claim "
        "from what the leader gets.",
    )

    _compiles = field_validator("include", "exclude")(compiled)

    @field_validator("kinds")
    @classmethod
    def _always_both(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        missing = [kind for kind in ("classic", "consumer") if kind not in value]
        if missing:
            raise ValueError(f"{' and '.join(missing)} cannot be left out")
        return value


LEAST, MOST = "Least value of a group's ", "Greatest value of a group's "


class Epochs(Section):
    """Settings that Kafka has for each kind of groups with epochs (KIP-848)."""

    session_timeout_ms: int = Field(45_000, ge=1, description="A member silent for longer is removed.")
    min_session_timeout_ms: int = Field(45_000, ge=1, description=f"{LEAST}session.timeout.ms.")
    max_session_timeout_ms: int = Field(60_000, ge=1, description=f"{MOST}session.timeout.ms.")
    heartbeat_interval_ms: int = Field(5_000, ge=1, description="How often members are told to heartbeat.")
    min_heartbeat_interval_ms: int = Field(5_000, ge=1, description=f"{LEAST}heartbeat.interval.ms.")
    max_heartbeat_interval_ms: int = Field(15_000, ge=1, description=f"{MOST}heartbeat.interval.ms.")
    assignment_interval_ms: int = Field(
        1_000, ge=0, description="At least so long between two assignments of a group; 0: none."
    )
    min_assignment_interval_ms: int = Field(0, ge=0, description=f"{LEAST}assignment.interval.ms.")
    max_assignment_interval_ms: int = Field(15_000, ge=0, description=f"{MOST}assignment.interval.ms.")
    assignor_offload_enable: bool = Field(
        True, description="Assignors run on background threads (KIP-1263); false: in the heartbeat that asks for it."
    )
    assignor_timeout_ms: int = Field(
        30_000, ge=100, description="An offloaded run without result by then is given up and tried again later."
    )
    join_wait_ms: int = Field(
        500,
        ge=0,
        description="The answer to a member's join or heartbeat waits so long for a run under way; 0: not at all, as "
        "KIP-1263 has it.",
    )

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        faults = []
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"):
            low, value, high = (getattr(self, of + name) for of in ("min_", "", "max_"))
            if not low <= value <= high:
                faults.append(f"{name} {value} is not in [min_{name} {low}, max_{name} {high}]")
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            faults.append("session_timeout_ms must be greater than heartbeat_interval_ms")
        if faults:
            raise ValueError("; ".join(faults))
        return self


class Consumer(Epochs):
    """Kafka's group.consumer.*; docs/reference/behaviour.md."""

    max_size: int = Field(INT_MAX, ge=1, description="Members of a group.")
    assignors: tuple[str, ...] = Field(
        ("uniform", "range"),
        min_length=1,
        description="Built in, or of installed packages by entry point; the first is the default.",
    )
    migration_policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"] = Field(
        "bidirectional",
        description="To which protocol a group may change while it lives: upgrade means from classic to consumer.",
    )
    refuse_commits_of_others: bool = Field(
        True,
        description="A member may not commit for a partition that another member owns; false: it may, as in Kafka.",
    )
    regex_refresh_interval_ms: int = Field(
        600_000, ge=10_000, description="How often regular expressions are resolved anew, new topics or not."
    )

    regex_matches: int = Field(
        3, ge=1, description="How often a group's expressions are matched against new topics in 10 s; 1: as in Kafka."
    )
    regexes_max: int = Field(
        100,
        ge=1,
        description="Different regular expressions of a group; one more: GROUP_MAX_SIZE_REACHED. Kafka has no limit.",
    )
    regex_time_ms: int = Field(
        2_000,
        ge=1,
        description="CPU time of a run that matches a group's regular expressions against the names of topics; each "
        "has a quarter of it. What was cut has its next turn after nine times as long.",
    )


class Share(Epochs):
    """Kafka's group.share.*, for `groups.kinds` with share; docs/reference/behaviour.md. What the leader of
    a partition reads, such as group.share.record.lock.duration.ms, is the broker's."""

    max_size: int = Field(200, ge=1, le=1_000, description="Members of a group.")
    assignors: tuple[str, ...] = Field(
        ("simple",),
        min_length=1,
        max_length=1,
        description="Built in, or of an installed package by entry point; only one.",
    )


class Streams(Epochs):
    """Kafka's group.streams.*, for `groups.kinds` with streams; docs/reference/behaviour.md."""

    initial_rebalance_delay_ms: int = Field(
        3_000, ge=0, description="The first assignment of an empty group waits so long for more members."
    )
    num_standby_replicas: int = Field(0, ge=0, description="Standby replicas of each task with state.")
    max_standby_replicas: int = Field(2, ge=0, description=f"{MOST}streams.num.standby.replicas.")
    max_size: int = Field(INT_MAX, ge=1, description="Members of a group.")
    max_tasks: int = Field(
        100_000,
        ge=1,
        description="Active tasks of a group; one more: STREAMS_INVALID_TOPOLOGY. Kafka's limit is a record of 1 MiB, "
        "that is 131,000 tasks of one member.",
    )
    assignors: tuple[str, ...] = Field(
        ("sticky",),
        min_length=1,
        description="Built in, or of installed packages by entry point; the first is the default.",
    )
    rack_aware_assignment_tags: tuple[str, ...] = Field(
        (), description="Client tags over which standby replicas of a task are spread."
    )
    acceptable_recovery_lag: int = Field(
        10_000, ge=0, le=INT_MAX, description="Members are told it: with no greater lag they have caught up."
    )
    task_offset_interval_ms: int = Field(
        60_000, ge=15_000, description="How often members tell offsets of their tasks."
    )
    refuse_commits_of_others: bool = Field(
        True,
        description="A member may not commit for a task that is active at another member; false: it may, as in Kafka.",
    )

    @model_validator(mode="after")
    def _standbys_in_range(self) -> Self:
        if self.num_standby_replicas > self.max_standby_replicas:
            wanted, most = self.num_standby_replicas, self.max_standby_replicas
            raise ValueError(f"num_standby_replicas {wanted} is greater than max_standby_replicas {most}")
        return self


class Classic(Section):
    """Kafka's settings of classic groups; docs/reference/behaviour.md."""

    min_session_timeout_ms: int = Field(6_000, ge=1, description="Kafka's group.min.session.timeout.ms.")
    max_session_timeout_ms: int = Field(1_800_000, ge=1, description="Kafka's group.max.session.timeout.ms.")
    initial_rebalance_delay_ms: int = Field(
        3_000, ge=0, description="An empty group waits so long for more members before its first rebalance."
    )
    max_size: int = Field(INT_MAX, ge=1, description="Members of a group: Kafka's group.max.size.")
    new_member_join_timeout_ms: int = Field(
        300_000, ge=1, description="A new member whose JoinGroup waits longer is removed; a constant in Kafka."
    )

    @model_validator(mode="after")
    def _in_range(self) -> Classic:
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            low, high = self.min_session_timeout_ms, self.max_session_timeout_ms
            raise ValueError(f"min_session_timeout_ms {low} is greater than max_session_timeout_ms {high}")
        return self


class State(Section):
    topic: TopicName = Field("__group_state", description="The compacted topic that holds all state.")
    replicas: int = Field(0, ge=0, description="Of the state topic when it is created; 0: min(3, brokers).")
    min_compaction_lag_ms: int = Field(
        604_800_000,
        ge=0,
        description="Compaction leaves records alone for so long: the trail that audits read. 0: compact at will.",
    )
    max_message_bytes: int = Field(
        16_777_216,
        ge=1_048_576,
        le=INT_MAX,
        description="max.message.bytes of the state topic when it is created. A batch takes half of that at most; a "
        "request that needs a greater record is refused.",
    )
    write_timeout_ms: int = Field(10_000, ge=100, description="An append not committed by then: the shard is rebuilt.")
    quarantine_ms: int = Field(
        7_000,
        ge=0,
        description="When the state topic was deleted, made anew or has lost records, nobody joins a group for so "
        "long after its takeover, so that former members hear first that they own nothing: the time "
        "between two heartbeats (5 s in consumer groups, 3 s in classic ones), and to find the "
        "coordinator. 0: not at all.",
    )
    claims_kept: int = Field(200, ge=1, description="Owner claims kept for each partition.")
    fence_interval_ms: int = Field(
        3_600_000, ge=1_000, description="How often a writer renews its fence; brokers forget them."
    )
    fence_spread: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="By which part of fence_interval_ms a fence is renewed earlier, another one for each partition; 0: all "
        "at once.",
    )


class OffsetsSection(Section):
    empty_group_check_ms: int | None = Field(
        None,
        ge=0,
        description="How often empty groups whose offsets are all gone are removed. Unset: the broker's "
        "offsets.retention.check.interval.ms. 0: never.",
    )
    placeholder_session_timeout_ms: int = Field(
        300_000,
        ge=6_000,
        description="When all sidecars died at once, native clients may join a managed group after so long; at most "
        "the brokers' group.max.session.timeout.ms.",
    )
    placeholder_wait_ms: int = Field(
        5_000,
        ge=0,
        description="A commit waits so long for the group's placeholder at the broker; then COORDINATOR_LOAD_IN_PROGRESS.",
    )
    commit_lanes: int = Field(
        8,
        ge=1,
        le=1_000,
        description="Connections to each broker for the commits of groups that are owned here and whose offsets it "
        "keeps. A client's commits all use one.",
    )
    placeholder_first_joins: int = Field(
        200, ge=1, description="Groups new to a broker that join at once; each takes a connection for about 3 s."
    )


class OwnershipSection(Section):
    group: str = Field("__group_state_owners", min_length=1, description="The sidecars' own group on the brokers.")
    session_timeout_ms: int = Field(
        6_000,
        ge=500,
        description="The brokers' group.min.session.timeout.ms at least. A sidecar that no broker answers for so long sends "
        "its clients away.",
    )
    heartbeat_ms: int = Field(
        500,
        ge=50,
        description="How often it proves itself to the brokers; less than session_timeout_ms and proof_ms.",
    )
    proof_ms: int = Field(
        15_000,
        ge=1_000,
        description="The lease: so long a sidecar goes on after its last commit in the owners' group, and nobody is "
        "removed for silence after a takeover. More than the brokers' broker.session.timeout.ms; the same "
        "for all sidecars.",
    )
    tail_wait_ms: int = Field(
        60_000,
        ge=0,
        description="A sidecar that starts takes no partition before it has read the state topic to its end, or for so long.",
    )
    broker_gone_ms: int = Field(
        2_500,
        ge=100,
        description="Its broker silent for so long: the sidecar gives up what it owns, until it answers again.",
    )
    follow_leader_ms: int = Field(
        10_000,
        ge=0,
        description="A partition goes to the sidecar beside its leader in `__consumer_offsets` when that broker has "
        "led it, and that sidecar has been there, for so long.",
    )
    rebalance_wait_ms: int = Field(
        30_000,
        ge=0,
        description="A partition that should go back stays with its owner while members of a classic group there wait "
        "for one another, at most so long; 0: it goes at once.",
    )
    peer_links: bool = Field(True, description="Watch peers by TCP links and remove a dead one at once.")
    peer_port: int = Field(
        0, ge=0, le=65_535, description="Where peers watch this sidecar, on the host of `listen`; 0: any free port."
    )
    peer_advertised_port: int = Field(
        0, ge=0, le=65_535, description="What peers are told instead, where ports are mapped; 0: the same."
    )
    peer_ping_ms: int = Field(200, ge=20, description="How often peers are pinged.")
    peer_silence_ms: int = Field(
        1_200,
        ge=100,
        description="A peer that answers no ping for so long is removed, as one that is gone; at least two pings.",
    )

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        late = [f for f in ("session_timeout_ms", "proof_ms") if getattr(self, f) <= self.heartbeat_ms]
        if late:
            raise ValueError("; ".join(f"{f} {getattr(self, f)} must be greater than heartbeat_ms" for f in late))
        if self.peer_silence_ms < 2 * self.peer_ping_ms:
            raise ValueError(f"peer_silence_ms {self.peer_silence_ms} must be at least two times peer_ping_ms")
        return self


class Compat(Section):
    describe_modern_as_classic: bool = Field(
        False,
        description="DescribeGroups shows consumer groups as classic ones, for tools that know nothing else and call "
        "them dead.",
    )


class TlsSection(Section):
    certificate: Path | None = Field(
        None, description="PEM file with the listener's certificate and those that lead to its authority. None: no TLS."
    )
    key: Path | None = Field(
        None, description="PEM file with the certificate's key; None: it is in the file of the certificate."
    )
    key_password_file: Path | None = Field(None, description="A file with the password of the key, if it has one.")
    ca: Path | None = Field(None, description="PEM file with the authorities of the clients, for client_auth.")
    client_auth: Literal["none", "required"] = Field(
        "none",
        description="required: only clients with a certificate of `ca` may connect. Who they are, the broker still learns "
        "from SASL alone.",
    )
    min_version: Literal["TLSv1.2", "TLSv1.3"] = Field("TLSv1.2", description="The oldest version that is spoken.")
    ciphers: str = Field("", description="Ciphers of TLS 1.2 in OpenSSL's notation; empty: those that it recommends.")
    reload_ms: int = Field(
        10_000,
        ge=0,
        description="How often the files are checked for changes; new connections then use them. SIGHUP does the "
        "same at once. 0: only that.",
    )
    handshake_timeout_ms: int = Field(
        10_000, ge=10, description="A connection whose handshake is not done by then is closed."
    )
    handshakes: int = Field(256, ge=1, description="Handshakes under way at once; others wait in line.")

    @model_validator(mode="after")
    def _together(self) -> TlsSection:
        given = sorted(name for name in ("key", "key_password_file", "ca") if getattr(self, name) is not None)
        if self.certificate is None and (given or self.client_auth != "none"):
            raise ValueError(f"{given or ['client_auth']} without tls.certificate: there would be no TLS")
        if (self.client_auth == "required") != (self.ca is not None):
            raise ValueError("client_auth: required and ca go together: the authorities that clients must be known to")
        return self


class ExporterSection(Section):
    """Offsets and lags of groups, under the names of kafka_exporter, on /metrics of the sidecar that owns them."""

    interval_ms: int = Field(
        30_000,
        ge=0,
        description="How often the brokers are asked for committed offsets and ends of partitions; twice for each "
        "scrape at Prometheus's default of a minute. 0, and without `admin`: off.",
    )
    series: int = Field(
        20_000,
        ge=0,
        description="The most series that one sidecar gives, about 100 bytes each for every scrape. Sums of lags come "
        "first, then members, sums of offsets, partitions. sidecar_exporter_series_cut counts the rest.",
    )
    include: tuple[str, ...] = Field(
        (".*",), description="Regular expressions (RE2, whole name) of groups that are exported."
    )
    exclude: tuple[str, ...] = Field((), description="Groups that are not exported though `include` matches.")
    topics: bool = Field(
        True, description="Partitions that the broker behind this sidecar leads are exported, too, of all topics."
    )

    _compiles = field_validator("include", "exclude")(compiled)


class LogSection(Section):
    level: str = Field("info", pattern="^(debug|info|warning|error)$", description="The least that is logged.")
    format: str = Field(
        "auto",
        pattern="^(auto|text|json)$",
        description="text: key=value lines; json: one object a line; auto: text if stderr is a terminal, else json.",
    )
    turns: bool = Field(False, description="Log every event of a group and what came of it: for finding a bug.")
    repeat_ms: int = Field(10_000, ge=0, description="A refused frame is logged so often for each reason; 0: each one.")


class AdminAccess(Section):
    """Access to the admin endpoint and its limits; docs/operate/admin.md."""

    tls_certificate: Path | None = Field(
        None, description="PEM, with its chain: the endpoint speaks HTTPS. Read again when it changes. Unset: HTTP."
    )
    tls_key: Path | None = Field(None, description="Its private key, PEM. Unset: it is in the file of the certificate.")
    tls_key_password_file: Path | None = Field(None, description="A file with the password of that key.")
    token_file: Path | None = Field(
        None,
        description="Bearer tokens, one a line, of 16 characters at least: wanted for everything but /livez and "
        "/readyz. Read again when it changes. Unset: none is wanted.",
    )
    metrics_open: bool = Field(False, description="/metrics needs no token either.")
    hosts: tuple[str, ...] = Field(
        (),
        description="Names by which browsers may call this endpoint, beside localhost, the host in `admin` and the "
        "machine's name. Addresses always count. `*`: any name.",
    )
    session_s: int = Field(43_200, ge=60, description="After so long the page asks for the token again.")
    connections: int = Field(
        64,
        ge=1,
        description="Connections to this endpoint. To one more another one gives way: of the address that has most, "
        "the one idle for longest.",
    )
    first_request_timeout_ms: int = Field(
        2_000,
        ge=100,
        description="A new connection on which no request came by then, its TLS handshake included, is closed.",
    )
    request_timeout_ms: int = Field(
        30_000, ge=1_000, description="A connection is closed so long after its last request came."
    )
    rebalances_kept: int = Field(
        20,
        ge=0,
        description="How many of a group's last rebalances the page can show; 0: none. Fewer where that would be more "
        "than 100,000 records of all groups.",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> AdminAccess:
        if self.tls_certificate is None and (self.tls_key or self.tls_key_password_file):
            raise ValueError("tls_key and tls_key_password_file belong to a tls_certificate")
        return self
