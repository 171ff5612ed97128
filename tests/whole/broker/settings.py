"""Kafka's settings: their defaults, and what is in force for a broker, a topic or a group.

configs.tsv holds what a real broker 4.3.1 told of them. Layers, the first that has a value wins: the resource's own,
for one broker, for all brokers, the static ones, Kafka's default (the order of ConfigHelper and DynamicBrokerConfig).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.whole.broker.image import BROKER, GROUP, TOPIC, Image

OWN_TOPIC, OWN_BROKER, DEFAULT_BROKER, STATIC, DEFAULT, OWN_GROUP = 1, 2, 3, 4, 5, 8
SOURCES = {TOPIC: OWN_TOPIC, BROKER: OWN_BROKER, GROUP: OWN_GROUP}
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = range(1, 8)
LATER_NAMES = {
    "retention.ms": "log.retention.ms",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
}
"""Settings of topics whose name at a broker a broker without a value for it does not tell."""


@dataclass(frozen=True, slots=True)
class Known:
    """`broker_name`: where a topic's or a group's value comes from if it has none."""

    name: str
    value_type: int
    read_only: bool
    sensitive: bool
    default: str | None
    broker_name: str


@cache
def known(resource_type: int) -> Mapping[str, Known]:
    found = {}
    for line in Path(__file__).with_name("configs.tsv").read_text().splitlines():
        if not line.startswith(f"{resource_type}\t"):
            continue
        _, name, value_type, flags, default, synonym = line.split("\t")
        text = None if default == "\\N" else default.replace("\\n", "\n")
        broker_name = synonym if synonym != "-" else LATER_NAMES.get(name, "")
        found[name] = Known(name, int(value_type), "r" in flags, "s" in flags, text, broker_name)
    return found


class Settings:
    """As one broker sees them."""

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.static = static
        self.image = Image()
        self._of: object = None
        self._in_force: dict[tuple[str, ...], str] = {}
        """Values that have been asked for, by the settings of the image."""

    def layers(self, name: str) -> Iterator[tuple[str, int]]:
        """The values of one of the broker's settings with their sources, the one in force first."""
        for resource, source in ((str(self.node_id), OWN_BROKER), ("", DEFAULT_BROKER)):
            value = self.image.configs.get((BROKER, resource), {}).get(name)
            if value is not None:
                yield value, source
        if name in self.static:
            yield self.static[name], STATIC
        spec = known(BROKER).get(name)
        if spec is not None and spec.default is not None:
            yield spec.default, DEFAULT

    def _kept(self) -> dict[tuple[str, ...], str]:
        if self._of is not self.image.configs:
            self._of, self._in_force = self.image.configs, {}
        return self._in_force

    def text(self, name: str) -> str:
        kept = self._kept()
        if (name,) not in kept:
            kept[name,] = next(self.layers(name), ("", DEFAULT))[0]
        return kept[name,]

    def number(self, name: str) -> int:
        return int(self.text(name))

    def of(self, resource_type: int, resource: str, name: str) -> Iterator[tuple[str, str, int]]:
        """Name, value and source of each layer of a topic's or a group's setting."""
        value = self.image.configs.get((resource_type, resource), {}).get(name)
        if value is not None:
            yield name, value, SOURCES[resource_type]
        spec = known(resource_type)[name]
        layers = [(spec.broker_name, v, s) for v, s in self.layers(spec.broker_name)] if spec.broker_name else []
        yield from layers
        if not layers and spec.default is not None and resource_type == GROUP:
            yield name, spec.default, DEFAULT

    def topic(self, topic: str, name: str) -> str:
        kept = self._kept()
        if (topic, name) not in kept:
            default = known(TOPIC)[name].default or ""
            kept[topic, name] = next((value for _, value, _ in self.of(TOPIC, topic, name)), default)
        return kept[topic, name]

    def retention_ms(self) -> int:
        return self.number("offsets.retention.minutes") * 60_000
