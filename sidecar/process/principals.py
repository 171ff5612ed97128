"""Checks at start that the broker behind the sidecar can tell clients apart. It learns a client's principal from SASL,
which passes through. A client's certificate cannot pass: TLS ends at the sidecar, and only the certificate's owner can
show it. So a listener of the broker that takes principals from certificates is refused: it would see every client as
the same one."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.link.ports import Logger
from sidecar.wire.generated import describe_configs as dc

BROKER = 4
"""Resource type of a broker in DescribeConfigs."""
LISTENERS, ADVERTISED, PROTOCOLS = "listeners", "advertised.listeners", "listener.security.protocol.map"
CLIENT_AUTH = "ssl.client.auth"
WAYS_OUT = (
    "There are two ways out. (a) Give this listener SASL (security protocol SASL_SSL): the exchange passes through, "
    "and the broker knows each client by it. (b) Leave clients with certificates on a listener of the broker that no "
    "sidecar is in front of; their groups must not be among groups.include."
)


def _addresses(configs: Mapping[str, str], name: str) -> dict[str, tuple[str, str]]:
    """Returns host and port of each listener."""
    parts = (part.strip().partition("://") for part in configs.get(name, "").split(",") if part.strip())
    return {listener: address.rpartition(":")[::2] for listener, _, address in parts}


def listener_of(broker: tuple[str, int], configs: Mapping[str, str]) -> str:
    """Returns the name of the broker's listener at `broker`: the one that advertises this address, else the one with
    this port; "" if there is none, as where ports are mapped."""
    host, port = broker[0].lower(), str(broker[1])
    advertised = _addresses(configs, ADVERTISED).items()
    advertising = [name for name, (h, p) in advertised if (h.strip("[]").lower(), p) == (host.strip("[]"), port)]
    return next(iter(advertising + [name for name, (_, p) in _addresses(configs, LISTENERS).items() if p == port]), "")


def principals_fault(broker: tuple[str, int], configs: Mapping[str, str]) -> str | None:
    """Returns the reason why clients cannot have their own principals at the listener `broker`, and the remedy; None if
    they can, or if that listener is not known. `configs`: the broker's settings."""
    listener = listener_of(broker, configs)
    return _fault(listener, f"at {broker[0]}:{broker[1]}", configs) if listener else None


def doubtful(broker: tuple[str, int], configs: Mapping[str, str]) -> list[str]:
    """Returns the listeners that `broker` must not be, where it is not known which listener it is."""
    if listener_of(broker, configs):
        return []
    return [name for name in _addresses(configs, LISTENERS) if _fault(name, "", configs)]


def _fault(listener: str, at: str, configs: Mapping[str, str]) -> str | None:
    protocols = dict(part.strip().partition(":")[::2] for part in configs.get(PROTOCOLS, "").split(","))
    protocol = protocols.get(listener, listener).upper()
    prefixed = configs.get(_own(listener), "").lower()
    auth = prefixed or configs.get(CLIENT_AUTH, "none").lower()
    where = f"The broker's listener {listener} {at}"
    if protocol == "SSL" and auth in ("required", "requested"):
        return (
            f"{where} takes principals from the certificates of clients (security protocol SSL, {CLIENT_AUTH}={auth}). "
            f"A sidecar cannot pass them on. {WAYS_OUT}"
        )
    if protocol == "SASL_SSL" and prefixed == "required":  # without the prefix a broker asks on listeners of SSL only
        return (
            f"{where} wants a certificate of each client beside SASL ({_own(listener)}="
            "required). A sidecar cannot pass it on. Set that to none, and tls.client_auth: required here, which asks "
            "clients for certificates instead."
        )
    return None


def _own(listener: str) -> str:
    return f"listener.name.{listener.lower()}.{CLIENT_AUTH}"


async def knows_clients(cluster: Cluster, node_id: int, broker: tuple[str, int], log: Logger) -> None:
    """Raises StartError if that broker takes principals from certificates. Warns where the broker does not answer."""
    try:
        configs = await read_security(cluster, node_id)
    except NO_ANSWER as exc:
        log.warning("not known how the broker knows clients", problem=str(exc) or "timed out")
        return
    fault = principals_fault(broker, configs)
    if fault:
        raise StartError(fault)
    doubts = doubtful(broker, configs)
    if doubts:
        log.warning(
            "not known which listener of the broker clients come to",
            broker=f"{broker[0]}:{broker[1]}",
            by_certificate=", ".join(doubts),
            remedy="these listeners know clients by certificates, which a sidecar cannot pass on: let broker lead to "
            "another one, and give it the address or the port that the broker itself has for that",
        )


async def read_security(cluster: Cluster, node_id: int) -> dict[str, str]:
    """Returns the broker's settings of its listeners. Raises ConnectionLost (also if the broker refuses),
    TimeoutError, WireError."""
    conn = await cluster.node(node_id)
    configs = await _ask(conn, node_id, [LISTENERS, ADVERTISED, PROTOCOLS, CLIENT_AUTH])
    return configs | await _ask(conn, node_id, [_own(listener) for listener in _addresses(configs, LISTENERS)])


async def _ask(conn: BrokerConnection, node_id: int, names: list[str]) -> dict[str, str]:
    resource = dc.DescribeConfigsResource(BROKER, str(node_id), names)
    res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=[resource]))
    result = res.results[0]
    if result.error_code != Code.NONE:
        raise ConnectionLost(f"DescribeConfigs of broker {node_id}: {name_of(result.error_code)}")
    return {c.name: c.value for c in result.configs if c.value is not None}
