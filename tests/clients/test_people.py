"""People see live groups of all four kinds on a real broker: the list, a description, members, reasons, history, the
live view and the page's API. A share group and a streams group of the broker's own are listed, too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sidecar.drill.artifacts import KAFKA, cache_dir, java
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process, wait_until
from tests.clients.ground import ENV, make_topic
from tests.clients.test_cli import call, consumer, json_of, poll
from tests.matrix.table import STREAMS

pytestmark = pytest.mark.tier("all")
JAVA = Path(__file__).parent.parent / "java"
LIBS = cache_dir() / "matrix" / f"java/kafka-streams-{KAFKA}" / "libs"
SETTINGS = {
    **ENV,
    "SIDECAR_GROUPS__KINDS": '["classic", "consumer", "share", "streams"]',
    "SIDECAR_STREAMS__INITIAL_REBALANCE_DELAY_MS": "500",
}
OF = {"managed-app": "streams", "managed-share": "share", "managed-new": "consumer", "managed-old": "classic"}
THEIRS = "their-share"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    STREAMS.build()  # fetches the jars
    k = LocalKafka(tmp_path_factory.mktemp("people"), brokers=1, sidecar_env=SETTINGS)
    started: list[Process] = []
    try:
        k.start()
        for name in ("orders", "words", "counts"):
            make_topic(k, name, 2)
        share = [java(), "-cp", f"{k.libs}/*", str(JAVA / "ShareReader.java"), k.bootstrap]
        word_count = [java(), "-cp", f"{LIBS}/*", str(JAVA / "WordCount.java"), k.bootstrap, "managed-app"]
        for name, command in (
            ("managed-share", [*share, "managed-share", "orders", "reader-1"]),
            (THEIRS, [*share, THEIRS, "orders", "reader-2"]),
            ("managed-app", [*word_count, "words", "counts", "app-1", "at_least_once"]),
        ):
            started.append(Process(name, command, k.folder / f"{name}.log").start())
        yield k
    finally:
        for process in started:
            process.kill()
        k.stop()


def listed(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in call(*words, "-o", "json").stdout.splitlines()]


def test_people_see_groups_of_all_kinds(kafka: LocalKafka) -> None:
    here = ("--bootstrap", kafka.bootstrap)
    new = consumer(kafka.bootstrap, "managed-new", "new")
    old = consumer(kafka.bootstrap, "managed-old", "old", **{"group.protocol": "classic"})
    for c in (new, old):
        c.subscribe(["orders"])

    def settled() -> bool:
        poll(0.3, new, old)
        rows = {r["group"]: r for r in listed("groups", "list", *here)}
        return {*OF, THEIRS} <= rows.keys() and all(rows[g]["members"] == 1 for g in OF) and all(stable(g) for g in OF)

    def stable(group: str) -> bool:
        found = json_of("groups", "describe", group, *here)
        return found["state"] == "Stable" and bool(found["members"][0]["owns"])

    wait_until("all groups", settled, 120)
    rows = {r["group"]: r for r in listed("groups", "list", *here)}
    assert {g: (rows[g]["type"], rows[g]["state"], rows[g]["where"]) for g in OF} == {
        g: (kind, "Stable", "sidecar") for g, kind in OF.items()
    }
    assert (rows[THEIRS]["type"], rows[THEIRS]["members"], rows[THEIRS]["where"]) == ("share", 1, "broker")
    top = {r["group"]: r for r in listed("top", "--once", *here)}
    assert {g: (top[g]["type"], top[g]["state"], top[g]["members"]) for g in OF} == {
        g: (kind, "Stable", 1) for g, kind in OF.items()
    }
    page = on_the_page(kafka)
    assert {g: (page[g]["kind"], page[g]["state"], page[g]["members"], page[g]["broker"]) for g in OF} == {
        g: (kind, "Stable", 1, None) for g, kind in OF.items()
    }
    theirs = page[THEIRS]
    assert (theirs["kind"], theirs["state"], theirs["where"], theirs["broker"]) == ("share", "Stable", "broker", 1)
    assert page.keys() == rows.keys(), "the placeholders of the sidecars' groups are none"
    behind(kafka, here, new)
    streams = json_of("groups", "describe", "managed-app", *here)
    tasks = sorted(place for m in streams["members"] for place in m["owns"])
    assert tasks == ["0_0", "0_1", "1_0", "1_1"] and streams["more"]["topology_epoch"] == 0
    share = json_of("groups", "describe", "managed-share", *here)
    assert sorted(share["members"][0]["owns"]) == ["orders-0", "orders-1"]
    for group in OF:
        explained = call("groups", "explain", group, *here)
        assert explained.exit_code == 0 and f"{group} is stable" in explained.stdout
        events = {r["what"] for r in listed("groups", "history", group, *here)}
        assert {"joined", "owns"} <= events
    if os.environ.get("SHOW"):
        show(kafka)
    for c in (new, old):
        c.close()


def on_the_page(kafka: LocalKafka) -> dict[str, Any]:
    told = json.load(urlopen(f"http://127.0.0.1:{kafka.nodes[0].admin_port}/api/v1/groups"))
    return {g["group"]: g for g in told["groups"]}


def behind(kafka: LocalKafka, here: tuple[str, str], new: Consumer) -> None:
    """Makes groups of the sidecars and of the broker with lags."""
    bootstrap = kafka.bootstrap
    made = Producer({"bootstrap.servers": bootstrap})
    for n in range(5):
        made.produce("orders", str(n), partition=0)
    assert made.flush(30) == 0
    theirs = consumer(bootstrap, "their-old", "theirs", **{"group.protocol": "classic"})
    for c in (new, theirs):
        c.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)

    def lag_by_group() -> dict[str, Any]:
        return {r["group"]: r["lag"] for r in listed("groups", "list", "--lag", *here)}

    wait_until(
        "what share groups have to do", lambda: lag_by_group()[THEIRS] == lag_by_group()["managed-share"] == 0, 60
    )
    found = lag_by_group()
    assert (found["managed-new"], found["their-old"]) == (2, 2)
    assert found["managed-old"] is None, "it has committed nothing"
    shown = {g: n if n != "" else None for g, n in found.items()}
    wait_until("the page", lambda: {g: r["lag"] for g, r in on_the_page(kafka).items()} == shown, 60)
    theirs.close()


def show(kafka: LocalKafka) -> None:
    """Prints what a terminal shows: `SHOW=1 pytest -s`."""
    here, node = ("--bootstrap", kafka.bootstrap), kafka.nodes[0]
    for words in (
        ("groups", "list", *here),
        ("groups", "list", "--lag", *here),
        ("groups", "describe", "managed-app", *here),
        ("groups", "describe", "managed-share", *here),
        ("groups", "describe", "managed-app", "--admin", f"127.0.0.1:{node.admin_port}"),
        ("groups", "members", "managed-app", *here),
        ("groups", "explain", "managed-app", *here),
        ("groups", "explain", "managed-share", *here),
        ("groups", "history", "managed-app", *here),
        ("groups", "history", "managed-share", *here),
        ("top", "--once", *here),
    ):
        print("$ sidecar", *words)
        print(call(*words).output)
