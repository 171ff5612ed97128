"""Settings of what one client, one group and all of them together may take."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import Field, field_validator

from sidecar.process.section import INT_MAX, Section


class LimitsSection(Section):
    frame_bytes: int = Field(104_857_600, ge=1_024, description="Any frame; as the broker's socket.request.max.bytes.")
    group_frame_bytes: int = Field(16_777_216, ge=1_024, description="Frames the sidecar must hold whole.")
    list_frame_bytes: int = Field(
        2_097_152,
        ge=1_024,
        description="Of these, all requests but SyncGroup from version 4. They are read element by element, the longer "
        "ones in slices.",
    )
    response_bytes: int = Field(
        268_435_456,
        ge=65_536,
        description="A broker's answer to the sidecar's own requests; a longer one closes their connection.",
    )
    answer_bytes: int = Field(
        8_388_608,
        ge=65_536,
        description="An answer that describes groups. Groups beyond it get COORDINATOR_LOAD_IN_PROGRESS, so that "
        "clients ask again; the first is always described.",
    )
    request_elements: int = Field(
        25_000,
        ge=16_384,
        description="Elements of all arrays in one request: groups, topics, partitions, members. More closes its "
        "connection. A commit of 12,500 topics with a partition each has so many.",
    )
    link_frame_bytes: int = Field(
        268_435_456,
        ge=65_536,
        description="A message between the two processes that share a `link`; a longer one closes the link. The same in both.",
    )
    connections: int = Field(
        10_000,
        ge=1,
        description="Client connections. To one more the oldest that never sent a request gives way; else it is "
        "closed at once. Kafka's max.connections.",
    )
    connections_per_ip: int | None = Field(
        None,
        ge=0,
        description="Client connections of one address; Kafka's max.connections.per.ip. Unset: half of `connections`.",
    )
    connections_per_ip_overrides: dict[str, Annotated[int, Field(ge=0)]] = Field(
        {}, description="Address -> connections; Kafka's max.connections.per.ip.overrides."
    )
    connection_rate: int = Field(
        INT_MAX,
        ge=1,
        description="New client connections a second, and so many at once; `accept_backlog` more wait, the others are "
        "closed. Kafka's max.connection.creation.rate.",
    )
    accept_backlog: int = Field(
        1_024,
        ge=1,
        description="Connections the kernel keeps until they are accepted, and no more than its net.core.somaxconn; Kafka's "
        "socket.listen.backlog.size.",
    )
    idle_ms: int = Field(
        600_000,
        ge=0,
        description="A connection on which nothing moves for so long, and up to a tenth longer, is closed; 0: never. "
        "Kafka's connections.max.idle.ms.",
    )
    in_flight: int = Field(256, ge=1, description="Unanswered requests of a connection; more wait.")
    turn_requests: int = Field(
        32, ge=1, description="Requests of a connection that are looked at before the others have their turn."
    )
    held_bytes: int = Field(
        65_536,
        ge=1_024,
        description="Of a connection: what has come behind a request that is being answered, before it is read no further.",
    )
    all_unread_bytes: int = Field(
        33_554_432,
        ge=0,
        description="Of all connections together: what was sent to clients and to the broker, and is not read there. From half of it "
        "on reads are short; beyond it a client is closed that does not read an answer of the sidecar's own. 0: no limit.",
    )
    queued_bytes: int = Field(
        134_217_728,
        ge=0,
        description="Of all connections together: what incoming group requests announce, and what waits behind "
        "requests; more is not read yet. Half of it is shared out among `connections`. 0: no limit. "
        "Kafka's queued.max.request.bytes.",
    )
    large_requests: int = Field(
        3,
        ge=1,
        description="Requests of more than 16 KiB, and large answers, that are worked on at a time; the others wait, and "
        "addresses have their turns. One may take 17 MiB meanwhile.",
    )
    parked_large_requests: int = Field(
        4,
        ge=0,
        description="Of these, requests that wait for another broker or for the coordinator and leave their places to "
        "others, so that one broker that hangs stops nobody else. Further ones keep their places. One may take 17 MiB "
        "meanwhile.",
    )
    pending_members: int = Field(
        2_500,
        ge=1,
        description="Unused member ids (KIP-394) of the groups of one partition of the state topic; the oldest gives "
        "way.",
    )
    pending_members_per_connection: int = Field(
        100, ge=1, description="Of these, over one connection; the oldest of it gives way. A client has one at a time."
    )
    protocols: int = Field(
        100, ge=1, description="Protocols that a classic member names; one with more gets INCONSISTENT_GROUP_PROTOCOL."
    )
    group_bytes: int = Field(
        33_554_432,
        ge=1_048_576,
        description="About what the members of one group may take in memory; then GROUP_MAX_SIZE_REACHED.",
    )
    members_bytes: int = Field(
        268_435_456,
        ge=1_048_576,
        description="The same of all groups together; then COORDINATOR_LOAD_IN_PROGRESS, and clients try again.",
    )
    unproven_bytes: int = Field(
        4_096,
        ge=0,
        description="A longer group request waits until the broker has answered something on its connection, and so "
        "has let the client in; else the broker is asked first.",
    )
    remembered_bytes: int = Field(
        134_217_728,
        ge=1_048_576,
        description="Of all connections together: a quarter for the broker's answers on rights, the rest for "
        "heartbeats that are answered again. A part that is full is forgotten.",
    )
    parked_replies: int = Field(
        100_000, ge=1, description="Requests that the coordinator has not answered; more get COORDINATOR_NOT_AVAILABLE."
    )
    steady_replies: int = Field(
        16,
        ge=0,
        description="Heartbeats a connection is remembered for, so that the same bytes get the same answer; 0: off.",
    )
    header_timeout_ms: int = Field(
        30_000,
        ge=100,
        description="A group request not whole by then closes its connection, and so does a first request that does not come.",
    )
    broker_silence_ms: int = Field(
        2_000,
        ge=0,
        description="A broker that owes answers, a probe's among them, is silent after so long: what only it can "
        "answer closes its connection until it answers again. 0: never.",
    )

    @field_validator("connections_per_ip_overrides")
    @classmethod
    def _addresses(cls, value: dict[str, int]) -> dict[str, int]:
        """Refuses names, which Kafka resolves: the override of a name would be that of no client. Addresses are spelled
        as sockets spell them."""
        try:
            return {str(ip_address(host)): most for host, most in value.items()}
        except ValueError as exc:
            raise ValueError(f"{exc}: write the address of a host, not its name") from None
