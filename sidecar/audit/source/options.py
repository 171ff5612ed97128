"""Options of the sources and of a run: their names and values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sidecar.audit.errors import Misused

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
