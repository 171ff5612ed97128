"""Who clients are, the broker behind the sidecar learns from SASL, which passes through. A client's certificate cannot
pass: TLS ends at the sidecar, and nobody but its owner can show it. So a listener of the broker that takes principals
from certificates is refused at start, where it would otherwise see every client as the same one."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.coordinator.start import StartError
from sidecar.core.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.net import BrokerConnection
from sidecar.link.ports import Logger
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.primitives import WireError

BROKER = 4
"""The resource type of DescribeConfigs."""
LISTENERS, PROTOCOLS, CLIENT_AUTH = "listeners", "listener.security.protocol.map", "ssl.client.auth"
WAYS_OUT = (
    "There are two ways out. (a) Give this listener SASL (security protocol SASL_SSL): the exchange passes through, "
    "and the broker knows each client by it. (b) Leave clients with certificates on a listener of the broker that no "
    "sidecar is in front of; their groups must not be among groups.include."
)


def listener_of(port: int, configs: Mapping[str, str]) -> str:
    """The name of the broker's listener with this port; "" if there is none, as where ports are mapped."""
    for part in configs.get(LISTENERS, "").split(","):
        name, _, address = part.strip().partition("://")
        if address.rpartition(":")[2] == str(port):
            return name
    return ""


def principals_fault(broker: tuple[str, int], configs: Mapping[str, str]) -> str | None:
    """Why clients cannot be themselves at the listener `broker`, and what to do; None if they can, or if it is not told
    which listener that is. `configs`: what the broker says of itself."""
    listener = listener_of(broker[1], configs)
    if not listener:
        return None
    protocols = dict(part.strip().partition(":")[::2] for part in configs.get(PROTOCOLS, "").split(","))
    protocol = protocols.get(listener, listener).upper()
    prefixed = configs.get(f"listener.name.{listener.lower()}.{CLIENT_AUTH}", "").lower()
    auth = prefixed or configs.get(CLIENT_AUTH, "none").lower()
    where = f"The broker's listener {listener} at {broker[0]}:{broker[1]}"
    if protocol == "SSL" and auth in ("required", "requested"):
        return (
            f"{where} takes principals from the certificates of clients (security protocol SSL, {CLIENT_AUTH}={auth}). "
            f"A sidecar cannot pass them on. {WAYS_OUT}"
        )
    if protocol == "SASL_SSL" and prefixed == "required":  # without the prefix a broker asks on listeners of SSL only
        return (
            f"{where} wants a certificate of each client beside SASL (listener.name.{listener.lower()}.{CLIENT_AUTH}="
            "required). A sidecar cannot pass it on. Set that to none, and tls.client_auth: required here, which asks "
            "clients for certificates instead."
        )
    return None


async def knows_clients(cluster: Cluster, node_id: int, broker: tuple[str, int], log: Logger) -> None:
    """Raises StartError if that broker would know clients by certificates. Where it does not tell, nobody knows."""
    try:
        fault = principals_fault(broker, await read_security(cluster, node_id, broker))
    except (ConnectionLost, TimeoutError, WireError) as exc:
        log.warning("not known how the broker knows clients", problem=str(exc) or "timed out")
        return
    if fault:
        raise StartError(fault)


async def read_security(cluster: Cluster, node_id: int, broker: tuple[str, int]) -> dict[str, str]:
    """What `principals_fault` needs. Raises ConnectionLost (also if it does not tell), TimeoutError, WireError."""
    conn = await cluster.node(node_id)
    listeners = await _ask(conn, node_id, [LISTENERS, PROTOCOLS, CLIENT_AUTH])
    own = f"listener.name.{listener_of(broker[1], listeners).lower()}.{CLIENT_AUTH}"
    return listeners | await _ask(conn, node_id, [own])


async def _ask(conn: BrokerConnection, node_id: int, names: list[str]) -> dict[str, str]:
    asked = dc.DescribeConfigsResource(BROKER, str(node_id), names)
    res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=[asked]))
    result = res.results[0]
    if result.error_code != Code.NONE:
        raise ConnectionLost(f"DescribeConfigs of broker {node_id}: {name_of(result.error_code)}")
    return {c.name: c.value for c in result.configs if c.value is not None}
