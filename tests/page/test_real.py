"""The page over real brokers and sidecars: what members do is seen, by any of the sidecars."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from sidecar.drill.local import LocalKafka
from tests.clients.ground import make_topic
from tests.page.browser import CheckedPages, chromium, fits, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.needs("chromium")
GROUP = "managed-<b>page</b>"


@pytest.fixture
def kafka(trio: LocalKafka) -> LocalKafka:
    return trio


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Member:
    """A consumer that polls on a thread of its own."""

    def __init__(self, kafka: LocalKafka, topic: str, protocol: str, client_id: str) -> None:
        config = {"bootstrap.servers": kafka.bootstrap, "group.id": GROUP, "client.id": client_id, "log_level": 2}
        config |= {"auto.offset.reset": "earliest", "auto.commit.interval.ms": "200"}
        self._consumer = Consumer({**config, "group.protocol": protocol})
        self._consumer.subscribe([topic])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.1)
        self._consumer.close()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(30)


def produce(kafka: LocalKafka, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    for partition in range(partitions):
        producer.produce(topic, b"v", partition=partition)
    assert producer.flush(30) == 0


def text_has(selector: str, words: str) -> str:
    return f"document.querySelector({selector!r}).innerText.includes({words!r})"


def test_members_come_and_go(kafka: LocalKafka, browser: Browser) -> None:
    topic = make_topic(kafka, "pages", 4)
    checked_pages = CheckedPages(browser)
    first = Member(kafka, topic, "consumer", "one")
    pages = [checked_pages.open(f"http://127.0.0.1:{n.admin_port}/", "phone") for n in kafka.nodes]
    try:
        for page in pages:
            until(page, text_has("#groups", GROUP), 40)
            page.locator("#groups a", has_text=GROUP).click()
            until(page, text_has("#facts", "Stable"), 30)
            assert page.locator("#members tr").count() == 1
            assert page.locator("#partitions tr").count() == 4
            assert fits(page)
        owned = [page.inner_text("#group-told") for page in pages]
        assert sum("This sidecar owns it" in text for text in owned) == 1, owned
        assert sum("Owned by node" in text for text in owned) == len(kafka.nodes) - 1, owned
        produce(kafka, topic, 4)
        for page in pages:
            until(
                page,
                "[...document.querySelectorAll('#partitions tr')].every(r => r.innerText.trim().endsWith('0'))",
                30,
            )
            until(page, text_has("#facts", "Lag\n0"), 30)
        second = Member(kafka, topic, "consumer", "two")
        for page in pages:
            until(page, "document.querySelectorAll('#members tr').length === 2", 30)
            until(page, text_has("#facts", "Stable"), 30)
            owners = set(page.locator("#partitions tr td:nth-child(2)").all_inner_texts())
            assert len(owners) == 2 and "nobody" not in owners
        second.leave()
        for page in pages:
            until(page, "document.querySelectorAll('#members tr').length === 1", 30)
            newest = page.locator("#rebalances tr").first.inner_text()
            assert "1: " in newest, newest
            assert page.locator("#rebalances tr").count() >= 3
    finally:
        first.leave()
    checked_pages.close()
