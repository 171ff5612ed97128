"""`sidecar groups list`: all groups of the cluster, of sidecars and brokers, in one table.

Each group is listed by its own coordinator, which also knows its commits, and of a share group the lag. A sidecar
answers the place of a group as a setting of the group (core/vocabulary/group_config.py). At a listener without a
sidecar that is unknown, but the placeholder of a managed group is known by its instance id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.connect import Bootstrap, CommandConfig, client_of, no_answer
from sidecar.cli.exits import Code, Failed
from sidecar.cli.groups import groups
from sidecar.cli.output import Format, Output, Watch, print_rows, run
from sidecar.cli.plain import echo
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code as Kafka
from sidecar.core.vocabulary.errors import name_of
from sidecar.core.vocabulary.group_patterns import Patterns, fault

if TYPE_CHECKING:
    from sidecar.kafka.cluster import Cluster
    from sidecar.kafka.net import BrokerConnection

ANSWER_S = 30.0
GONE = (Kafka.NONE, Kafka.GROUP_ID_NOT_FOUND)
"""No refusals of a description: the group may have been removed meanwhile."""
NO_SETTINGS = (Kafka.NONE, Kafka.INVALID_REQUEST, Kafka.UNSUPPORTED_VERSION)
"""No refusals of a group's settings: brokers without a sidecar may know none."""
WHERE = {"sidecar": "sidecar", "broker": "broker", "comes": "comes to the sidecars", "leaves": "goes to the broker"}


@dataclass
class Listing:
    """The groups of the cluster. `members` may lack a group that is in `groups`: its coordinator did not answer."""

    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    """Groups with an order of their own (`sidecar.managed`) -> its value: true, false or later."""
    lag: dict[str, int] | None = None
    """Lag of each group for which it is known; None: it was not asked for."""
    problems: list[str] = field(default_factory=list)
    """Texts about brokers and sidecars that did not answer everything."""

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "group": group_id,
                **fields,
                "members": self.members.get(group_id),
                **({} if self.lag is None else {"lag": self.lag.get(group_id)}),
                "where": WHERE.get(self.where.get(group_id, ""), self.where.get(group_id, "")),
            }
            for group_id, fields in sorted(self.groups.items())
        ]


@groups.command("list")
def list_(
    bootstrap: Bootstrap,
    match: Annotated[str, typer.Option(metavar="RE2", help="Only groups whose whole name matches.")] = "",
    where: Annotated[str, typer.Option(metavar="WHERE", help=f"Only groups that are there: {', '.join(WHERE)}.")] = "",
    members: Annotated[bool, typer.Option("--members", help="Only groups that have members.")] = False,
    lag: Annotated[bool, typer.Option("--lag", help="How many records each is behind. It takes longer.")] = False,
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
    watch: Watch = 0,
) -> None:
    """List all groups: kind, state, members, the node that coordinates each, and whether that is a sidecar."""
    if where and where not in WHERE:
        raise Failed(Code.USAGE, f"No group is {where!r}.", f"--where takes {', '.join(WHERE)}.")
    if broken := fault(match):
        raise Failed(Code.USAGE, f"--match {broken}.", "The syntax is RE2's; the whole name must match.")

    def shown(row: Mapping[str, Any]) -> bool:
        named = not match or Patterns((match,), ())(row["group"])
        return named and (not where or row["where"] == WHERE[where]) and (not members or bool(row["members"]))

    def show() -> Code:
        listing = client_of(command_config).ask(bootstrap, cf.CLI_CLIENT, with_lag if lag else gathered)
        problems = "\n".join(dict.fromkeys(listing.problems))
        if not listing.groups:
            if problems:
                raise Failed(Code.UNREACHED, problems, "The list is incomplete: nobody has told of a group. Try again.")
            raise Failed(
                Code.FINDINGS, "There are no groups, or this user may see none.", "DESCRIBE of groups is needed."
            )
        rows = [row for row in listing.rows() if shown(row)]
        print_rows(rows, output, columns=tuple(listing.rows()[0]))
        if problems:
            raise Failed(Code.UNREACHED, problems, "The list is incomplete: it has what the others told. Try again.")
        if not rows:
            echo(f"None of {len(listing.groups)} groups is like that.", err=True)
        return Code.OK

    run(show, watch)


async def gathered(cluster: Cluster) -> Listing:
    """Returns the groups of all brokers, or of the sidecars before them. Raises ConnectionLost, TimeoutError,
    WireError."""
    import asyncio

    from sidecar.kafka.net import NO_ANSWER

    listing = Listing()
    view = await cluster.refresh([])
    await asyncio.gather(*(_node(cluster, n, listing) for n in view.brokers))
    try:
        await _whereabouts(await cluster.anyone(), listing)
    except NO_ANSWER as exc:
        listing.problems.append(f"Where groups are, nobody tells: {no_answer(str(exc))}")
    return listing


