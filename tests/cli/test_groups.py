"""The output of `sidecar groups` when sidecars do not answer, over an admin client that plays them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, admin
from typer.testing import CliRunner

from sidecar.cli import groups as module
from sidecar.cli import listing as listing_module
from sidecar.cli.connect import Client
from sidecar.cli.exits import Code, Failed
from sidecar.cli.listing import Listing, _members, _whereabouts, gathered, with_lag
from sidecar.cli.main import app
from sidecar.core.vocabulary.group_config import NOT_GIVEN_BACK
from sidecar.kafka import group_lists
from sidecar.kafka.cluster import MetadataReader
from sidecar.kafka.group_lists import ListedGroup
from sidecar.kafka.net import ConnectionLost

BROKEN = KafkaError._TRANSPORT
NOT_ALLOWED = KafkaError.GROUP_AUTHORIZATION_FAILED


def ended(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


@dataclass
class Sidecars:
    """`answers`: error codes of the next changes, None for none; `lost`: a change that is not answered is not
    recorded either; `act`: what becomes of a recorded one."""

    answers: list[int | None] = field(default_factory=list)
    lost: bool = False
    told: dict[str, str] = field(default_factory=dict)
    act: Callable[[dict[str, str]], None] = lambda told: None
    said: int = 0

    def incremental_alter_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        self.said += 1
        code = self.answers.pop(0) if self.answers else None
        if code is None or (code < 0 and not self.lost):
            self.told |= {e.name: e.value for e in resources[0].incremental_configs}
            for name in [n for n, value in self.told.items() if value is None]:
                del self.told[name]
            self.act(self.told)
        error = None if code is None else KafkaException(KafkaError(code))
        return {resources[0]: ended(error)}

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        return {resources[0]: ended({n: SimpleNamespace(value=v) for n, v in self.told.items()})}


def of_lists(groups: set[str], state: str) -> Callable[..., Any]:
    """Returns the answers to what is asked of the lists: all groups, or the state of this one."""
    return lambda client, bootstrap, name, question: groups if question is module.listed else state


def run(
    monkeypatch: pytest.MonkeyPatch, sidecars: Sidecars, verb: str, timeout_s: float = 5, *more: str
) -> tuple[int, str]:
    monkeypatch.setattr(admin, "AdminClient", lambda config: sidecars)
    monkeypatch.setattr(Client, "ask", of_lists({"g"}, "Stable"))
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    done = CliRunner().invoke(app, ["groups", verb, "g", "--bootstrap", "here:1", "--timeout", str(timeout_s), *more])
    return done.exit_code, done.output.strip()


def carried_out(told: dict[str, str]) -> None:
    told["sidecar.epoch"] = "8"
    del told["sidecar.rebalance"]


def begun_only(told: dict[str, str]) -> None:
    del told["sidecar.rebalance"]


@pytest.mark.parametrize(("lost", "times"), [(False, 1), (True, 2)])
def test_a_rebalance_that_nobody_confirmed_is_said_again_only_if_it_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, lost: bool, times: int
) -> None:
    sidecars = Sidecars([BROKEN], lost, {"sidecar.state": "sidecar", "sidecar.epoch": "7"}, carried_out)
    assert run(monkeypatch, sidecars, "rebalance") == (0, "g was assigned anew, in epoch or generation 8.")
    assert sidecars.said == times


class ControllerDown(Sidecars):
    """An admin client whose metadata names a controller whose sidecar is down."""

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        return {resources[0]: ended(KafkaException(KafkaError(KafkaError._TIMED_OUT)))}


def test_another_client_is_asked_where_one_waits_for_a_sidecar_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: with one of three sidecars down `groups release` said "recorded and goes on" when it was done."""
    told = {"sidecar.state": "sidecar", "sidecar.epoch": "7"}
    sidecars = Sidecars(told=told, act=carried_out)
    clients: list[Sidecars] = [ControllerDown(), ControllerDown(), sidecars]
    monkeypatch.setattr(admin, "AdminClient", lambda config: clients.pop(0))
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    done = CliRunner().invoke(app, ["groups", "rebalance", "g", "--bootstrap", "here:1", "--timeout", "5"])
    assert (done.exit_code, done.output.strip()) == (0, "g was assigned anew, in epoch or generation 8.")
    assert clients == []


