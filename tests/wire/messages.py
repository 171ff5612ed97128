"""Random messages of every served API and version, made from Kafka's own JSON, as the generator reads it."""

from __future__ import annotations

import importlib
import random
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from sidecar.drill.artifacts import clients_jar
from tools.wire_model import EARLIER, HEADERS, INTS, NEWEST, SERVED, Field, Message, Schemas, rename, snake

LIMITS = {"b": (-128, 127), "h": (-(1 << 15), (1 << 15) - 1), "H": (0, (1 << 16) - 1), "i": (-(1 << 31), (1 << 31) - 1)}
LIMITS |= {"I": (0, (1 << 32) - 1), "q": (-(1 << 63), (1 << 63) - 1)}


@dataclass
class Spec:
    message: Message
    module: ModuleType
    newest_low: int = 0
    """The lowest version that the newest Kafka has."""

    @property
    def versions(self) -> range:
        return range(self.message.valid.low, self.message.valid.high + 1)

    def kafka(self, version: int) -> str:
        """The Kafka whose classes know this version."""
        return EARLIER if version < self.newest_low else NEWEST

    def make(self, rng: random.Random, version: int) -> Any:
        return self._struct(self.message.name, rng, version, 0)

    def _struct(self, name: str, rng: random.Random, version: int, depth: int) -> Any:
        fields = next(s for s in self.message.structs if s.name == name).fields
        values = {f.name: self._value(f, rng, version, depth) for f in fields if version in f.versions}
        return getattr(self.module, name)(**values)

    def _value(self, f: Field, rng: random.Random, version: int, depth: int) -> Any:
        if version in f.nullable and rng.random() < 0.25:
            return None
        if f.is_array:
            n = rng.choice((0, 1, 1, 2, 3, 130 if depth == 0 and f.element in ("int32", "string") else 2))
            return [self._one(f.element, rng, version, depth + 1) for _ in range(n)]
        return self._one(f.element, rng, version, depth + 1)

    def _one(self, kind: str, rng: random.Random, version: int, depth: int) -> Any:
        if kind == "string":
            return rng.choice(("", "a", "group-1", "ünïcode ☃", "x" * rng.choice((126, 127, 128, 300))))
        if kind in ("bytes", "records"):
            return rng.randbytes(rng.choice((0, 1, 127, 200)))
        if kind == "uuid":
            return rng.randbytes(16)
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return rng.random()
        if kind in INTS:
            low, high = LIMITS[INTS[kind]]
            return rng.choice((low, high, 0, 1, rng.randint(low, high)))
        return self._struct(kind, rng, version, depth)


def specs() -> Iterator[Spec]:
    with zipfile.ZipFile(clients_jar(NEWEST)) as newest, zipfile.ZipFile(clients_jar(EARLIER)) as earlier:
        schemas = Schemas(newest, earlier)
        for name in SERVED:
            module = importlib.import_module(f"sidecar.wire.generated.{snake(name)}")
            taken: set[str] = set()
            for kind in ("Request", "Response"):
                message = schemas.message(name + kind)
                for clash in sorted({s.name for s in message.structs} & taken):
                    rename(message, clash, kind + clash)
                taken |= {s.name for s in message.structs}
                yield Spec(message, module, schemas.lowest(message.name))
        module = importlib.import_module("sidecar.wire.generated.headers")
        for name in HEADERS:
            yield Spec(schemas.message(name), module)
