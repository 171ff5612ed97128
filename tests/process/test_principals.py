"""The sidecar asks at start how the broker knows clients; certificates of clients cannot be passed on."""

from __future__ import annotations

import pytest

from sidecar.process.principals import doubtful, listener_of, principals_fault

LISTENERS = {
    "listeners": "CLIENTS://127.0.0.1:19092, INTERNAL://:9093,SSL://[::1]:9094,CONTROLLER://127.0.0.1:9095",
    "listener.security.protocol.map": "CLIENTS:SSL, INTERNAL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
}
CLIENTS, INTERNAL = ("127.0.0.1", 19092), ("broker.example", 9093)


def test_the_listener_is_known_by_its_port() -> None:
    found = [listener_of(("anywhere", port), LISTENERS) for port in (19092, 9093, 9094, 9096, 1909)]
    assert found == ["CLIENTS", "INTERNAL", "SSL", "", ""]
    assert listener_of(("anywhere", 9092), {}) == ""


def test_its_advertised_address_is_the_better_sign() -> None:
    """A listener may have the port of another one's mapping, where ports are mapped."""
    told = {**LISTENERS, "advertised.listeners": "CLIENTS://Broker.example:9093,INTERNAL://broker.example:9095"}
    assert listener_of(("broker.example", 9093), told) == "CLIENTS"
    assert listener_of(("BROKER.example", 9095), told) == "INTERNAL"
    assert listener_of(("10.0.0.1", 9093), told) == "INTERNAL", "the port of its own"
    assert listener_of(("::1", 9092), {"advertised.listeners": "A://[::1]:9092"}) == "A"


def test_where_no_listener_fits_it_is_known_which_it_must_not_be() -> None:
    told = {**LISTENERS, "ssl.client.auth": "required"}
    assert doubtful(("anywhere", 7777), told) == ["CLIENTS", "SSL"]
    assert doubtful(("anywhere", 7777), LISTENERS) == [], "none of them knows clients by certificates"
    assert doubtful(("anywhere", 9093), told) == [], "it is that one"


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.client.auth": "required"},
        {"ssl.client.auth": "requested"},
        {"listener.name.clients.ssl.client.auth": "required"},
        {"listener.name.clients.ssl.client.auth": "REQUESTED", "ssl.client.auth": "none"},
    ],
)
def test_principals_from_certificates_are_refused_with_two_ways_out(given: dict[str, str]) -> None:
    fault = principals_fault(CLIENTS, {**LISTENERS, **given})
    assert fault is not None
    for words in ("CLIENTS at 127.0.0.1:19092", "SASL_SSL", "(a)", "(b)", "groups.include"):
        assert words in fault


@pytest.mark.parametrize(
    ("broker", "given"),
    [
        (CLIENTS, {}),
        (CLIENTS, {"ssl.client.auth": "none"}),
        (CLIENTS, {"ssl.client.auth": "required", "listener.name.clients.ssl.client.auth": "none"}),
        (INTERNAL, {"ssl.client.auth": "required"}),
        (INTERNAL, {"listener.name.internal.ssl.client.auth": "requested"}),
        (("127.0.0.1", 9095), {"ssl.client.auth": "required"}),
        (("127.0.0.1", 7777), {"ssl.client.auth": "required"}),
    ],
)
def test_other_listeners_are_not(broker: tuple[str, int], given: dict[str, str]) -> None:
    assert principals_fault(broker, {**LISTENERS, **given}) is None


def test_a_name_that_is_in_no_map_is_its_own_protocol() -> None:
    assert principals_fault(("127.0.0.1", 1), {"listeners": "SSL://:1", "ssl.client.auth": "required"})


def test_a_certificate_beside_sasl_has_a_way_out_of_its_own() -> None:
    fault = principals_fault(INTERNAL, {**LISTENERS, "listener.name.internal.ssl.client.auth": "required"})
    assert fault is not None and "tls.client_auth" in fault
