"""Invariants after every event, seen from outside: in the logs of the brokers, and in what clients are told."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import inf

from sidecar.core.classic.group import ClassicGroup
from sidecar.core.share.group import ShareGroup
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.status_texts import StatusCode
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.core.vocabulary.placement import partition_for
from tests.harness.endings import ENDS, ends
from tests.whole import arrivals
from tests.whole.broker.txn import TRANSACTIONS
from tests.whole.client import Client, Place
from tests.whole.fold import Fold, Group, Part
from tests.whole.inside import Inside
from tests.whole.kafka import Kafka, host_of
from tests.whole.moving import Moving, Step
from tests.whole.share import ShareMember
from tests.whole.sharing import Sharing
from tests.whole.stored import OFFSETS, StoredOffsets
from tests.whole.streams import StreamsMember
from tests.whole.universe import Universe
from tests.whole.violation import Violation

STATE_TOPIC = "__group_state"
ROLES = ("active", "standby", "warm-up")
OF_INSTANCES = (Code.FENCED_INSTANCE_ID, Code.UNRELEASED_INSTANCE_ID)
BEATS = ("Heartbeat", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")
AS_A_MEMBER = (*BEATS, "OffsetCommit", "TxnOffsetCommit")
UNDER_A_LEASE = (*BEATS, "JoinGroup", "SyncGroup", "LeaveGroup")
GIVEN_BACK_MS = 2_500.0
"""A pause of less than a second is not given back (GAP_MS); and there may be a second one."""
WAITS_MS = 30_000
"""The longest wait for an answer, whatever happens, beside the client's rebalance timeout."""
BELIEVED_MS = 15_500.0
"""For so long a coordinator goes on that does not know yet that it is none (ownership.proof_ms)."""
LOADING_MS = 2_900
"""Almost the time that a request waits for a takeover. Then a classic heartbeat is told that all is well, as by Kafka
while it is loading (row 1.16 of docs/reference/behaviour.md): that says nothing about the member."""
SLOW_MS = 100.0
"""Milliseconds above which an answer is shown with its time."""
AT_ONCE_MS = 500.0
"""A sidecar knows what it has written itself. Its front hears of it before anybody else."""


FOR_SILENCE = re.compile("timeout|in time")
"""A member that was removed for that must not be answered well elsewhere: it would own what others have now."""


