"""The generated codec against itself, against Kafka's own classes, and against broken bytes."""

from __future__ import annotations

import base64
import json
import random
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidecar.drill.artifacts import clients_jar, java
from sidecar.wire.primitives import STRING_MAX, WireError
from tests.harness.properties import HealthCheck, given, settings, st
from tests.wire.messages import Spec, specs
from tools.wire_model import EARLIER, NEWEST, Field

MUTATED_FRAMES = 200_000


@pytest.fixture(scope="module")
def served(libs: Path) -> list[Spec]:
    return list(specs())


def test_regenerating_gives_the_files_in_the_tree(libs: Path, root: Path) -> None:
    command = [sys.executable, "-m", "tools.generate_wire", "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_every_message_and_version_round_trips(served: list[Spec], seed: int) -> None:
    rng = random.Random(seed)
    for spec in served:
        for version in spec.versions:
            message = spec.make(rng, version)
            raw = message.encode(version)
            again = type(message).decode(version, raw)
            assert again == message, (spec.message.name, version)
            assert again.encode(version) == raw


def test_bytes_equal_kafkas_own_classes(served: list[Spec], libs: Path, root: Path) -> None:
    """One JVM for each Kafka: it reads our bytes, writes them again, and says in JSON what it read."""
    rng = random.Random(848)
    made = [(s.kafka(v), s.message.name, v, s.make(rng, v)) for _ in range(12) for s in served for v in s.versions]
    for kafka in (NEWEST, EARLIER):
        cases = [case for version, *case in made if version == kafka]
        lines = "".join(f"{name} {v} hex:{m.encode(v).hex()}\n" for name, v, m in cases)
        command = [java(), "-cp", f"{clients_jar(kafka)}:{libs}/*", str(root / "tests/java/WireOracle.java")]
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=120)
        answers = done.stdout.splitlines()
        assert len(answers) == len(cases)
        for (name, v, m), answer in zip(cases, answers, strict=True):
            raw, _, text = answer.partition(" ")
            assert raw == m.encode(v).hex(), (name, v, answer)
            same(json.loads(text), m, f"{name} v{v}")


def same(theirs: Any, ours: Any, where: str) -> None:
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            if key == "records":
                continue  # Kafka's JSON leaves record batches out; the bytes were compared
            name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", key)).lower()
            if hasattr(ours, name):  # the size of records stands in place of their bytes
                same(value, getattr(ours, name), f"{where}.{name}")
            else:
                assert name.endswith("size_in_bytes"), (where, name)
    elif isinstance(theirs, list) and isinstance(ours, list):
        assert len(theirs) == len(ours), where
        for n, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            same(a, b, f"{where}[{n}]")
    elif isinstance(ours, bytes):
        text = base64.urlsafe_b64encode(ours).decode().rstrip("=")
        assert theirs.rstrip("=") in (text, base64.b64encode(ours).decode().rstrip("=")), where
    else:
        assert theirs == ours, where


def test_mutated_frames_raise_nothing_but_wire_error(served: list[Spec]) -> None:
    rng = random.Random(20_000)
    seeds = [(type(m := s.make(rng, v)), v, m.encode(v)) for _ in range(3) for s in served for v in s.versions]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for n in range(MUTATED_FRAMES):
        kind, version, raw = seeds[n % len(seeds)]
        b = bytearray(raw)
        for _ in range(rng.randint(1, 3)):
            how = rng.random()
            at = rng.randrange(len(b) + 1)
            if how < 0.4 and at < len(b):
                b[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            elif how < 0.6:
                b[at:at] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff" * 10, b"\x80\x80\x80"))
            elif how < 0.8:
                del b[at:]
            else:
                b[at : at + rng.randint(1, 9)] = rng.randbytes(rng.randint(0, 9))
        try:
            kind.decode(version, bytes(b))
        except WireError:
            refused += 1
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    assert refused > MUTATED_FRAMES // 10, "the mutations hardly break anything: the test has no teeth"
    assert grown_mib < 100, f"memory jumped by {grown_mib:.0f} MiB"


class _OneLong(Spec):
    """A message whose `at`-th string has `size` bytes."""

    at = size = seen = 0

    def _one(self, kind: str, rng: random.Random, version: int, depth: int) -> Any:
        if kind != "string":
            return super()._one(kind, rng, version, depth)
        self.seen += 1
        return "x" * self.size if self.seen - 1 == self.at else "s"

    def _value(self, f: Field, rng: random.Random, version: int, depth: int) -> Any:
        """Returns a value that is not null; an array has one element."""
        one = self._one(f.element if f.is_array else f.type, rng, version, depth + 1)
        return [one] if f.is_array else one


def _with_long_string(spec: Spec, version: int, at: int, size: int) -> tuple[Any, bool]:
    """The message, and whether it has so many strings."""
    made = _OneLong(spec.message, spec.module)
    made.at, made.size = at, size
    return made.make(random.Random(1), version), made.seen > at


def test_no_string_of_any_message_is_longer_than_kafka_has_it(
    served: list[Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: compact strings of any length were read, and kept as keys; writing one in the old format broke the
    handler."""
    compact = 0
    for spec in served:
        version = max(spec.versions)
        for v in {version, min(spec.versions)}:
            at = 0
            while True:
                fits, there = _with_long_string(spec, v, at, STRING_MAX)
                if not there:
                    break
                assert type(fits).decode(v, fits.encode(v)) == fits
                long, _ = _with_long_string(spec, v, at, STRING_MAX + 1)
                with pytest.raises(WireError, match="too long"):
                    long.encode(v)
                with monkeypatch.context() as m:
                    m.setattr(spec.module, "STRING_MAX", 1 << 20)
                    try:
                        raw = long.encode(v)
                    except struct.error:
                        raw = b""  # the old format has no room for it
                if raw:
                    compact += 1
                    with pytest.raises(WireError, match="too long"):
                        type(long).decode(v, raw)
                at += 1
    assert compact > 100


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff\x0f", b"\x80" * 6, b"", b"\x02"])
def test_lying_lengths_are_refused_before_anything_is_reserved(raw: bytes) -> None:
    from sidecar.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    with pytest.raises(WireError):
        ConsumerGroupHeartbeatRequest.decode(1, raw)


def test_unknown_tagged_fields_are_skipped() -> None:
    from sidecar.wire.generated.heartbeat import HeartbeatRequest

    raw = HeartbeatRequest("g", 3, "m").encode(4)
    tagged = raw[:-1] + b"\x02" + b"\x05\x03abc" + b"\x63\x00"
    assert HeartbeatRequest.decode(4, tagged) == HeartbeatRequest("g", 3, "m")


def test_a_version_that_is_not_served_is_a_wire_error() -> None:
    from sidecar.wire.generated.heartbeat import HeartbeatRequest

    with pytest.raises(WireError, match="version 5"):
        HeartbeatRequest().encode(5)