def test_a_client_whose_change_broke_off_says_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a client may go on waiting for the sidecar that it was led to; the next one is led to another."""
    told = {"sidecar.state": "sidecar", "sidecar.epoch": "7"}
    broken, sidecars = Sidecars([BROKEN] * 9, True, dict(told)), Sidecars(told=dict(told), act=carried_out)
    clients: list[Sidecars] = [broken, sidecars]
    monkeypatch.setattr(admin, "AdminClient", lambda config: clients.pop(0))
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    done = CliRunner().invoke(app, ["groups", "rebalance", "g", "--bootstrap", "here:1", "--timeout", "5"])
    assert (done.exit_code, done.output.strip()) == (0, "g was assigned anew, in epoch or generation 8.")
    assert (broken.said, sidecars.said) == (1, 1)


def test_nothing_is_said_to_a_sidecar_that_does_not_answer_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change waits for 30 s for its answer, a question for 5."""
    deaf, sidecars = ControllerDown(), Sidecars(act=carry_out_move)
    clients: list[Sidecars] = [deaf, sidecars]
    monkeypatch.setattr(admin, "AdminClient", lambda config: clients.pop(0))
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    done = CliRunner().invoke(app, ["groups", "adopt", "g", "--bootstrap", "here:1", "--timeout", "5"])
    assert (done.exit_code, done.output.strip()) == (0, "g is with the sidecars now.")
    assert (deaf.said, sidecars.said) == (0, 1)


def test_what_takes_too_long_is_said_to_go_on_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def current_state() -> dict[str, str]:
        return {"sidecar.state": "sidecar", "sidecar.epoch": "7"}

    code, text = run(monkeypatch, Sidecars(told=current_state()), "rebalance", 0.1)
    assert code == 3 and "is recorded and has not begun" in text

    begun = Sidecars(told=current_state(), act=begun_only)
    code, text = run(monkeypatch, begun, "rebalance", 0.1)
    assert code == 3 and "has begun" in text

    code, text = run(monkeypatch, Sidecars([BROKEN] * 1000, True, current_state()), "rebalance", 0.1)
    assert code == 3 and "nobody has confirmed it" in text and "nothing was done" not in text

    code, text = run(monkeypatch, Sidecars(told=current_state()), "release", 0.1)
    assert code == 3 and "recorded and goes on" in text and "The owner waits" not in text
    assert "`sidecar doctor` and the log of the group's owner" in text

    def postponed(told: dict[str, str]) -> None:
        told |= {"sidecar.managed": "later", "sidecar.why": "the group is not stable"}

    code, text = run(
        monkeypatch, Sidecars(told=current_state() | {"sidecar.state": "comes"}, act=postponed), "adopt", 0.1
    )
    assert code == 3 and "The owner waits: the group is not stable\n" in text


class FallsSilent(Sidecars):
    """Takes a change in and answers nothing from then on. `deaf`: it never answers."""

    deaf = False

    def incremental_alter_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        super().incremental_alter_configs(resources, request_timeout)
        return {resources[0]: ended(KafkaException(KafkaError(KafkaError._TIMED_OUT)))}

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, Future[Any]]:
        if self.said or self.deaf:
            return {resources[0]: ended(KafkaException(KafkaError(KafkaError._TIMED_OUT)))}
        return super().describe_configs(resources, request_timeout)


