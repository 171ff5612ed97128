"""Comparison of a source's topic with a lake's: in both the same offset must mean the same record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sidecar.audit.errors import Refused
from sidecar.audit.lake.batch import Batch, Ranges
from sidecar.audit.lake.lake import Lake
from sidecar.audit.source.kafka import KafkaSource
from sidecar.audit.source.uri import CopySource, Source

COMPARED = 1_000
"""Offsets that are compared in a state partition, the last ones of the lake."""
PARTITIONS = 8
"""State partitions that are compared, those of which both have most."""


def why_other_topic(
    source: Source, lake: Lake, before: Batch, identity: str, bounds: Mapping[int, tuple[int, int]]
) -> str:
    """Returns why the source cannot be the lake's topic; empty if it can be. `before`: the lake's last batch. Raises
    Refused if a source that does not know its topic's id, such as a dump, has other records."""
    if identity and before.identity and identity != before.identity:
        return f"{source.shown} was re-created: its id was {before.identity} and is {identity}."
    if isinstance(source, KafkaSource):
        for p, (_, end) in bounds.items():
            have = before.position.get(p, 0)
            if end < have:
                return f"{source.shown}: partition {p} ends at {end}, but the lake has it up to {have}."
    if identity and identity == before.identity:
        return ""
    differs = _differs(source, lake, _in_common(before, bounds))
    if differs and not identity:
        raise Refused(f"{differs} Give it a lake of its own.")
    return differs


def _in_common(before: Batch, bounds: Mapping[int, tuple[int, int]]) -> Ranges:
    """Returns ranges of offsets that the lake has read and the source may still have."""
    ranges: Ranges = {}
    for p, (low, high) in bounds.items():
        end = min(high, before.position.get(p, 0))
        if low < end:
            ranges[p] = (max(low, end - COMPARED), end)
    most = sorted(ranges, key=lambda p: (ranges[p][0] - ranges[p][1], p))[:PARTITIONS]
    return {p: ranges[p] for p in most}


def _differs(source: Source, lake: Lake, ranges: Ranges) -> str:
    """Returns how the records differ; empty if they do not. Compares only offsets that both have, because compaction
    removes records and changes none."""
    if not ranges:
        return ""
    known = dict(_records(CopySource("delta", lake.base), ranges))
    for (p, offset), record in _records(source, ranges):
        if known.get((p, offset), record) != record:
            return f"{source.shown}: the record at offset {offset} of partition {p} is another than the lake's."
    return ""


def _records(source: Source, ranges: Ranges) -> Iterator[tuple[tuple[int, int], tuple[bytes | None, bytes | None]]]:
    for split in source.splits(ranges):
        for batch in split():
            columns = (batch[name].to_pylist() for name in ("state_partition", "offset", "key", "value"))
            for p, offset, key, value in zip(*columns, strict=True):
                yield (p, offset), (key, value)
