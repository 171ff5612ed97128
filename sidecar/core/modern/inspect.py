"""Views of groups with epochs for people, for any kind (runtime/inspect.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sidecar.core.modern.explain import Explainer
from sidecar.core.modern.group import ModernGroup
from sidecar.core.modern.sessions import SESSION
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.inspect import (
    Body,
    Heading,
    HeldPartitions,
    HistoryNotes,
    Inspect,
    MemberView,
    Names,
    Note,
    client_of,
)

STATES = {
    "Empty": "it has no members",
    "Assigning": "a new target assignment is due",
    "Reconciling": "members are on their way to the target assignment",
    "Stable": "everybody has what it is to have",
}
AT_REST = frozenset(("Empty", "Stable"))


def inspecting(
    explain: Explainer, states: Mapping[str, str], history: Mapping[str, HistoryNotes], **own: Any
) -> Inspect:
    """Returns the views of one kind. `own`: fields of `Inspect` that replace those shared by all kinds with epochs."""

    def member(group: ModernGroup[Any], member_id: str, names: Names) -> MemberView | None:
        m = group.members.get(member_id)
        return None if m is None else explain.view(group, m, names)

    shared: dict[str, Any] = {
        "at_rest": AT_REST,
        "facts": facts,
        "member": member,
        "heading": heading,
        "begins": begins,
        "places": places,
        "session": SESSION,
        "live": live,
        "place": explain.place,
    }
    return Inspect(states=states, history=history, explain=explain, **{**shared, **own})


def facts(group: ModernGroup[Any]) -> dict[str, Any]:
    """Returns `epoch`, `assignment_epoch`, `assignor`, and `assigned_ms`: when the target was made, Unix
    milliseconds."""
    fields = {"epoch": group.epoch, "assignment_epoch": group.assignment_epoch, "assignor": group.assignor}
    return {**fields, "assigned_ms": group.assignment_timestamp_ms}


def heading(body: Body) -> Heading:
    return Heading(body["epoch"])


def begins(before: Heading | None, now: Heading) -> bool:
    return before is None or before.epoch != now.epoch


def by_name(parts: Mapping[bytes, Iterable[int]], names: Names) -> dict[str, list[int]]:
    """Returns topic -> sorted partitions; a topic without a known name by its id."""
    return {names.get(t) or t.hex(): sorted(ps) for t, ps in parts.items()}


def places(body: Body) -> set[tuple[Any, ...]]:
    """Returns (topic id, partition) of a member's target."""
    return {(i["topic_id"], p) for i in body["partitions"] for p in i["partitions"]}


def topics_held(items: Iterable[Body], alone: bool) -> Iterable[HeldPartitions]:
    """Yields the partitions held, from the fields by topic of a value."""
    for i in items:
        yield HeldPartitions(i["topic_id"].hex(), i["topic_name"], i["partitions"], alone)


def live(soft: ModernSoft) -> Mapping[str, Any]:
    runs = "" if soft.flight is None else soft.flight.assignor
    return {"assignor_runs": runs, "failures": soft.failures, "goes_back": soft.releasing}


# ---- history --------------------------------------------------------------------------------------------------------
def group_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    if body is None:
        yield Note("the group is gone")
    elif last is None or last["epoch"] != body["epoch"]:
        yield Note("group epoch", "", str(body["epoch"]))


def target_notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
    if body is not None:
        yield Note("target assignment", "", f"epoch {body['assignment_epoch']} by {body['assignor'] or 'no assignor'}")


def member_notes(about: Callable[[Body], str]) -> HistoryNotes:
    """`about(value)` returns the member's own details beside its client."""

    def notes(sub_id: str, body: Body | None, last: Body | None) -> Iterable[Note]:
        if body is None:
            if last is not None:
                yield Note("left", sub_id, client_of(last))
        elif body != last:
            what = "joined" if last is None else "says something else of itself"
            yield Note(what, sub_id, ", ".join(t for t in (client_of(body), about(body)) if t))

    return notes