@pytest.mark.parametrize("verb", ["adopt", "release", "rebalance"])
def test_nothing_was_done_only_if_nothing_was_sent(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Symptom: an order that was recorded and not answered was said not to be given."""
    sidecars = FallsSilent(told={"sidecar.state": "sidecar", "sidecar.epoch": "7"})
    code, text = run(monkeypatch, sidecars, verb, 0)
    assert (code, sidecars.said) == (3, 1)
    assert "It may be recorded: `sidecar groups list`" in text and "nothing was done" not in text
    if verb != "rebalance":  # which looks first
        sidecars = FallsSilent()
        sidecars.deaf = True
        code, text = run(monkeypatch, sidecars, verb, 0)
        assert (code, sidecars.said, "nothing was done" in text) == (3, 0, True)


def test_a_command_that_waits_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: adopt was silent for two minutes."""
    told = {"sidecar.state": "sidecar"}
    assert "waiting for up to" not in run(monkeypatch, Sidecars(told=dict(told)), "release", 0.1)[1]
    monkeypatch.setattr(module, "SILENT_S", 0)
    text = run(monkeypatch, Sidecars(told=dict(told)), "release", 0.1)[1]
    assert text.count("g: it is recorded and not done yet; waiting for up to 0 s more.") == 1
    text = run(monkeypatch, Sidecars([BROKEN] * 1000, True, dict(told)), "release", 0.1)[1]
    assert text.count("g: no sidecar has recorded it yet; waiting") == 1


@pytest.mark.parametrize("verb", ["adopt", "release", "rebalance"])
def test_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    sidecars = Sidecars([NOT_ALLOWED], told={"sidecar.state": "sidecar", "sidecar.epoch": "7"})
    code, text = run(monkeypatch, sidecars, verb)
    assert code == 1 and "Group authorization failed" in text and sidecars.said == 1


@pytest.mark.parametrize("fails", ["the other instance", "the change"])
def test_an_instance_that_was_removed_is_named_whatever_fails_then(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """Symptom: with two instances, one of which was not there, nothing told that the other was removed."""
    sidecars = Sidecars([NOT_ALLOWED], told={"sidecar.state": "sidecar", "sidecar.epoch": "7"})
    removed = [("a", 0), ("b", KafkaError.UNKNOWN_MEMBER_ID if fails == "the other instance" else 0)]
    monkeypatch.setattr(admin, "AdminClient", lambda config: sidecars)
    monkeypatch.setattr(Client, "ask", lambda *asked: removed)
    words = ["groups", "rebalance", "g", "--bootstrap", "here:1", "--remove-instance", "a", "--remove-instance", "b"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1 and done.stdout == ""
    expected = ["a was removed.", "not removed: b: UNKNOWN_MEMBER_ID"]
    if fails == "the change":
        expected = ["a was removed.", "b was removed.", "Broker: Group authorization failed"]
    assert done.stderr.splitlines()[: len(expected)] == expected


def test_a_group_that_its_broker_would_refuse_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    def stays(told: dict[str, str]) -> None:
        told |= {"sidecar.managed": "true", "sidecar.why": NOT_GIVEN_BACK + "set streams.version=1"}

    code, text = run(monkeypatch, Sidecars(told={"sidecar.state": "sidecar"}, act=stays), "release")
    assert code == 1 and "not given back: set streams.version=1" in text and "stays with the sidecars" in text


def carry_out_move(told: dict[str, str]) -> None:
    told["sidecar.state"] = {"true": "sidecar", "false": "broker"}[told["sidecar.managed"]]


@pytest.mark.parametrize("verb", ["adopt", "release", "rebalance"])
def test_an_action_is_told_as_json(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    told = {"sidecar.state": "sidecar", "sidecar.epoch": "7"}
    sidecars = Sidecars(told=told, act=carried_out if verb == "rebalance" else carry_out_move)
    code, text = run(monkeypatch, sidecars, verb, 5, "-o", "json")
    said = json.loads(text)
    assert (code, said["group"], said["action"], said["removed"]) == (0, "g", verb, [])
    assert said["result"].startswith("g ")


@pytest.mark.parametrize("listed_as", ["Empty", "", "Stable", "NotReady", None])
def test_a_group_has_no_members_only_where_its_coordinator_says_so(
    monkeypatch: pytest.MonkeyPatch, listed_as: str | None
) -> None:
    """`listed_as`: its state in the coordinator's list; "": it is not there; None: the coordinator does not answer.
    Symptom: adopt ended early for share and streams groups, which librdkafka describes as unknown."""
    rows = {"g": ListedGroup("share", "share", listed_as)} if listed_as else {}

    async def groups_at(conn: object, timeout_s: float) -> dict[str, ListedGroup]:
        if listed_as is None:
            raise Failed(Code.UNREACHED, "node 2: no answer", "")
        return rows

    class OneNode:
        async def coordinator(self, key: str, key_type: int) -> object:
            return object()

    monkeypatch.setattr(group_lists, "groups_at", groups_at)
    monkeypatch.setattr(admin, "AdminClient", lambda config: Sidecars())
    monkeypatch.setattr(Client, "ask", lambda client, bootstrap, name, question: asyncio.run(question(OneNode())))
    assert module._GroupAdmin("g", "here:1", None, 1).has_no_members() == (listed_as in ("Empty", ""))


@pytest.mark.parametrize(("code", "exit_code"), [(BROKEN, 3), (NOT_ALLOWED, 1)])
def test_nobody_answering_is_no_refusal(monkeypatch: pytest.MonkeyPatch, code: int, exit_code: int) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.3)
    sidecars = Sidecars()
    failed = {"g": ended(KafkaException(KafkaError(code)))}
    monkeypatch.setattr(sidecars, "describe_configs", lambda resources, request_timeout: failed)
    assert run(monkeypatch, sidecars, "rebalance")[0] == exit_code


@pytest.mark.parametrize("verb", ["adopt", "release", "rebalance", "explain", "describe", "members", "history"])
def test_a_group_without_a_name_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(admin, "AdminClient", lambda config: Sidecars())
    done = CliRunner().invoke(app, ["groups", verb, " ", "--bootstrap", "here:1"])
    assert (done.exit_code, "id is empty" in done.output) == (2, True), done.output


def test_a_group_that_is_nowhere_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    sidecars = Sidecars()
    monkeypatch.setattr(admin, "AdminClient", lambda config: sidecars)

    def nobody_can_tell(*asked: object) -> set[str]:
        raise Failed(Code.UNREACHED, "node 2: no answer", "")

    for ask, exit_code in ((lambda *asked: {"other"}), 1), (nobody_can_tell, 0):
        sidecars.told = {"sidecar.state": "broker"}
        monkeypatch.setattr(Client, "ask", ask)
        done = CliRunner().invoke(app, ["groups", "release", "g", "--bootstrap", "here:1"])
        assert done.exit_code == exit_code, done.output
        assert ("There is no group g." in done.output) == (sidecars.said == 0) == (exit_code == 1)


@pytest.mark.parametrize(("state", "patterns"), [("broker", False), ("comes", True)])
def test_the_order_to_adopt_a_group_that_is_nowhere_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, state: str, patterns: bool
) -> None:
    """Symptom: adopt told nothing of a misspelt name, and its order stood for ever."""

    def ordered(told: dict[str, str]) -> None:
        told["sidecar.state"] = "comes" if "sidecar.managed" in told else state

    sidecars = Sidecars(told={"sidecar.state": state}, act=ordered)
    monkeypatch.setattr(admin, "AdminClient", lambda config: sidecars)
    monkeypatch.setattr(Client, "ask", of_lists({"other"}, "Empty"))

    def call(verb: str) -> Any:
        return CliRunner().invoke(app, ["groups", verb, "g", "--bootstrap", "here:1", "--timeout", "5"])

    adopted = call("adopt")
    assert adopted.exit_code == 0 and "There is no group g yet." in adopted.output
    assert sidecars.told["sidecar.managed"] == "true"
    released = call("release")
    assert released.exit_code == 0 and "is taken back" in released.output, released.output
    assert ("The patterns still name it." in released.output) == patterns
    assert sidecars.told == {"sidecar.state": state}
    assert call("release").exit_code == 1


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ((), ["a-1", "a-2", "b"]),
        (("--match", "a-.*"), ["a-1", "a-2"]),
        (("--match", "a"), []),
        (("--where", "comes"), ["a-2"]),
        (("--members",), ["a-1"]),
        (("--members", "--match", "b"), []),
    ],
)
def test_a_long_list_can_be_made_shorter(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], listed: list[str]
) -> None:
    where = {"a-1": "sidecar", "a-2": "comes", "b": "broker"}
    found = Listing({g: {"state": "Stable"} for g in where}, members={"a-1": 2, "a-2": 0}, where=where)
    monkeypatch.setattr(Client, "ask", lambda *asked: found)
    done = CliRunner().invoke(app, ["groups", "list", "--bootstrap", "here:1", "-o", "json", *options])
    assert [json.loads(line)["group"] for line in done.stdout.splitlines() if line.startswith("{")] == listed
    assert done.exit_code == 0
    assert ("None of 3 groups is like that." in done.stderr) == (not listed)


