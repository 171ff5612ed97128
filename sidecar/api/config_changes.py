"""The division of changes of settings between sidecars and broker."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.api import slices
from sidecar.api.call import Call, Want
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code, CoordinatorError, fitting
from sidecar.link.messages import SettingsReply
from sidecar.wire.generated import incremental_alter_configs as ia

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Key = tuple[int, str]  # type and name of a resource
Errors = dict[Key, tuple[int, str | None]]


@dataclass(slots=True)
class Change:
    """A change to one resource. `ours`: name -> new value, where None removes the setting; `theirs`: what goes on to
    the broker."""

    ours: dict[str, str | None] = field(default_factory=dict)
    theirs: list[ia.AlterableConfig] = field(default_factory=list)


def divided(
    call: Call, resources: Sequence[ia.AlterConfigsResource], settings: SettingsReply, in_whole: bool
) -> Generator[Want, Any, tuple[dict[Key, Change], Errors, set[Key]]]:
    """Returns the change of each resource without an error, the errors in the broker's words, and the resources that
    are named twice. `settings`: those in force, among them what the broker keeps from before a group was managed;
    `in_whole`: the broker resets settings that are not named."""
    errors: Errors = {}
    changes: dict[Key, Change] = {}
    named: set[Key] = set()
    duplicates: set[Key] = set()

    def name(r: ia.AlterConfigsResource) -> None:
        key = (r.resource_type, r.resource_name)
        (duplicates if key in named else named).add(key)

    def begin(r: ia.AlterConfigsResource) -> None:
        key = (r.resource_type, r.resource_name)
        if key in duplicates:
            errors[key] = (Code.INVALID_REQUEST, "Each resource must appear at most once.")
        elif settings.code != Code.NONE and (is_ours(call, *key) if in_whole else changes_here(call, r)):
            errors[key] = (settings.code, settings.message)
        elif problem := _problem(r):
            errors[key] = (Code.INVALID_REQUEST, problem)
        else:
            changes[key] = Change()

    def place(of: tuple[ia.AlterConfigsResource, ia.AlterableConfig]) -> None:
        r, c = of
        key = (r.resource_type, r.resource_name)
        if key in errors:
            return
        try:
            _place(call, key, c, changes[key], held=c.name in settings.at_broker.get(r.resource_name, {}))
        except CoordinatorError as exc:
            errors[key] = (exc.code, exc.message or None)

    yield from slices.each(resources, name)
    yield from slices.each(resources, begin)
    yield from slices.each(((r, c) for r in resources for c in r.configs), place)
    return {k: c for k, c in changes.items() if k not in errors}, errors, duplicates


def _problem(resource: ia.AlterConfigsResource) -> str:
    names = [c.name for c in resource.configs]
    if len(set(names)) < len(names):
        return "Error due to duplicate config keys"
    null = [c.name for c in resource.configs if c.value is None and c.config_operation != DELETE]
    return fitting(f"Null value not supported for : {','.join(null)}") if null else ""


def _place(call: Call, key: Key, c: ia.AlterableConfig, change: Change, held: bool) -> None:
    """Adds one setting to the change. `held`: the broker keeps it from before the group was managed. Raises
    CoordinatorError in the broker's words."""
    resource_type, name = key
    value = None if c.config_operation == DELETE else c.value
    if is_move(resource_type, c.name):
        _check_operation(c)
        if resource_type == cf.BROKER and name:
            raise cf.invalid(f"{c.name} is the same for all brokers: leave the broker's id out.")
        change.ours[c.name] = value
    elif is_ours(call, resource_type, name) and _kept_here(call, c.name):
        _check_operation(c)
        change.ours[c.name] = value
        if value is None and held:
            change.theirs.append(c)
    else:
        if resource_type == cf.BROKER and c.name in cf.BROKER_OFFLOADS:
            change.ours[c.name] = value
        change.theirs.append(c)


def _check_operation(c: ia.AlterableConfig) -> None:
    if c.config_operation in (APPEND, SUBTRACT):
        verb = "APPEND" if c.config_operation == APPEND else "SUBTRACT"
        raise cf.invalid(f"Can't {verb} to key {c.name} because its type is not LIST.")
    if c.config_operation not in (SET, DELETE):
        raise CoordinatorError(Code.UNKNOWN_SERVER_ERROR, "")  # as a broker has it, which says no more


def changes_here(call: Call, r: ia.AlterConfigsResource) -> bool:
    """Returns whether a change of a managed group needs the coordinator. The broker's settings do not."""
    ours = is_ours(call, r.resource_type, r.resource_name)
    return ours and any(_kept_here(call, c.name) or is_move(r.resource_type, c.name) for c in r.configs)


def is_move(resource_type: int, name: str) -> bool:
    """Returns whether this setting decides which side coordinates a group. Only sidecars know such settings."""
    if resource_type == cf.GROUP:
        return name in cf.GROUP_MOVES
    return resource_type == cf.BROKER and name in cf.BROKER_MOVES


def is_ours(call: Call, resource_type: int, name: str) -> bool:
    return resource_type == cf.GROUP and call.scope.managed(name)


def _kept_here(call: Call, name: str) -> bool:
    """Returns whether this is a setting of a kind of groups that is served here."""
    served = {"share": call.scope.share, "streams": call.scope.streams}
    return name in cf.SETTINGS and served.get(name.partition(".")[0], True)


def only_moves(key: Key, change: Change) -> bool:
    return key[0] == cf.GROUP and not change.theirs and all(n in cf.GROUP_MOVES for n in change.ours)
