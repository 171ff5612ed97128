"""Three real sidecars without a fault, under clients of both protocols: every panel shows something, and for a minute
no alert fires. The faults are in the files behind this one, and what they have in common is in test_faults.py."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from tests.see.auditing import Audit
from tests.see.ground import CLASSIC, MODERN, TOPIC, Ground
from tools.boards import queries

pytestmark = [
    pytest.mark.tier("nightly"),
    pytest.mark.timeout(240),
    pytest.mark.needs("prometheus", "promtool"),
]
CALM_S = 60.0
AFTER_A_TAKEOVER = ("failover: Time of takeovers", "failover: Time to a placeholder")
"""Panels that look back at what happened before Prometheus was there."""


def empty_panels(ground: Ground) -> list[str]:
    asked = [(title, q) for title, q in queries() if not title.endswith(AFTER_A_TAKEOVER)]
    return [f"{title}: {query}" for title, query in asked if not ground.prometheus.values(query)]


def test_every_panel_shows_something(ground: Ground) -> None:
    end = time.monotonic() + 60
    while missing := empty_panels(ground):
        assert time.monotonic() < end, "\n".join(missing)
        time.sleep(1)


def test_sums_over_the_sidecars_count_everything_once(ground: Ground) -> None:
    values = ground.prometheus.values
    assert values("count(kafka_brokers)") == [1] and values("sum(kafka_brokers)") == [3]
    for group in (MODERN, CLASSIC):
        assert values(f'count(kafka_consumergroup_members{{consumergroup="{group}"}})') == [1]
        assert values(f'sum(kafka_consumergroup_members{{consumergroup="{group}"}})') == [2]
        assert values(f'count(kafka_consumergroup_lag{{consumergroup="{group}"}})') == [6]
        assert values(f'sum(kafka_consumergroup_lag_sum{{consumergroup="{group}"}})')[0] < 1_000
    assert values(f'count(kafka_topic_partition_current_offset{{topic="{TOPIC}"}})') == [6]
    committed = values(f'sum(kafka_consumergroup_current_offset_sum{{consumergroup="{MODERN}"}})')[0]
    assert 0 < committed <= produced(ground.kafka)
    topic = f'sum(kafka_topic_partition_current_offset{{topic="{TOPIC}"}})'
    # What Prometheus has of the topic may be of an earlier scrape than what it has of the group.
    wait_until("the ends of the topic", lambda: values(topic)[0] >= committed, 20, step_s=0.5)
    assert values(topic)[0] <= produced(ground.kafka)
    assert values("sum(sidecar_owned_partitions)") == [50]
    assert values("sum by (partition) (sidecar_partition_owned)") == [1] * 50


def produced(kafka: LocalKafka) -> int:
    """The sum of the topic's end offsets."""
    consumer = Consumer({"bootstrap.servers": kafka.internal, "group.id": "nobody", "log_level": 2})
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10)[1] for p in range(6))
    finally:
        consumer.close()


def test_for_a_minute_no_alert_fires(ground: Ground, starting_audit: Audit) -> None:
    """Meanwhile the audit starts, for the tests behind this one."""
    begun = time.time()
    wait_until("a minute", lambda: time.time() > begun + CALM_S, CALM_S + 5, step_s=1)
    assert ground.prometheus.fired(begun, time.time()) == []
