"""`sidecar groups`: move a group between the broker and the sidecars, have it assigned anew.

Everything goes over the Kafka protocol through any sidecar, as settings of the group (core/vocabulary/group_config.py),
so the broker's authorizer decides, and Kafka's own kafka-configs can do the same. What only looks is in look.py and
listing.py.

A sidecar may die before it has answered. Then the command looks whether its order has been recorded, and sends it again
if it has not; an order is recorded as a whole or not at all.

Exit codes are those of exits.py: 0 done, 1 refused, 2 wrong usage, 3 timed out: the text says whether it goes on or
must be ordered again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from sidecar.cli.connect import CHECK, ROUTE, CommandConfig, GroupId, SidecarBootstrap, client_of, finite
from sidecar.cli.exits import Code, Failed
from sidecar.cli.output import Document, DocumentFormat, print_document
from sidecar.cli.plain import echo
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code as Kafka
from sidecar.core.vocabulary.errors import name_of

if TYPE_CHECKING:
    from sidecar.kafka.cluster import Cluster

REFUSED, TIMED_OUT = Code.FINDINGS, Code.UNREACHED
LOOK_S = 0.2
ANSWER_S, GLANCE_S = 30, 5
SILENT_S = 5
"""A command that waits longer says so."""
PASSING = (
    Kafka.REQUEST_TIMED_OUT,
    Kafka.COORDINATOR_LOAD_IN_PROGRESS,
    Kafka.COORDINATOR_NOT_AVAILABLE,
    Kafka.NOT_COORDINATOR,
)
"""Errors of sidecars that cannot record anything just now."""
GOES_ON = "what was asked for is recorded and goes on."
CAUSE = (
    "Wait, or say it again; that does no harm.\n"
    "`sidecar doctor` and the log of the group's owner (the node in `sidecar groups list`) name the cause."
)
MAY_ALTER = "Check the group's id, and whether this user may ALTER_CONFIGS of the group."
groups = typer.Typer(no_args_is_help=True, help="Move groups between brokers and sidecars; force a rebalance; look.")
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", callback=finite, help="Wait so long. What was said stays said.")
]


@groups.command()
def adopt(
    group: GroupId,
    bootstrap: SidecarBootstrap,
    command_config: CommandConfig = None,
    timeout: Timeout = 120,
    output: DocumentFormat = Document.TABLE,
) -> None:
    """Take a group over from the broker, under its live members."""
    admin = _GroupAdmin(group, bootstrap, command_config, timeout)
    admin.set_and_confirm("sidecar.managed", "true", lambda: admin.glance().get("sidecar.managed") == "true")

    def arrived() -> str:
        configs = admin.glance()
        if configs.get("sidecar.managed") == "false":
            admin.refused(
                configs["sidecar.why"], "The group stays with the broker. Say it again when that has changed."
            )
        if configs.get("sidecar.state") == "sidecar":
            return f"{group} is with the sidecars now."
        if configs.get("sidecar.managed") == "true" and admin.has_no_members():
            if admin.is_nowhere():
                return (
                    f"There is no group {group} yet. Whoever comes under that name comes to the sidecars; "
                    f"`sidecar groups release {group}` takes this order back."
                )
            return f"{group} is the sidecars' now; nobody is a member of it."
        return ""

    admin.done("adopt", admin.wait(arrived), output)


@groups.command()
def release(
    group: GroupId,
    bootstrap: SidecarBootstrap,
    command_config: CommandConfig = None,
    timeout: Timeout = 330,
    output: DocumentFormat = Document.TABLE,
) -> None:
    """Give a group back to the broker, under its live members. The sidecars run, and do it.

    `sidecar release` without `groups` is for the time when no sidecar runs any more."""
    admin = _GroupAdmin(group, bootstrap, command_config, timeout)
    if admin.is_nowhere():
        admin.done("release", _taken_back(admin), output)
        return
    admin.set_and_confirm("sidecar.managed", "false", lambda: admin.glance().get("sidecar.managed") == "false")

    def released() -> str:
        configs = admin.glance()
        if configs.get("sidecar.why", "").startswith(cf.NOT_GIVEN_BACK):
            admin.refused(configs["sidecar.why"], "The group stays with the sidecars.")
        return f"{group} is with the broker now." if configs.get("sidecar.state") == "broker" else ""

    admin.done("release", admin.wait(released), output)


def _taken_back(admin: _GroupAdmin) -> str:
    """The order to adopt a group that does not exist is removed, so that no order is left for its name."""
    if admin.look().get("sidecar.managed") not in ("true", cf.LATER):
        admin.refused(f"There is no group {admin.group}.", ROUTE)

    def removed(configs: Mapping[str, str]) -> bool:
        return "sidecar.state" in configs and "sidecar.managed" not in configs

    admin.set_and_confirm("sidecar.managed", None, lambda: removed(admin.glance()))

    def left() -> str:
        if not removed(configs := admin.glance()):
            return ""
        taken = f"There is no group {admin.group}. The order that it comes to the sidecars is taken back."
        return taken + (" The patterns still name it." if configs["sidecar.state"] == "comes" else "")

    return admin.wait(left)


@groups.command()
def rebalance(
    group: GroupId,
    bootstrap: SidecarBootstrap,
    reason: Annotated[str, typer.Option(help="Why; it is recorded in the state topic.")] = "asked for by hand",
    remove_instance: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Remove this static member first."),
    ] = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 330,
    output: DocumentFormat = Document.TABLE,
) -> None:
    """Have a group assigned anew."""
    admin = _GroupAdmin(group, bootstrap, command_config, timeout)
    configs = admin.look()
    if configs.get("sidecar.state", "broker") == "broker":
        admin.refused(f"{group} is not with the sidecars.", f"`sidecar groups adopt {group}` takes it over.")
    before = int(configs["sidecar.epoch"])
    removed = _removed(admin, remove_instance or [])

    def anew() -> int:
        return int(admin.glance().get("sidecar.epoch", -1))

    def recorded() -> bool:
        return "sidecar.rebalance" in admin.glance() or anew() > before

    def done() -> str:
        epoch = anew()
        if epoch > before:
            return f"{group} was assigned anew, in epoch or generation {epoch}."
        return f"{group} has no members to assign anything to." if admin.has_no_members() else ""

    def state() -> tuple[str, str]:
        if "sidecar.rebalance" in admin.glance():
            return "it is recorded and has not begun.", "Do not say it again: the group's next owner begins it."
        return "it has begun, and members are still to join.", f"Do not say it again. sidecar groups explain {group}"

    with _naming(removed):
        admin.set_and_confirm("sidecar.rebalance", reason, recorded)
        result = admin.wait(done, state)
    admin.done("rebalance", result, output, removed)


def _removed(admin: _GroupAdmin, instances: list[str]) -> list[str]:
    """AdminClient of confluent-kafka has no such call, so this goes over the sidecar's own client."""
    if not instances:
        return []
    from sidecar.wire.generated import leave_group as lg

    async def leave(cluster: Cluster) -> list[tuple[str, int]]:
        members = [lg.MemberIdentity("", i, "removed by the administrator") for i in instances]
        conn = await cluster.coordinator(admin.group, 0)
        res = await conn.request(lg, "LeaveGroup", lg.LeaveGroupRequest(admin.group, members=members), low=3)
        if res.error_code:
            return [(i, res.error_code) for i in instances]
        return [(m.group_instance_id or "", m.error_code) for m in res.members]

    results = admin.client.ask(admin.bootstrap, cf.CLI_CLIENT, leave)
    bad = [f"{i}: {name_of(code)}" for i, code in results if code]
    removed = [i for i, code in results if not code]
    with _naming(removed):
        if bad:
            then = f"`sidecar groups members {admin.group}` lists the instances. No rebalance was asked for."
            admin.refused("not removed: " + ", ".join(bad), then)
    return removed


