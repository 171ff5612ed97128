"""`sidecar history` and `sidecar owner`: questions about one group, answered from one partition of the state topic.

No Spark and no sidecar is needed: they read the topic as any consumer does. `sidecar audit` has the same answers for
all groups, and for times whose records the topic has no longer.

Exit codes (exits.py): 0 found, 1 nothing found, 2 wrong usage, 3 the topic cannot be read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.connect import ROUTE, Bootstrap, CommandConfig, GroupId, StateTopic, client_of, readable
from sidecar.cli.exits import Code, Failed
from sidecar.cli.output import Format, Output, Watch, print_rows, run
from sidecar.cli.plain import echo

if TYPE_CHECKING:
    from sidecar.audit.history.fold import Interval
    from sidecar.audit.history.group_history import History
    from sidecar.audit.history.topic import Reader

EVENT = ("time", "offset", "what", "who", "detail", "why")
"""Columns of `sidecar history`."""
OWNED = ("group", "partition", "member", "client", "epoch", "certain", "since", "until", "why")
"""Columns of `sidecar owner`, but for those of the coordinator."""
NOW = 1 << 62
"""A moment after every record: the clock of this machine may be behind that of the brokers."""
DIGITS = 10
"""Digits of the highest number that a partition may have."""
GENERATION = "generation "
"""Prefix of the detail of a classic group's event (audit/history/group_history.py)."""
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Not what was before. 2h is two hours ago.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Not what came later.")]
At = Annotated[str | None, typer.Option(metavar="TIME", help="As it was then. Without it: as it is now.")]


def history(
    group: GroupId,
    bootstrap: Bootstrap,
    since: Since = None,
    until: Until = None,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
    watch: Watch = 0,
) -> None:
    """Tell what has happened to a group: who joined and left, who got which partitions or tasks, who coordinated it.

    Of every kind of group, each event with its reason.
    """

    def show() -> Code:
        from sidecar.audit.history.group_history import history as history_of
        from sidecar.audit.moments import shown

        after, before = moment_of(since, 0), moment_of(until, 1 << 62)
        with _reading(bootstrap, topic, command_config) as reader:
            of_group = history_of(group, reader.of_group(group))
        rows = [
            {"time": shown(e.ms), "offset": e.offset, "what": e.what, "who": e.who, "detail": e.detail, "why": e.why}
            for e in of_group.events
            if after <= e.ms <= before
        ]
        if not any(e.what != "coordinator" for e in of_group.events):
            raise Failed(Code.FINDINGS, f"{topic} has no records of group {group}.", ROUTE)
        print_rows(rows, output, columns=EVENT)
        _warn(of_group)
        return Code.OK

    run(show, watch)


def owner(
    what: Annotated[
        str, typer.Argument(metavar="GROUP|TOPIC-P|TASK", help="A group, a partition, or a task such as 0_1.")
    ],
    bootstrap: Bootstrap,
    group: Annotated[
        str | None, typer.Option(help="Only this group. A task needs it; for a partition it is much quicker.")
    ] = None,
    at: At = None,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
    watch: Watch = 0,
) -> None:
    """Tell which member owns a partition or, of a group, all its owners and the sidecar that coordinates it.

    A partition of a share group may have several. Of a streams group these are tasks: active, standby and warm-up.
    """

    def show() -> Code:
        at_ms = moment_of(at, NOW)
        with _reading(bootstrap, topic, command_config) as reader:
            rows, groups = _owners(reader, what, group, at_ms)
        if not rows:
            for of_group in groups:
                _warn(of_group)
            if any(at_ms < (of_group.complete_ms or 0) for of_group in groups):
                problem = f"Who owned {what} then is not known: {topic} lacks records of that time."
                raise Failed(
                    Code.FINDINGS, problem, "`sidecar audit ownership --at TIME` tells it if the audit ran in time."
                )
            owns = "owns" if at is None else "owned"
            problem = f"Nobody {owns} {what}{'' if at is None else ' then'}, as far as {topic} says."
            raise Failed(Code.FINDINGS, problem, f"Is it a group of the sidecars, or a partition of one? {ROUTE}")
        print_rows(rows, output)
        for of_group in groups:
            _warn(of_group)
        return Code.OK

    run(show, watch)