class Judge:
    def __init__(self, universe: Universe, kafka: Kafka, partitions: int) -> None:
        self.universe, self.kafka = universe, kafka
        self.sharing = Sharing(kafka, partitions)
        self.moving = Moving(kafka, partitions, self.sharing)
        told = (self._changed, self._removed, self.moving.said, self._emptied)
        self.fold = Fold(kafka, STATE_TOPIC, partitions, *told)
        self.clients: list[Client] = []
        self.figures: Counter[str] = Counter()
        self._acknowledged: dict[tuple[str, Place], tuple[list[float], list[int]]] = {}
        self._given_up: set[tuple[str, Place, str, int]] = set()
        """Commits whose client waits no more: group, place, member, offset."""
        self.unheard: set[int] = set()
        """Nodes whose owner need not be the sidecar that their clients come to."""
        self.repaired: set[str] = set()
        """Groups that nobody could read for a while."""
        self._problem: Exception | None = None
        """Found in the middle of a client's work, where an exception would end that client and nothing else."""
        self._epochs: dict[str, int] = {}
        self._kinds: dict[str, tuple[str, set[str]]] = {}
        """The protocol and the members of each group."""
        self._highest: dict[str, int] = {}
        """The highest epoch that any group of this name has ever had in the log."""
        self._since: dict[str, tuple[float, int]] = {}
        """Since when the epoch of a group is what it is, and by which node's sidecar."""
        self.offsets = StoredOffsets(kafka, self._went_back)
        arrivals.listen(self._arrived)
        self.inside = Inside(universe, kafka, self.fold, self.moving.homes)
        kafka.cluster.on_asked = self._asked
        kafka.cluster.on_joined = self.moving.joined
        self.say: Callable[[str, str], None] | None = None
        """Takes a line about what clients are told; with the timeline only."""
        self._last_said: dict[tuple[Client, str], str] = {}
        self._news: dict[tuple[str, int], None] = {}
        kafka.on_commit.append(self._committed)

    # ---- the log --------------------------------------------------------------------------------------------
    def _committed(self, topic: str, partition: int) -> None:
        if topic in (STATE_TOPIC, OFFSETS):
            self._news[topic, partition] = None
            self.universe.new = True

    def _asked(self, node_id: int, group_id: str, member_id: str) -> None:
        """A broker, in the name of this member."""
        self.inside.hears(node_id, group_id, member_id)
        self.moving.hears(group_id, member_id)

    def look(self) -> None:
        """After every event that may concern it."""
        if self._problem is not None:
            raise self._problem
        if self._news:
            news, self._news = self._news, {}
            for topic, p in news:
                if topic == STATE_TOPIC:
                    self.fold.read(p)
                else:
                    self.offsets.read(p)
        self.inside.look()

    def forget(self) -> None:
        """The state topic is another one: every group begins anew. Offsets stay what they were."""
        self.fold.forget()
        self.inside.forget()
        self.sharing.forget()
        for known in (self._epochs, self._kinds, self._since):
            known.clear()

    def _emptied(self, group_id: str) -> None:
        """Lets the group begin anew: its unreadable records are gone, with everything else of it."""
        self.repaired.add(group_id)
        self.sharing.forget(group_id)
        for known in (self._epochs, self._kinds, self._since):
            known.pop(group_id, None)

    def read_all(self) -> None:
        for p in range(len(self.fold.parts)):
            self.fold.read(p)
            self.offsets.read(p)

    def at_the_end(self) -> None:
        """Checks the end, when nothing has happened for longer than a session."""
        self.read_all()
        self.offsets.all_there()
        self.inside.at_the_end()

    def _changed(self, group_id: str) -> None:
        self.figures["changes"] += 1
        group = self.fold.group(group_id)
        if group is None:
            self.sharing.forget(group_id)
            self._epochs.pop(group_id, None)
            return
        begins = group_id not in self._epochs
        epoch = group.generation if isinstance(group, ClassicGroup) else group.epoch
        kind, members = self._kinds.get(group_id, (group.kind, set()))
        if kind != group.kind and members.isdisjoint(group.members):
            self._epochs.pop(group_id, None)  # nobody was left, and a member of the other protocol begins it anew
        self._kinds[group_id] = group.kind, set(group.members)
        if epoch < self._epochs.get(group_id, 0):
            raise Violation(f"the epoch of {group_id} went back from {self._epochs[group_id]} to {epoch}")
        self._highest[group_id] = max(epoch, self._highest.get(group_id, 0))
        if epoch != self._epochs.get(group_id):
            self._since[group_id] = self.universe.now_ms, self.owner_of(group_id)
        self._epochs[group_id] = epoch
        if isinstance(group, ShareGroup):
            if begins and group_id in self.moving.homes:
                self.sharing.comes(group)
            self.sharing.changed(group)
        if isinstance(group, StreamsGroup) and begins and group_id in self.moving.homes:
            self.moving.comes(group)
        self.no_two_owners(group_id)

    def not_heard_since(self, group_id: str, members: Iterable[Client]) -> str:
        """Returns which members have not been answered since the last epoch of this streams group began. To a broker
        members come from the host of their sidecar, so each one's first heartbeat after a move changes its details, and
        the epoch."""
        if not isinstance(self.fold.group(group_id), StreamsGroup):
            return ""
        since_ms, _ = self._since.get(group_id, (0.0, -1))
        late = sorted(c.name for c in members if c.well_ms < since_ms + c.habits.heartbeat_ms)
        return f"{group_id}: {late} have not been heard since its last epoch began" if late else ""

    def owner_of(self, group_id: str) -> int:
        """Node id of the sidecar that has claimed its partition last; -1 if none has."""
        return self.fold.parts[partition_for(group_id, len(self.fold.parts))].owner

    def step_of(self, group_id: str) -> Step | None:
        """Returns the step that the last move of this group has come to; None: it is over."""
        clients = {c.member_id for c in self.clients if c.habits.group_id == group_id and c.proc.alive}
        return self.moving.step(group_id, self.fold.group(group_id), self.fold.has_records(group_id), clients)

    def _removed(self, group_id: str, member_id: str, why: str, part: Part) -> None:
        """A member that nobody could hear is not silent: it gets its time back, and all of it from a new owner."""
        if "session timeout" not in why:
            return
        self.figures["members removed for silence"] += 1
        for c in self.clients if part.owner not in self.unheard else ():
            if c.habits.group_id == group_id and c.member_id == member_id:
                # A broker that is cut off may still answer a member of a group that was taken in from another broker.
                spoke_ms = 0.0 if self.moving.answers_since(group_id, member_id, c.spoke_ms) else c.spoke_ms
                heard_ms = self.inside.heard_ms(part.owner, group_id, max(spoke_ms, part.taken_ms))
                if heard_ms < c.habits.session_ms - GIVEN_BACK_MS:
                    raise Violation(f"{member_id} is removed for silence when it could be heard for {heard_ms:.0f} ms")

    def no_two_owners(self, group_id: str) -> None:
        """No partition is with two clients whose commits the group would take, at the sidecars or at the broker."""
        group = self.fold.group(group_id)
        if group_id in self.fold.foreign or (group is None and group_id not in self.moving.homes):
            return
        if isinstance(group, ShareGroup):
            return  # its members share partitions
        seen: dict[Place, str] = {}
        for c in self.clients:
            if c.habits.group_id != group_id or not c.proc.alive:
                continue
            if not (group is not None and _valid(c, group)) and not self.moving.takes_commits(group_id, c):
                continue
            for place in c.owned:
                if place in seen:
                    raise Violation(f"{place} of {group_id} has two owners: {seen[place]} and {c.member_id}")
                seen[place] = c.member_id

    def no_task_twice(self, client: StreamsMember) -> None:
        """No process has a task in two roles, or twice in one."""
        group = self.fold.group(client.habits.group_id)
        if group is None or client.habits.group_id in self.fold.foreign:
            return
        process, seen = (client.habits.group_id, client.process), dict[tuple[str, int], str]()
        for c in self.clients:
            if not isinstance(c, StreamsMember) or (c.habits.group_id, c.process) != process:
                continue
            if not c.proc.alive or not _valid(c, group):
                continue
            for role, tasks in zip(ROLES, c.tasks, strict=True):
                for task in tasks:
                    told = f"{role} at {c.member_id}"
                    if task in seen:
                        raise Violation(f"{task} is twice in process {c.process}: {seen[task]}, {told}")
                    seen[task] = told

    # ---- clients --------------------------------------------------------------------------------------------
    def answered(self, client: Client, host: str, what: str, code: int, asked_ms: float) -> None:
        self.figures["answers"] += 1
        self.figures[f"{what}: {name_of(code)}"] += 1
        if self.say is not None:
            self._say(client, what, f"{name_of(code)} from {host}", asked_ms)
        waited = self.universe.now_ms - asked_ms
        if waited > WAITS_MS + client.habits.rebalance_ms:
            self._wrong(f"{client.name} waited {waited:.0f} ms for {what}")
        self._does_not_end(client, host, what, code, asked_ms)
        is_loading = what == "Heartbeat" and waited >= LOADING_MS
        if code == Code.NONE and not is_loading and client.habits.group_id not in self.fold.foreign:
            self._all_is_well(client, host, what, asked_ms)

    def _does_not_end(self, client: Client, host: str, what: str, code: int, asked_ms: float) -> None:
        """Checks that an answer does not end its client. These clients do nothing wrong: only one in whose place
        another has come hears what ends it."""
        api = f"{what} of the {client.commits_as} protocol" if what == "OffsetCommit" else what
        h = client.habits
        theirs = h.group_id in self.moving.homes and self.moving.answers(h.group_id, client.member_id, asked_ms)
        if theirs and not isinstance(client, ShareMember | StreamsMember):
            return  # a broker's word, or may be: it knows no first answer that was lost
        fenced = code in OF_INSTANCES and any(
            c is not client
            and (c.habits.group_id, c.habits.instance_id) == (h.group_id, h.instance_id)
            and not (code == Code.UNRELEASED_INSTANCE_ID and self._was_gone(c, host, asked_ms))
            for c in self.clients
        )
        fenced |= code in OF_INSTANCES and self.moving.has_heard(h.group_id, client.member_id)
        no_member = what == "OffsetFetch" and code == Code.UNKNOWN_MEMBER_ID
        of_transactions = client.transaction_has_timed_out() or client.producer_is_newer(code)
        earned = client.leaving or no_member or (what == "TxnOffsetCommit" and of_transactions)
        if api in ENDS and ends(api, code) and not (earned or (h.instance_id and fenced)):
            self._wrong(f"{client.name}: {what} is answered {name_of(code)}, which ends {', '.join(ends(api, code))}")

    def _was_gone(self, client: Client, host: str, asked_ms: float) -> bool:
        """Returns whether the client's record was gone when another asked, and that host knew."""
        gone_ms, remover, _ = self.fold.gone.get((client.habits.group_id, client.member_id), (inf, -1, ""))
        return asked_ms > gone_ms + _believed_ms(host, remover)

    def _all_is_well(self, client: Client, host: str, what: str, asked_ms: float) -> None:
        group_id = client.habits.group_id
        if group_id in self.moving.homes and (
            what == "LeaveGroup" or self.moving.answers(group_id, client.member_id, asked_ms)
        ):
            return  # that is a broker's word, or may be
        if what in AS_A_MEMBER:
            gone_ms, remover, why = self.fold.gone.get((group_id, client.member_id), (asked_ms, -1, ""))
            if asked_ms > gone_ms + (AT_ONCE_MS if FOR_SILENCE.search(why) else _believed_ms(host, remover)):
                self._wrong(f"{client.name} was removed at {gone_ms:.0f}, asked at {asked_ms:.0f}, and all is well")
        if what in UNDER_A_LEASE and not self.inside.had_a_lease(host, group_id, asked_ms):
            self._wrong(f"{client.name} asked at {asked_ms:.0f}, and all is well at {host}, which has no lease")
        if what == "Heartbeat":
            if self.inside.rebalances(host, group_id, asked_ms - AT_ONCE_MS):
                self._wrong(f"{client.name} asked at {asked_ms:.0f}, and all is well, but its group rebalances")
            self._in_this_generation(client, host, asked_ms)

    def _say(self, client: Client, what: str, told: str, asked_ms: float) -> None:
        """Writes a line for what is new: not for each heartbeat that is well."""
        if self.say is not None and self._last_said.get((client, what)) != told:
            self._last_said[client, what] = told
            took = self.universe.now_ms - asked_ms
            self.say(client.name, f"{what}: {told}" + (f", after {took:,.0f} ms" if took > SLOW_MS else ""))

    def has_none(self, client: Client, what: str, asked_ms: float) -> None:
        """No answer: the connection is lost, or it has waited long enough."""
        if self.say is not None:
            self._say(client, what, "no answer", asked_ms)

    def found(self, client: Client, host: str, told: str, asked_ms: float) -> None:
        """Writes a line: the client has asked this host for its coordinator, and has not got a connection to it."""
        if self.say is not None:
            self._say(client, "FindCoordinator", f"{told} from {host}", asked_ms)

    def owns(self, client: Client) -> None:
        """Checks the owners of the group: the client has taken partitions, or given some up."""
        if self.say is not None:
            places = " ".join(f"{t}-{p}" for t, p in sorted(client.owned)) or "nothing"
            self.say(client.name, f"owns {places}, epoch {client.epoch}")
        self.no_two_owners(client.habits.group_id)
        if isinstance(client, ShareMember):
            self.sharing.holds(client)
        if isinstance(client, StreamsMember):
            self.no_task_twice(client)

    def _wrong(self, text: str) -> None:
        self.broke(Violation(text))

    def broke(self, problem: Exception) -> None:
        """The run ends behind the event that is under way."""
        self._problem = self._problem or problem
        self.universe.new = True

    def told(self, client: Client, what: str, epoch: int) -> None:
        group_id = client.habits.group_id
        known = max(self._highest.get(group_id, 0), self.moving.highest.get(group_id, 0))
        if epoch > known and group_id not in self.fold.foreign:
            self._wrong(f"{client.name} is told epoch {epoch} before its records are committed: {what}")

    def _in_this_generation(self, client: Client, host: str, asked_ms: float) -> None:
        """A classic member of an older generation is told so."""
        group = self.fold.group(client.habits.group_id)
        since_ms, changer = self._since.get(client.habits.group_id, (asked_ms, -1))
        old = isinstance(group, ClassicGroup) and client.epoch < group.generation
        if old and asked_ms > since_ms + _believed_ms(host, changer):
            told = f"{client.name} of generation {client.epoch} asked at {asked_ms:.0f}"
            self._wrong(f"{told}, and all is well, but there is another one since {since_ms:.0f}")

    def status(self, client: Client, code: StatusCode) -> None:
        self.figures[f"status: {code.name}"] += 1

    def commits(self, client: Client, host: str, place: Place, offset: int) -> None:
        self.offsets.sending((client.member_id, host), (client.habits.group_id, place), offset)

    def committed(self, client: Client, place: Place, offset: int) -> None:
        """A commit was acknowledged."""
        self.figures["commits"] += 1
        self.offsets.acknowledged((client.habits.group_id, place), offset)
        times, offsets = self._acknowledged.setdefault((client.habits.group_id, place), ([], []))
        if not offsets or offset > offsets[-1]:
            times.append(self.universe.now_ms)
            offsets.append(offset)

    def _arrived(self, node_id: int, group_id: str, member_id: str, offsets: Mapping[Place, int]) -> None:
        part = self.fold.parts[self.fold.partition_of(group_id)]
        theirs = self.moving.streams_at_broker(group_id) is not None and not self.fold.has_records(group_id)
        if theirs or part.owner == node_id:
            # A broker takes whatever comes in the member's epoch, however late.
            since_ms = inf if theirs else part.taken_ms
            for place, offset in offsets.items():
                if (group_id, place, member_id, offset) in self._given_up:
                    self.offsets.arrived((group_id, place), offset, since_ms)

    def _went_back(self, kept: tuple[str, Place], offset: int) -> None:
        """Forgets the acknowledged offsets beyond this one."""
        self.figures["commits that came too late"] += 1
        times, offsets = self._acknowledged.get(kept, ([], []))
        known = bisect_right(offsets, offset)
        del times[known:], offsets[known:]

    def gives_up(self, client: Client, place: Place, offset: int) -> None:
        """Notes that the client no longer waits for the answer to this commit."""
        self._given_up.add((client.habits.group_id, place, client.member_id, offset))

    def decides(self, host: str, txn_id: str) -> bool:
        leader = self.kafka.leader(*self._place_of(txn_id))
        return leader is not None and host == host_of(leader)

    def disputed(self, txn_id: str) -> bool:
        """Some broker has not heard who coordinates this id."""
        place = self._place_of(txn_id)
        leader, nodes = self.kafka.leader(*place), self.kafka.cluster.nodes.values()
        return any((known := n.image.partition(*place)) is None or known.leader != leader for n in nodes if n.up)

    def timed_out(self, producer_id: int, epoch: int) -> bool:
        return (producer_id, epoch) in self.kafka.cluster.timed_out

    def _place_of(self, txn_id: str) -> tuple[str, int]:
        return TRANSACTIONS, partition_for(txn_id, len(self.kafka.cluster.leaders(TRANSACTIONS)))

    def aborts(self, client: Client, offsets: Mapping[Place, int]) -> None:
        """The transaction of these offsets is to be aborted."""
        self.figures["transactions aborted"] += 1
        for place, offset in offsets.items():
            self.offsets.aborts(client.member_id, (client.habits.group_id, place), offset)

    def fetched(self, client: Client, place: Place, offset: int, asked_ms: float) -> None:
        """Checks that the answer has everything that was acknowledged before the question."""
        self.figures["fetches"] += 1
        times, offsets = self._acknowledged.get((client.habits.group_id, place), ([], []))
        if self.offsets.is_aborted((client.habits.group_id, place), offset):
            self._wrong(f"{client.name} reads {place} from {offset}, which was in an aborted transaction")
        known = bisect_right(times, asked_ms)
        if known and offset < offsets[known - 1]:
            told = f"{client.name} reads {place} from {offset}"
            self._wrong(f"{told}, but {offsets[known - 1]} was acknowledged at {times[known - 1]:.0f}")


def _believed_ms(host: str, changer: int) -> float:
    """Returns for how many milliseconds the sidecar on that host may not know of a change that node `changer` has
    written."""
    return AT_ONCE_MS if changer >= 0 and host == host_of(changer) else BELIEVED_MS


def _valid(c: Client, group: Group) -> bool:
    """Whether the group would let this client commit, whatever the partition."""
    if isinstance(group, ClassicGroup):
        return group.in_generation(c.epoch) and c.member_id in group.members
    member = group.members.get(c.member_id)
    return member is not None and c.epoch > 0 and c.epoch in (member.member_epoch, member.previous_epoch)