@contextmanager
def _naming(removed: Sequence[str]) -> Iterator[None]:
    """Has a failure name the instances that were removed before it."""
    try:
        yield
    except Failed as failed:
        failed.what = "\n".join([*(f"{i} was removed." for i in removed), failed.what])
        raise


async def listed(cluster: Cluster) -> set[str]:
    """Returns the ids of all groups. Raises ConnectionLost, TimeoutError, WireError."""
    import asyncio

    from sidecar.kafka.group_lists import groups_at

    async def at(node_id: int) -> Collection[str]:
        return await groups_at(await cluster.node(node_id), ANSWER_S)

    brokers = (await cluster.refresh([])).brokers
    return {g for ids in await asyncio.gather(*map(at, brokers)) for g in ids}


EMPTY = "Empty"


# ---- the way to the sidecars --------------------------------------------------------------------------------------
class _GroupAdmin:
    """One group, as an administrator's client speaks of it. What it does raises Failed."""

    def __init__(self, group: str, bootstrap: str, command_config: Path | None, timeout_s: float) -> None:
        self.group, self.bootstrap = group, bootstrap
        self._until = time.monotonic() + timeout_s
        self._silent_until = time.monotonic() + SILENT_S
        self.client = client_of(command_config)
        self._kafka = self.client.admin(bootstrap, cf.CLI_CLIENT)

    def _resource(self, **entries: str | None) -> Any:
        """`entries`: settings to be changed; None removes one."""
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        ops = [
            ConfigEntry(n, v, incremental_operation=AlterConfigOpType.DELETE if v is None else AlterConfigOpType.SET)
            for n, v in entries.items()
        ]
        return ConfigResource(ResourceType.GROUP, self.group, incremental_configs=ops or None)

    def set_and_confirm(self, name: str, value: str | None, recorded: Callable[[], bool]) -> None:
        """Repeats until it is recorded; None removes the setting. `recorded`: whether it is, without an answer.

        Only a sidecar that has just answered a question is sent the change. One that is down is found so in GLANCE_S: a
        question may be given up early and asked again, a change that is given up may still be recorded."""
        from confluent_kafka import KafkaException

        sent = False
        while True:
            try:
                self._ask()
                sent = True
                (future,) = self._kafka.incremental_alter_configs(
                    [self._resource(**{name: value})], request_timeout=ANSWER_S
                ).values()
                future.result()
                return
            except KafkaException as exc:
                error = exc.args[0]
                if error.code() >= 0 and error.code() not in PASSING:
                    self.refused(error.str(), MAY_ALTER)
            if error.code() < 0:
                self._anew()
            if recorded():
                return
            if time.monotonic() >= self._until:
                if sent:  # its answer is what is missing, or the error of a sidecar that may have written it
                    then = (
                        f"`sidecar groups list` shows where the group is, `sidecar groups history {self.group}` tells"
                    )
                    what, then = "nobody has confirmed it", f"It may be recorded: {then} of rebalances. {CHECK}"
                else:
                    what, then = "nobody has recorded it", "Say it again: nothing was done. " + CHECK
                raise Failed(TIMED_OUT, f"{self.group}: {what} ({error.str()}).", then)
            self._pause("no sidecar has recorded it yet")

    def look(self) -> dict[str, str]:
        """Returns the settings of the group that only sidecars know."""
        until = time.monotonic() + ANSWER_S
        while True:
            try:
                entries = self._result(self._asked())
                break
            except Failed as failed:
                if failed.code is not Code.UNREACHED or time.monotonic() >= until:
                    raise
            self._anew()
            time.sleep(LOOK_S)
        return {n: e.value or "" for n, e in entries.items() if n.startswith("sidecar.")}

    def glance(self) -> dict[str, str]:
        """The same while something is waited for: nothing, if no broker answers."""
        from confluent_kafka import KafkaException

        try:
            return {n: e.value or "" for n, e in self._ask().items() if n.startswith("sidecar.")}
        except KafkaException as exc:
            if exc.args[0].code() < 0:
                self._anew()
            return {}

    def _asked(self) -> Any:
        return self._kafka.describe_configs([self._resource()], request_timeout=GLANCE_S)

    def _ask(self) -> Any:
        (future,) = self._asked().values()
        return future.result()

    def _anew(self) -> None:
        """librdkafka asks the controller about groups' settings, which a broker of KRaft says is any broker that lives.
        That one's sidecar may be down, and only a new client learns of another broker."""
        self._kafka = self.client.admin(self.bootstrap, cf.CLI_CLIENT)

    def has_no_members(self) -> bool:
        """Whether the group has no members, by the list of its coordinator: librdkafka describes no share or streams
        group. False, if the coordinator does not answer."""
        from sidecar.kafka.group_lists import groups_at

        async def state(cluster: Cluster) -> str:
            groups = await groups_at(await cluster.coordinator(self.group, 0), ANSWER_S)
            return groups[self.group].state if self.group in groups else EMPTY

        try:
            return bool(self.client.ask(self.bootstrap, cf.CLI_CLIENT, state) == EMPTY)
        except Failed:
            return False

    def is_nowhere(self) -> bool:
        """Whether no broker and no sidecar lists the group. False, if one does not answer."""
        try:
            return self.group not in self.client.ask(self.bootstrap, cf.CLI_CLIENT, listed)
        except Failed:
            return False

    def _result(self, futures: Mapping[Any, Any]) -> Any:
        from confluent_kafka import KafkaException

        (future,) = futures.values()
        try:
            return future.result()
        except KafkaException as exc:
            error = exc.args[0]
            if error.code() < 0:  # librdkafka's own: no broker has answered
                raise Failed(Code.UNREACHED, f"{self.bootstrap}: {error.str()}", CHECK) from None
            self.refused(error.str(), "Check the group's id, and whether this user may DESCRIBE_CONFIGS of the group.")

    def refused(self, what: str, then: str) -> NoReturn:
        raise Failed(REFUSED, what, then)

    def wait(self, done: Callable[[], str], state: Callable[[], tuple[str, str]] | None = None) -> str:
        """Waits until `done` returns what has happened. `state`: what is wrong, and what to do next, if not in time."""
        while time.monotonic() < self._until:
            if result := done():
                return result
            self._pause("it is recorded and not done yet")
        what, then = state() if state else (GOES_ON, self._postponed() + CAUSE)
        raise Failed(TIMED_OUT, f"{self.group}: not done in time; {what}", then)

    def _pause(self, what: str) -> None:
        """Before the next look. Once, on stderr: that the command waits, and for how long."""
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = float("inf")
            left_s = max(0, round(self._until - now))
            echo(f"{self.group}: {what}; waiting for up to {left_s} s more. Ctrl-C ends only the waiting.", err=True)
        time.sleep(LOOK_S)

    def _postponed(self) -> str:
        """Returns a line with the owner's reason if it has postponed the order, and "" if not."""
        configs = self.glance()
        return f"The owner waits: {configs.get('sidecar.why')}\n" if configs.get("sidecar.managed") == cf.LATER else ""

    def done(self, action: str, result: str, output: Document, removed: Sequence[str] = ()) -> None:
        body = {"group": self.group, "action": action, "removed": list(removed), "result": result}
        print_document(body, output, [*(f"{i} was removed." for i in removed), result])
