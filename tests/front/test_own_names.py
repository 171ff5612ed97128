"""The sidecars' own group behind a listener for clients, and behind one that serves everything."""

from __future__ import annotations

import pytest

from sidecar.api.call import OwnNames
from sidecar.core.vocabulary.errors import Code
from sidecar.process.parts import front_settings
from sidecar.process.settings import Settings
from sidecar.wire.generated import join_group as jg
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, run

GROUP, TOPIC = "__group_state_owners", "__group_state"
GUARDED = {"own": OwnNames(GROUP, TOPIC), "own_principals": frozenset(["User:sidecar"])}
JOIN = jg.JoinGroupRequest(GROUP, 6_000, 6_000, protocol_type="sidecar")


def test_a_client_is_refused_and_a_sidecar_is_let_through() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        stranger, peer = await sidecar.client(), await sidecar.client()
        peer.session.facts.principal = "User:sidecar"
        assert (await stranger.ask(JOIN, 9)).error_code == Code.GROUP_AUTHORIZATION_FAILED
        assert GROUP not in sidecar.brokers.groups, "nothing of it has reached the broker"
        assert (await peer.ask(JOIN, 9)).error_code == Code.MEMBER_ID_REQUIRED
        assert GROUP in sidecar.brokers.groups

    run(test, front=GUARDED)


def test_a_group_that_rules_name_stays_refused() -> None:
    """Rules change while the sidecar runs; what they say of the owners' group counts for nothing."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        sidecar.rules.dirty = True
        sidecar.front.from_coordinator(sidecar.rules.message())
        assert (await client.ask(JOIN, 9)).error_code == Code.GROUP_AUTHORIZATION_FAILED

    run(test, front=GUARDED)


@pytest.mark.parametrize(
    ("bootstrap", "principal", "own", "let_through"),
    [
        ("b:9093", "User:s", OwnNames(GROUP, TOPIC), set()),
        ("b:9093", "", OwnNames(GROUP, TOPIC), set()),
        ("", "User:s", OwnNames(GROUP, TOPIC, brokers_come=True), {"User:s"}),
        ("", "", OwnNames(unlisted=GROUP), set()),
    ],
)
def test_who_is_kept_out(bootstrap: str, principal: str, own: OwnNames, let_through: set[str]) -> None:
    """With one listener for everything the other sidecars come over it, and only their principal tells them apart."""
    s = Settings.model_validate({"listen": "h:1", "broker": "h:2", "node_id": 1, "bootstrap": bootstrap})
    found = front_settings(s, lambda: "id", own_principal=principal)
    assert (found.own, set(found.own_principals)) == (own, let_through)
