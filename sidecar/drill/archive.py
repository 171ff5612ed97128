"""Makes an archive of the classes that a broker loads (JDK, class data sharing): `python -m sidecar.drill.archive`.

Brokers that start with it need half of the processor time. It is made once, for runs with many brokers; without it, or
with one of another Java or other jars, a broker starts as usual.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sidecar.drill.artifacts import KAFKA, archive_file, kafka_libs
from sidecar.drill.local import JVM, LocalKafka
from sidecar.drill.processes import DrillError

STOP_S = 60.0


def make(version: str) -> Path:
    """Make the archive for this version, if there is none, and return its path. Raises DrillError if the broker does
    not start, or leaves no archive."""
    kafka_libs(version)
    made = archive_file(version)
    if made.exists():
        return made
    making = made.with_suffix(".making")
    making.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="sidecar-archive-") as tmp:
        kafka = LocalKafka(Path(tmp, "run"), 1, version, "none", jvm=(*JVM, f"-XX:ArchiveClassesAtExit={making}"))
        try:
            kafka.start()
            broker = kafka.nodes[0].process
            assert broker is not None
            broker.stop(STOP_S)  # the archive is written at its end
        finally:
            kafka.stop()
        if not making.exists():
            raise DrillError(f"Kafka {version} left no archive of its classes.\n{broker.tail()}")
    making.rename(made)
    return made


if __name__ == "__main__":
    for wanted in sys.argv[1:] or [KAFKA]:
        try:
            print(f"classes of Kafka {wanted}: {make(wanted)}")
        except DrillError as exc:
            print(f"{exc}\nBrokers start without it, which takes longer.", file=sys.stderr)
