"""The worlds that tests share: real brokers with sidecars, started once in a run and used by everybody.

`kafka`: one broker, whose only listener stands behind its sidecar. Nobody stops anything here for long.
`trio`: three brokers and three sidecars, for whatever kills, suspends or restarts one. After each test the world is
healed: what was stopped runs again, and every sidecar owns its share. A world that does not heal fails the test.

Each test uses topics and groups of its own. Groups `managed.*`, `copy.*` and `matrix.*` belong to the sidecars, all
others to the brokers. What only some groups need is a setting of these groups (`session_of`), not of the world.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sidecar.drill.local import LocalKafka

ENV: Mapping[str, str] = {
    "SIDECAR_GROUPS__INCLUDE": '["managed.*", "copy.*", "matrix.*"]',
    "SIDECAR_CONSUMER__MIN_HEARTBEAT_INTERVAL_MS": "300",
    "SIDECAR_CONSUMER__HEARTBEAT_INTERVAL_MS": "300",
    "SIDECAR_CONSUMER__MIN_SESSION_TIMEOUT_MS": "1000",
    "SIDECAR_METADATA_REFRESH_MS": "300",
    "SIDECAR_EXPORTER__INTERVAL_MS": "500",
}
PROPERTIES: Mapping[str, str] = {
    # With the default the broker's consumer groups need five seconds for each step of a rebalance.
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
}


def heal(world: LocalKafka) -> None:
    """Starts what does not run, wakes what was suspended, and waits until every sidecar serves its share and every
    broker is known to all."""
    from sidecar.drill.processes import port_open, wait_until

    for n in world.nodes:
        for process in (n.process, n.sidecar):
            if process is not None:
                process.signal(signal.SIGCONT)
        if n.process is None or not n.process.alive:
            world.start_broker(n)
        if n.sidecar is None or not n.sidecar.alive:
            world.start_sidecar(n)
    wait_until("the brokers", lambda: all(port_open(n.clients_port) for n in world.nodes), 120, world.processes())
    world.wait_ready(120)
    wait_until("each partition to be owned beside its leader", world.at_home, 120, world.processes())


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    from tests.clients.ground import backend

    world = backend()(
        tmp_path_factory.mktemp("one"), brokers=1, front="one", sidecar_env=dict(ENV), properties=dict(PROPERTIES)
    )
    with world:
        world.wait_ready()
        yield world


@pytest.fixture(scope="session")
def trio_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """Use `trio`, which heals it."""
    from sidecar.drill.local import LocalKafka

    env = {
        **ENV,
        "SIDECAR_CONSUMER__ASSIGNORS": '["uniform", "range", "rack-aware"]',
        # Each partition is owned beside its leader soon, also after a sidecar was killed.
        "SIDECAR_OWNERSHIP__FOLLOW_LEADER_MS": "1000",
    }
    world = LocalKafka(tmp_path_factory.mktemp("trio"), sidecar_env=env, properties=dict(PROPERTIES))
    with world:
        heal(world)
        yield world


@pytest.fixture
def trio(trio_world: LocalKafka) -> Iterator[LocalKafka]:
    yield trio_world
    heal(trio_world)


@pytest.fixture(scope="session")
def topic(kafka: LocalKafka) -> str:
    """A topic of six partitions with some records. Tests may add to it."""
    from tests.clients.ground import make_topic, produce

    name = make_topic(kafka, "orders", 6)
    produce(kafka, name, 60)
    return name