async def with_lag(cluster: Cluster) -> Listing:
    """Returns the same groups with their lag, as far as it is known. Raises ConnectionLost, TimeoutError, WireError."""
    from sidecar.kafka.cluster import MetadataReader
    from sidecar.kafka.group_lists import LagReader
    from sidecar.kafka.net import NO_ANSWER

    listing = await gathered(cluster)
    by_node: dict[int, dict[str, str]] = {}
    for group_id, fields in listing.groups.items():
        by_node.setdefault(fields["node"], {})[group_id] = fields["type"]
    listing.lag = {}
    try:
        view = await MetadataReader({}).read(await cluster.anyone(), cluster)
    except NO_ANSWER as exc:
        listing.problems.append(f"lag of all groups: {no_answer(str(exc))}")
        return listing
    reader = LagReader(cluster.node, ANSWER_S)
    await reader.read(by_node, view.leaders)
    listing.problems += (f"node {n}: {no_answer(problem)}" for n, problem in reader.problems.items())
    untold = sum(g not in reader.lags and of["node"] not in reader.problems for g, of in listing.groups.items())
    if untold:
        listing.problems.append(f"lag of {untold} groups: refused; DESCRIBE of the groups is needed")
    listing.lag = {g: sum(p.lag for p in of.values()) for g, of in reader.lags.items() if of}
    return listing


async def _node(cluster: Cluster, node_id: int, listing: Listing) -> None:
    from sidecar.kafka.group_lists import groups_at
    from sidecar.kafka.net import NO_ANSWER

    try:
        conn = await cluster.node(node_id)
        mine = {
            group_id: {"type": g.kind, "protocol": g.protocol, "state": g.state, "node": node_id}
            for group_id, g in (await groups_at(conn, ANSWER_S)).items()
        }
        listing.groups |= mine
        await _members(conn, mine, listing)
    except NO_ANSWER as exc:
        listing.problems.append(f"node {node_id}: {no_answer(str(exc))}")


async def _members(conn: BrokerConnection, groups: Mapping[str, Mapping[str, Any]], listing: Listing) -> None:
    from sidecar.kafka.offsets import group_batches
    from sidecar.kafka.placeholder_requests import INSTANCE_ID
    from sidecar.wire.generated import consumer_group_describe as cd
    from sidecar.wire.generated import describe_groups as dg
    from sidecar.wire.generated import share_group_describe as shd
    from sidecar.wire.generated import streams_group_describe as std

    described: dict[str, tuple[Any, str, Callable[[list[str]], Any]]] = {
        "classic": (dg, "DescribeGroups", lambda names: dg.DescribeGroupsRequest(groups=names)),
        "consumer": (cd, "ConsumerGroupDescribe", lambda names: cd.ConsumerGroupDescribeRequest(group_ids=names)),
        "share": (shd, "ShareGroupDescribe", lambda names: shd.ShareGroupDescribeRequest(group_ids=names)),
        "streams": (std, "StreamsGroupDescribe", lambda names: std.StreamsGroupDescribeRequest(group_ids=names)),
    }
    refused: Counter[int] = Counter()
    for kind, (module, api, request) in described.items():
        for names in group_batches(g for g, fields in groups.items() if fields["type"] == kind):
            for d in (await conn.request(module, api, request(names))).groups:
                refused[d.error_code] += d.error_code not in GONE
                if d.error_code == Kafka.NONE:
                    listing.members[d.group_id] = len(d.members)
                    if [getattr(m, "group_instance_id", None) for m in d.members] == [INSTANCE_ID]:
                        listing.where[d.group_id] = "sidecar"
    listing.problems += _refusals("members of", refused, "DESCRIBE")


async def _whereabouts(conn: BrokerConnection, listing: Listing) -> None:
    """Adds where each group is. At a listener without a sidecar that stays unknown."""
    from sidecar.kafka.offsets import group_batches
    from sidecar.wire.generated import describe_configs as dc

    refused: Counter[int] = Counter()
    for names in group_batches(listing.groups):
        resources = [dc.DescribeConfigsResource(cf.GROUP, name, None) for name in names]
        res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=resources))
        for r in res.results:
            refused[r.error_code] += r.error_code not in NO_SETTINGS
            configs = {c.name: c.value for c in r.configs or ()}
            if cf.STATE in configs:
                listing.where[r.resource_name] = configs[cf.STATE] or ""
            if configs.get(cf.MANAGED):
                listing.orders[r.resource_name] = configs[cf.MANAGED] or ""
    listing.problems += _refusals("the place of", refused, "DESCRIBE_CONFIGS")


def _refusals(asked: str, refused: Mapping[int, int], right: str) -> Iterator[str]:
    """Yields a problem for each error. `refused`: error code -> number of groups; `right`: the one that is needed."""
    for code, n in refused.items():
        if n:
            then = f"; {right} is needed" if code == Kafka.GROUP_AUTHORIZATION_FAILED else ""
            yield f"{asked} {n} groups: {name_of(code)}{then}"
