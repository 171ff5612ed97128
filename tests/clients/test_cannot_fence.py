"""A single broker with Kafka's default of three replicas for `__transaction_state`: InitProducerId cannot succeed, and
the sidecar says so, with the remedy, instead of being `ready` and loading for ever."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.clients.ground import ENV
from tests.clients.wire import join_request, talk

pytestmark = pytest.mark.tier("all")
LIMIT_S = 60
REMEDY = "transaction.state.log.replication.factor"


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    folder = tmp_path_factory.mktemp("lonely")
    properties = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
    cluster = LocalKafka(folder, brokers=1, properties=properties, sidecar_env=ENV)
    with cluster:
        yield cluster


def readyz(kafka: LocalKafka) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{kafka.nodes[0].admin_port}/readyz", timeout=1) as res:
            found: dict[str, Any] = json.load(res)
    except urllib.error.HTTPError as exc:
        found = json.load(exc)
    except (urllib.error.URLError, OSError):
        found = {"ready": False, "problems": []}
    return found


def test_readyz_and_the_log_name_the_reason_and_the_remedy(lonely: LocalKafka) -> None:
    log = lonely.folder / "sidecar-1.log"
    end = time.monotonic() + LIMIT_S
    while "created the state topic" not in log.read_text():  # from here on, fencing is all that is left to do
        assert time.monotonic() < end
        time.sleep(0.05)
    end = time.monotonic() + LIMIT_S
    while not any(REMEDY in p for p in readyz(lonely)["problems"]):
        assert time.monotonic() < end, readyz(lonely)
        time.sleep(0.05)
    assert readyz(lonely)["ready"] is False
    while REMEDY not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    assert "event='ready'" not in log.read_text()


def test_a_member_is_told_that_the_group_is_loading(lonely: LocalKafka) -> None:
    async def join(conn: BrokerConnection) -> int:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request("managed-alone", "m", ["t"]))
        return int(res.error_code)

    assert talk(lonely, join) == Code.COORDINATOR_LOAD_IN_PROGRESS