def _owners(reader: Reader, what: str, group: str | None, at_ms: int) -> tuple[list[dict[str, Any]], list[History]]:
    """Returns the owners of a partition in each group, or in `group`; or all owners in a group, and the histories that
    tell it or should. A group's name has precedence over a partition's."""
    from sidecar.audit.history.fold import OWNING
    from sidecar.audit.history.group_history import history as history_of

    place = place_of(what)
    is_task = re.fullmatch(r".*\S_\d+", what) is not None
    named = group if group is not None else what
    if group is not None and place is None and not is_task:
        raise typer.BadParameter(f"{what} is no partition, as TOPIC-0 is, and no task, as 0_1 is.")
    of_group = history_of(named, reader.of_group(named))
    if group is not None or place is None or of_group.intervals:
        owners = list(_at(of_group, at_ms, what if group is not None else None))
        unowned = [{**dict.fromkeys(OWNED, ""), "epoch": None, "group": named, **_coordinator(of_group, at_ms)}]
        existed = any(e.what != "coordinator" and e.ms <= at_ms for e in of_group.events)
        return owners or (unowned if existed and place is None and group is None else []), [of_group]
    rows, groups = [], []
    for p in range(reader.partitions()):
        taken = reader.read(p, lambda key: key.kind in OWNING)
        for some_group, its_records in taken.about_topic(place[0]).items():
            of_some_group = history_of(some_group, its_records.rows())
            here = list(_at(of_some_group, at_ms, what))
            rows += here
            if here or at_ms < (of_some_group.complete_ms or 0):
                groups.append(of_some_group)
    return rows, groups


def place_of(text: str) -> tuple[str, int] | None:
    topic, _, partition = text.rpartition("-")
    is_number = partition.isascii() and partition.isdigit() and len(partition) <= DIGITS
    return (topic, int(partition)) if topic and is_number else None


def _at(of_group: History, at_ms: int, place: str | None) -> Iterator[dict[str, Any]]:
    """Yields the owners at a moment. `place`: only of that partition; of a task, in any role."""
    from sidecar.audit.moments import shown

    coordinator, generation = _coordinator(of_group, at_ms), _generation(of_group, at_ms)
    for i in sorted(of_group.intervals, key=_in_order):
        if i.from_ms <= at_ms and (i.to_ms is None or at_ms < i.to_ms) and place in (None, *_names(i)):
            yield {
                "group": of_group.group_id,
                "partition": i.place,
                "member": i.member_id,
                "client": i.client_id,
                "epoch": i.member_epoch if generation is None else generation,
                "certain": "yes" if i.sure(at_ms) else "no: records are missing",
                "since": f"{'' if i.exact else 'by '}{shown(i.from_ms)}",
                "until": "" if i.to_ms is None else f"{'' if i.to_exact else 'by '}{shown(i.to_ms)}",
                "why": i.from_why,
                **coordinator,
            }


def _names(i: Interval) -> tuple[str, str]:
    """Returns the names of the place: a task of another role goes by the task's name, too."""
    return i.place, i.place.rpartition(" ")[2]


def _in_order(i: Interval) -> tuple[str, int, str, str]:
    """Sort key that puts all members with the same task beside one another, whatever their roles."""
    return i.topic.rpartition(" ")[2], i.partition, i.topic, i.member_id


def _generation(of_group: History, at_ms: int) -> int | None:
    """Returns the generation of a group that was a classic one then; None of another. The epoch of its members may be
    an older one: a kept assignment is not written again."""
    epochs = [
        e for e in of_group.events if e.ms <= at_ms and (e.what == "group epoch" or e.detail.startswith(GENERATION))
    ]
    if not epochs or epochs[-1].what == "group epoch":
        return None
    return int(epochs[-1].detail.removeprefix(GENERATION).split(",")[0])


def _coordinator(of_group: History, at_ms: int) -> dict[str, str]:
    """Returns the sidecar that coordinated the group then, its address, and since when without a break. `by`: it may
    have been earlier, because the claim before is missing."""
    from sidecar.audit.moments import shown
    from sidecar.core.runtime.commands import RENEWED

    claims = [e for e in of_group.events if e.what == "coordinator" and e.ms <= at_ms]
    if not claims:
        return dict.fromkeys(("coordinator", "address", "coordinates_since"), "")
    began = next((shown(e.ms) for e in reversed(claims) if e.why != RENEWED), f"by {shown(claims[0].ms)}")
    address = claims[-1].detail.partition(",")[0]
    return {"coordinator": claims[-1].who, "address": address, "coordinates_since": began}


# ---- reading and printing -------------------------------------------------------------------------------------------
def moment_of(text: str | None, otherwise: int) -> int:
    from sidecar.audit.moments import moment

    if text is None:
        return otherwise
    try:
        return moment(text, int(time.time() * 1000))
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from None


@contextmanager
def _reading(bootstrap: str, topic: str, command_config: Path | None) -> Iterator[Reader]:
    """Opens a reader. Raises Failed, also where the topic cannot be read while the reader is in use."""
    with readable(), client_of(command_config).reader(bootstrap, topic) as reader:
        yield reader


def _warn(of_group: History) -> None:
    """Warns of records that are missing or cannot be read."""
    from sidecar.audit.moments import shown

    if of_group.missing:
        since = f"what was before {shown(of_group.complete_ms or 0)}"
        echo(
            f"Compaction took {of_group.missing} records of group {of_group.group_id}: {since} may be incomplete. "
            "`sidecar audit` keeps them, if it ran in time.",
            err=True,
        )
    if of_group.unreadable:
        problem = f"{of_group.unreadable} records of group {of_group.group_id} cannot be read"
        echo(f"{problem}; the others do not say what they said.", err=True)