@pytest.mark.parametrize(
    ("output", "shown"), [("table", "group"), ("csv", "group,state,members,where\n"), ("json", "")]
)
def test_a_list_of_nothing_has_its_columns(monkeypatch: pytest.MonkeyPatch, output: str, shown: str) -> None:
    """Procedures look whether no group is left at the sidecars: that is a success."""
    found = Listing({"a": {"state": "Stable"}}, where={"a": "broker"})
    monkeypatch.setattr(Client, "ask", lambda *asked: found)
    list_ = ["groups", "list", "--bootstrap", "here:1", "--where", "sidecar", "-o", output]
    done = CliRunner().invoke(app, list_)
    assert done.exit_code == 0
    assert done.stdout.startswith(shown) and "a " not in done.stdout.replace("state ", "")


@pytest.mark.parametrize("options", [(), ("--where", "broker")])
def test_a_list_shows_what_the_others_told_if_a_node_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Symptom: with one of three sidecars down nothing was listed."""
    problem = "node 2: here:2: Connection refused"
    found = Listing({"a": {"state": "Stable"}}, where={"a": "sidecar"}, problems=[problem, problem])
    monkeypatch.setattr(Client, "ask", lambda *asked: found)
    done = CliRunner().invoke(app, ["groups", "list", "--bootstrap", "here:1", "-o", "json", *options])
    assert done.exit_code == Code.UNREACHED
    assert [json.loads(line)["group"] for line in done.stdout.splitlines()] == ([] if options else ["a"])
    assert done.stderr.splitlines()[0] == problem and "incomplete" in done.stderr.splitlines()[1]


def test_a_node_that_refuses_connections_is_told_in_plain_words() -> None:
    with pytest.raises(Failed) as failed:
        Client().ask("127.0.0.1:1", "c", lambda cluster: cluster.refresh([]))
    assert failed.value.what.endswith("127.0.0.1:1: Connection refused")


@pytest.mark.parametrize("option", [("--where", "there"), ("--match", "(")])
def test_a_list_is_not_made_shorter_by_what_nobody_understands(option: tuple[str, str]) -> None:
    assert CliRunner().invoke(app, ["groups", "list", "--bootstrap", "here:1", *option]).exit_code == 2


class Described:
    """A connection to a node that describes any group: as many members as its name has letters."""

    def __init__(self) -> None:
        self.apis: list[str] = []

    async def request(self, module: Any, api: str, request: Any, **options: Any) -> Any:
        self.apis.append(api)
        names = getattr(request, "group_ids", None) or request.groups
        groups = [SimpleNamespace(group_id=n, error_code=0, members=[SimpleNamespace()] * len(n)) for n in names]
        return SimpleNamespace(groups=groups)


def test_members_of_groups_of_all_kinds_are_counted() -> None:
    """Symptom: the column was empty for share and streams groups."""
    conn, found = Described(), Listing()
    kinds = {"a": "classic", "bb": "consumer", "ccc": "share", "dddd": "streams", "e": "of a later Kafka"}
    asyncio.run(_members(conn, {g: {"type": kind} for g, kind in kinds.items()}, found))  # type: ignore[arg-type]
    assert found.members == {"a": 1, "bb": 2, "ccc": 3, "dddd": 4}
    assert conn.apis == ["DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe"]


def test_a_node_that_is_down_costs_only_its_own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    class SecondBrokerDown:
        async def refresh(self, topics: list[str]) -> Any:
            return SimpleNamespace(brokers={1: ("h", 1), 2: ("h", 2)})

        async def node(self, node_id: int) -> Any:
            if node_id == 2:
                raise ConnectionLost("h:2: [Errno 111] Connect call failed ('10.0.0.2', 2)")
            return Described()

        async def anyone(self) -> Any:
            raise ConnectionLost("")

    async def groups_at(conn: Any, timeout_s: float) -> dict[str, group_lists.ListedGroup]:
        return {"aa": group_lists.ListedGroup("consumer", "consumer", "Stable")}

    monkeypatch.setattr(group_lists, "groups_at", groups_at)
    found = asyncio.run(gathered(SecondBrokerDown()))  # type: ignore[arg-type]
    assert [(r["group"], r["members"], r["where"]) for r in found.rows()] == [("aa", 2, "")]
    assert found.problems == ["node 2: h:2: Connection refused", "Where groups are, nobody tells: no answer in time"]


class Refuses(Described):
    """A connection to a node that refuses each resource of a request with this code."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code

    async def request(self, module: Any, api: str, request: Any, **options: Any) -> Any:
        if api == "DescribeConfigs":
            named = [SimpleNamespace(resource_name=r.resource_name, configs=[]) for r in request.resources]
        else:
            named = (await super().request(module, api, request)).groups
        for resource in named:
            resource.error_code = self.code
        return SimpleNamespace(results=named, groups=named)


