"""A sample of the client matrix: clients written in Python, beside librdkafka and Java in tests/clients.

`make clients` plays the whole matrix.
"""

from __future__ import annotations

import pytest

from sidecar.drill.local import LocalKafka
from tests.matrix.cluster import Cluster
from tests.matrix.scenarios import SCENARIOS, Play
from tests.matrix.table import CLIENTS

BY_NAME = {c.name: c for c in CLIENTS}


@pytest.mark.parametrize(("client", "scenario"), [("kafka-python-range", "rebalance"), ("aiokafka-range", "rebalance")])
def test_two_members_share_a_topic_and_one_leaves(trio: LocalKafka, client: str, scenario: str) -> None:
    found = BY_NAME[client]
    play = Play(Cluster.of(trio), found, found.kit.build(), scenario)
    try:
        SCENARIOS[scenario][1](play)
    finally:
        play.end()
