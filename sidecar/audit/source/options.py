"""Options of the sources and of a run: their names and values, and the offsets that they limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from sidecar.audit.errors import Misused
from sidecar.audit.lake.batch import Ranges
from sidecar.audit.source.dump import Offset, PartitionNumber

Split = Callable[[], Iterator[Any]]
"""A part of a source that one task reads, as rows of bronze. Can be pickled."""

READ = ("uri", "topic", "records_per_task")
"""Names that `group_state_records` takes, beside kafka.*."""
STREAM = (*READ, "starting_offsets", "max_records", "fail_on_data_loss")
RUN = (
    *("topic", "records_per_task", "starting_offsets", "max_records", "new_incarnation"),
    *("rows_per_task", "memory_per_task"),
)
"""Names that a batch of the lake takes, beside kafka.*."""
COUNT = (r"0*[1-9][0-9]*", "a number above 0")
FLAG = (r"(?i)true|false", "true or false")
VALUES = {
    "records_per_task": COUNT,
    "rows_per_task": COUNT,
    "max_records": (r"[0-9]+", "a number"),
    "memory_per_task": (r"(?i)[1-9][0-9]*(\.[0-9]+)? ?[MGT]i?B", "a size, such as 2GB or 512MB"),
    "new_incarnation": FLAG,
    "fail_on_data_loss": FLAG,
}
"""Pattern of each option's values, and its name."""


def check_options(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raises Misused if an option has another name than these, or an invalid value."""
    for name, value in options.items():
        if name not in known and not name.startswith("kafka."):
            raise Misused(f"there is no option {name} here: there are {', '.join(known)} and kafka.PROPERTY")
        pattern, form = VALUES.get(name, ("", ""))
        if pattern and not re.fullmatch(pattern, value):
            raise Misused(f"the option {name} is {form}, not {value!r}")


def starting_offsets(options: Mapping[str, str], bounds: Mapping[int, tuple[int, int]] | None = None) -> dict[int, int]:
    """Returns the first offset to read of each partition; one that is missing begins at its first record. Raises
    Misused, also for an offset that is not within the source's `bounds`."""
    text = options.get("starting_offsets", "earliest")
    if text == "earliest":
        return {}
    try:
        starts = msgspec.json.decode(text, type=dict[PartitionNumber, Offset])
    except msgspec.DecodeError as exc:
        form = 'earliest, or {"partition": offset} in JSON'
        raise Misused(f"the option starting_offsets is {form}, not {text!r} ({exc})") from None
    for p, offset in starts.items():
        if bounds is not None and (p not in bounds or offset > bounds[p][1]):
            why = f"ends at {bounds[p][1]}" if p in bounds else f"is none of {', '.join(map(str, sorted(bounds)))}"
            raise Misused(f"the option starting_offsets begins at offset {offset} of partition {p}, but that {why}")
    return starts


def limited(ranges: Ranges, most: int) -> Ranges:
    """Returns about `most` offsets of all these ranges, from each partition in proportion to its own. 0: no limit."""
    total = sum(b - a for a, b in ranges.values())
    if not most or total <= most:
        return ranges
    return {p: (a, min(b, a + max(1, (b - a) * most // total))) for p, (a, b) in ranges.items()}