class OneNode:
    async def anyone(self) -> Any:
        return None

    node: Any = None


def play_lags(monkeypatch: pytest.MonkeyPatch, listing: Listing, lags: dict[str, dict[Any, Any]] | None) -> None:
    """Has nodes tell these lags of the groups of a list; None: nobody answers the question for Metadata."""

    async def gathered(cluster: Any) -> Listing:
        return listing

    async def metadata(*asked: Any) -> Any:
        if lags is None:
            raise TimeoutError
        return SimpleNamespace(leaders={})

    async def read(reader: group_lists.LagReader, *asked: Any) -> None:
        reader.lags |= lags or {}

    monkeypatch.setattr(listing_module, "gathered", gathered)
    monkeypatch.setattr(MetadataReader, "read", metadata)
    monkeypatch.setattr(group_lists.LagReader, "read", read)


def test_a_list_without_lags_is_still_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: `--lag` printed nothing if Metadata was not answered after the list."""
    play_lags(monkeypatch, Listing({"a": {"type": "consumer", "node": 1}}), lags=None)
    found = asyncio.run(with_lag(OneNode()))  # type: ignore[arg-type]
    assert [row["group"] for row in found.rows()] == ["a"] and "no answer in time" in found.problems[0]


@pytest.mark.parametrize("asks", ["members", "place", "lag"])
@pytest.mark.parametrize(
    ("code", "is_problem"), [(NOT_ALLOWED, True), (KafkaError.REQUEST_TIMED_OUT, True), (0, False)], ids=str
)
def test_a_refusal_for_single_groups_is_a_problem_of_the_list(
    monkeypatch: pytest.MonkeyPatch, asks: str, code: int, is_problem: bool
) -> None:
    """Symptom: without DESCRIBE_CONFIGS no group was at a sidecar, so that previews and checks found no group."""
    kinds = ("classic", "consumer", "share", "streams")
    found = Listing({kind: {"type": kind, "node": 1} for kind in kinds})
    conn: Any = Refuses(code)
    if asks == "members":
        asyncio.run(_members(conn, found.groups, found))
    elif asks == "place":
        asyncio.run(_whereabouts(conn, found))
    else:
        play_lags(monkeypatch, found, lags={} if code else {kind: {} for kind in kinds})
        asyncio.run(with_lag(OneNode()))  # type: ignore[arg-type]
    assert len(found.problems) == is_problem
    if asks != "lag" and code == NOT_ALLOWED:
        assert "4 groups: GROUP_AUTHORIZATION_FAILED; DESCRIBE" in found.problems[0]
