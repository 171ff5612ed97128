"""The effect of an attack on others at a real broker with SASL, ACLs and a sidecar, and whether that is too much.

**Waits.** Bystanders have one request at a time under way, as members and producers have: a KIP-848 heartbeat, which
the sidecar answers, and Metadata, which passes. A third one asks the broker itself for the same. Their p99s count a
long wait for every moment of it (`felt`). What fails an attack is not the time on the clock, which any other process
makes longer, but what the kernel says of it (waits.py): the sidecar's loop may work for 50 ms at others' requests while
one of these waits, beside what it works while the broker has the request. And nobody may wait for half a second in
which nobody works, which the one beside the broker does not: then it lies in a queue. Times on the clock are printed.

**Memory.** RSS of the sidecar, sampled each 50 ms: at most 64 MiB more than before, and no more than 32 MiB more when
the attack has been over for some seconds, each beside what the members that are there may take: they have
`limits.members_bytes`, and the sidecar counts them itself (`sidecar_members_bytes`). What the allocator keeps of the
first large requests is there before.

**Owners.** /owners is the same with its generation, which each rebalance of the sidecars' own group raises; and each
answer to the bystander's heartbeats is the same, byte by byte: epoch, assignment and error.

**Others who come.** A newcomer that connects, authenticates and joins a new group has its partitions within some
seconds; a kubelet's probe of /livez on a connection of its own has its answer. Seconds in which the sidecar or the
newcomer itself had no processor do not count.

**The pager.** No log line of level error or critical, no traceback, and no change of a metric in the expression of an
alert with the severity `critical` (tools/alert_rules.py).
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isinf
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourcePatternType, ResourceType  # type: ignore[attr-defined]

from benchmarks.heartbeat import TOPIC, join
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka.properties import of
from sidecar.kafka.security import PLAINTEXT
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.clients.ground import ENV
from tests.hostile.attacks import CALLERS
from tests.hostile.side import MIB, Repeated, Side, Waits, ended, fill, login
from tests.hostile.target import DATA, HOST
from tests.hostile.waits import SILENCE_S
from tests.security.ground import ADMIN, Secured
from tools.alert_rules import ALERTS

WORK_MS, IDLE_MS = 50.0, 500.0
GROWS_MIB, STAYS_MIB = 64.0, 32.0
"""Memory that an attack may take, and that may stay. The latter is the allocator's: blocks of less than 1 MB
(`MMAP_BYTES`) are freed inside its heap, of which it gives back the end alone. A hundred requests of 200 KB that waited
leave 20 MiB so, and the next hundred take the same."""
KEPT = 0.5
"""Share of removed members' memory that may stay for later ones: their blocks lie between others."""
NEWCOMER_S, PROBE_S = 6.0, 2.0
BACK_S, PATIENCE_S = 13.0, 120.0
CONNECTIONS = 2_000
"""`limits.connections`: an attack that takes all of them is over sooner."""
CAROL, GROUP = "carol", "managed-bystander"
ORDERS = "orders"
LONG_TOPICS = [f"t{'a' * 235}{i:04}" for i in range(100)]
PAGING = {name for a in ALERTS if a.severity == "critical" for name in re.findall(r"\bsidecar_\w+", a.expr)}
LOUD = re.compile(r"level='?(error|critical)|Traceback|handler broke|ended by a bug|ownership lost")
HELD = re.compile(r"^sidecar_members_bytes (\S+)", re.MULTILINE)
BUCKET = re.compile(r'sidecar_loop_busy_seconds_bucket\{le="([^"]+)"\} (\S+)')


@dataclass
class Effect:
    """`beat`, `passed`, `direct`: of the bystanders. MiB: before, at most, after. `held_ms`: the longest that the
    loop's own work held it, rounded up to a bucket; `busy`: how much of the time in which it had a processor the loop
    worked."""

    attack: str
    caller: str
    beat: Waits = field(default_factory=Waits)
    passed: Waits = field(default_factory=Waits)
    direct: Waits = field(default_factory=Waits)
    rss_mib: list[float] = field(default_factory=list)
    members_mib: list[float] = field(default_factory=list)
    held_ms: float = 0.0
    busy: float = 0.0
    newcomer_s: float = 0.0
    probe_s: float = 0.0
    others: list[str] = field(default_factory=list)
    """Other faults, each as a sentence."""
    done: dict[str, Any] = field(default_factory=dict)

    def _waits(self) -> Iterator[str]:
        for what, waits in (("heartbeat", self.beat), ("passed", self.passed)):
            if isinf(waits.wall_ms):
                yield f"{what}: not served any more"
            elif waits.work_ms - (self.direct.work_ms if waits is self.passed else 0) > WORK_MS:
                yield f"{what}: waited while the loop worked for {waits.work_ms:.0f} ms"
            elif waits.idle_ms - self.direct.idle_ms > IDLE_MS:
                yield f"{what}: waited {waits.idle_ms:.0f} ms in which nobody worked"

    def _memory(self) -> Iterator[str]:
        first, most, last = self.rss_mib
        members = self.members_mib[1] - self.members_mib[0]
        if most - first - members > GROWS_MIB:
            yield f"RSS grew by {most - first - members:.0f} MiB beside the members"
        now = max(self.members_mib[2] - self.members_mib[0], members * KEPT)
        if last - first - now > STAYS_MIB:
            yield f"RSS stays {last - first - now:.0f} MiB above, beside the members"

    def faults(self) -> list[str]:
        """Every limit that the attack broke; nothing if others noticed little enough."""
        found = [*self._waits(), *self.others, *self._memory()]
        if self.newcomer_s > NEWCOMER_S:
            found.append(f"a newcomer waited {self.newcomer_s:.1f} s")
        if self.probe_s > PROBE_S:
            found.append(f"a probe of /livez waited {self.probe_s:.1f} s")
        return found

    def row(self) -> str:
        waits = f"{self.beat!s:12} {self.passed!s:13} {self.direct.wall_ms:6.0f}"
        mib = ["/".join(f"{mib:.0f}" for mib in of) for of in (self.rss_mib, self.members_mib)]
        own = f"{self.held_ms:6.0f} {self.busy:5.0%} {self.newcomer_s:6.1f} {self.probe_s:6.1f}"
        verdict = "; ".join(self.faults()) or "good"
        return f"{self.attack:24} {self.caller or 'nobody':8} {waits} {own}  {mib[0]:13} {mib[1]:9} {verdict}"


HEAD = (
    f"{'attack':24} {'caller':8} {'beat':12} {'passed':13} {'direct':>6}   held  busy  new s  probe  {'RSS':13} "
    f"{'members':9} verdict\n{'':33} {'p99 ms: clock/work/idle':33}   {'ms':4}{'':21} {'MiB':23}"
)


@dataclass
class AttackedSidecar:
    """One broker with its sidecar. `ground`: None where it is open, and every caller is nobody."""

    kafka: LocalKafka
    ground: Secured | None
    side: Side

    @property
    def user(self) -> str:
        return CAROL if self.ground else ""

    # ---- what the sidecar tells -----------------------------------------------------------------------
    def get(self, path: str, timeout_s: float = PATIENCE_S) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{self.side.admin}{path}", timeout=timeout_s) as res:
            return str(res.read().decode())

    def observe(self) -> Observed:
        text = self.get("/metrics")
        figures = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in text.splitlines() if line[:1] != "#"}
        pages = {name: value for name, value in figures.items() if name.partition("{")[0] in PAGING}
        held = {float(le) * 1000: float(n) for le, n in BUCKET.findall(text)}
        return Observed(json.loads(self.get("/owners")), pages, held, _members_mib(text), self.log.stat().st_size)

    def closed(self, cause: str) -> float:
        """Connections that the sidecar has closed for this."""
        line = re.search(
            rf'^sidecar_connections_closed_total{{cause="{cause}"}} (\S+)', self.get("/metrics"), re.MULTILINE
        )
        return float(line[1]) if line else 0.0

    @property
    def log(self) -> Path:
        assert self.kafka.nodes[0].sidecar is not None
        return self.kafka.nodes[0].sidecar.log

    # ---- others ---------------------------------------------------------------------------------------
    def newcomer(self) -> None:
        """Raises OSError and EOFError when it is not served in time."""
        group, member, epoch = f"{GROUP}-{uuid.uuid4()}", str(uuid.uuid4()), 0
        until = time.monotonic() + SILENCE_S
        client = login(self.side.port, self.user)
        client.sock.settimeout(SILENCE_S)
        try:
            beat = partial(client.call, ch, "ConsumerGroupHeartbeat", 68, 1, flexible=True)
            assigned = False
            while not assigned:
                req = ch.ConsumerGroupHeartbeatRequest(group, member, epoch)
                if epoch == 0:
                    req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = 60_000, [TOPIC], []
                found = beat(request=req)
                if time.monotonic() > until:
                    raise TimeoutError(f"no partitions, and error {found.error_code}")
                epoch = found.member_epoch
                assigned = found.assignment is not None and bool(found.assignment.topic_partitions)
            beat(request=ch.ConsumerGroupHeartbeatRequest(group, member, -1))
        finally:
            client.close()

    def probe(self) -> None:
        self.get("/livez", SILENCE_S)

    # ---- before and after -----------------------------------------------------------------------------
    def heal(self) -> None:
        """A sidecar that ended is started again, and the bystander is a member of a settled group."""
        node = self.kafka.nodes[0]
        assert node.sidecar is not None
        if not node.sidecar.alive:
            self.side.process = self.kafka.start_sidecar(node)
        self.kafka.wait_ready(PATIENCE_S)
        security = of(self.ground.java(CAROL, self.ground.clients, "PLAIN")) if self.ground else PLAINTEXT
        self.side.heartbeat = asyncio.run(join(HOST, self.side.port, GROUP, 1, security))[0]

    def attacked(self, name: str, user: str, seconds: float) -> Effect:
        """Raises RuntimeError when the attack itself broke."""
        effect, before, first_mib = Effect(name, user), self.observe(), self.side.rss_mib()
        bystanders, pid = self.side.bystanders(), self.side.process.worker_pid
        members_mib = [before.members_mib]
        newcomer, probe = Repeated(self.newcomer, 0.3, pid), Repeated(self.probe, 0.5, pid)
        members = Repeated(lambda: members_mib.append(_members_mib(self.get("/metrics", SILENCE_S))), 0.5, pid)
        beside = (newcomer, probe, members)
        for each in beside:
            each.start()
        run, since = ran_s(pid), time.monotonic()
        most, out = self.side.attacked(name, seconds, user if self.ground else "")
        alive = self.side.process.alive and self.side.process.worker_pid == pid
        if alive:
            worked, waited = (now - was for now, was in zip(ran_s(pid), run, strict=True))
            effect.busy = worked / (time.monotonic() - since - waited)
        effect.done = json.loads(out)
        if not effect.done["sent"] and not effect.done["answered"] and effect.done["opened"] <= 1:
            effect.others.append("the attack did nothing")
        effect.newcomer_s, effect.probe_s, _ = (each.end() for each in beside)
        effect.others += sorted({f"a newcomer: {why}" for why in newcomer.failures})
        effect.others += sorted({f"a probe of /livez: {why}" for why in probe.failures})
        effect.beat, effect.passed, effect.direct = ended(bystanders)
        if others := effect.beat.other:
            effect.others.append(f"{others} heartbeats had another answer")
        if alive:
            members_mib.append(self._after(effect, before))
            self._wait_for_memory(first_mib + max(members_mib) - before.members_mib)
        else:
            effect.others.append("the sidecar ended")
        # At the same moment: sessions end in `heal`, and the metric no longer has what the RSS has.
        now_mib, last_mib = _members_mib(self.get("/metrics")) if alive else 0.0, self.side.rss_mib()
        self.heal()
        effect.rss_mib = [first_mib, most, last_mib]
        effect.members_mib = [before.members_mib, max(members_mib), now_mib]
        return effect

    def _wait_for_memory(self, first_mib: float) -> None:
        """Waits until the memory is back, or `BACK_S`."""
        late = time.monotonic() + BACK_S

        def back() -> bool:
            return time.monotonic() > late or self.side.rss_mib() - first_mib <= STAYS_MIB

        wait_until("RSS", back, 2 * BACK_S)

    def _after(self, effect: Effect, before: Observed) -> float:
        """Adds what metrics and log show of the attack. Returns the MiB of the members."""
        after = self.observe()
        with self.log.open("rb") as log:
            log.seek(before.logged)
            loud = [line for line in log.read().decode(errors="replace").splitlines() if LOUD.search(line)]
        effect.others += sorted({f"logged: {event_of(line)}" for line in loud})
        effect.held_ms = max((le for le in after.held if after.grew(before, le)), default=0.0)
        names = after.pages.keys() | before.pages.keys()
        changed = Counter(n.partition("{")[0] for n in names if after.pages.get(n) != before.pages.get(n))
        effect.others += [f"pages: {name} ({n} series)" for name, n in changed.items()]
        was, now = before.owners, after.owners
        if was != now:
            effect.others.append(f"owners: generation {was['generation']} -> {now['generation']}")
        return after.members_mib


def _members_mib(metrics: str) -> float:
    """Returns the memory of all groups' members, as the sidecar counts it."""
    found = HELD.search(metrics)
    assert found is not None
    return float(found[1]) / MIB


def ran_s(pid: int) -> tuple[float, float]:
    """Seconds that the first thread of a process, which runs the loop, had a processor, and waited for one."""
    worked, waited = Path(f"/proc/{pid}/schedstat").read_text().split()[:2]
    return int(worked) / 1e9, int(waited) / 1e9


def event_of(line: str) -> str:
    """Returns the parts of a log line that are equal in all lines of its kind."""
    return " ".join(re.findall(r"(?:event|api|why)=(?:'[^']*'|\"[^\"]*\"|\S+)", line)) or line[:100]


@dataclass
class Observed:
    """A sidecar's metrics, owners and log at one moment. `pages`: metric with labels -> value; `held`: upper bound in
    ms -> stops of the loop up to that bound; `logged`: bytes."""

    owners: dict[str, Any]
    pages: dict[str, str]
    held: dict[float, float]
    members_mib: float
    logged: int

    def grew(self, before: Observed, le: float) -> bool:
        """Whether a stop of the loop came between this bound and the one below it."""
        below = max((b for b in self.held if b < le), default=None)
        told = [t.held[le] - (t.held[below] if below is not None else 0.0) for t in (before, self)]
        return told[1] > told[0]


# ---- worlds -----------------------------------------------------------------------------------------------
def _env(**more: str) -> dict[str, str]:
    return {**ENV, "SIDECAR_LIMITS__CONNECTIONS": str(CONNECTIONS), **more}


def _secured(folder: Path) -> tuple[LocalKafka, Secured]:
    """Starts a secured broker, without its sidecar yet."""
    ground = Secured(folder, internal="SASL_PLAINTEXT", users=(*filter(None, CALLERS), CAROL))
    files = {
        "SIDECAR_COMMAND_CONFIG": str(ground.file("own", ground.java(ADMIN, ground.internal, "PLAIN"))),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(ground.file("seen", ground.java(ADMIN, ground.clients, "PLAIN"))),
    }
    kafka = ground.start(brokers=1, sidecar_env=_env(**files))
    read, prefixed = AclOperation.READ, ResourcePatternType.PREFIXED
    for topic in (ORDERS, DATA, TOPIC):
        ground.create(kafka, topic, 6)
    fill(kafka, **ground.client(ADMIN, ground.internal))
    ground.allow(kafka, "alice", [(ResourceType.TOPIC, DATA, read)])
    for user, topic, groups in (("alice", ORDERS, "managed-alice"), (CAROL, TOPIC, GROUP)):
        ground.allow(kafka, user, [(ResourceType.TOPIC, topic, read)])
        ground.allow(kafka, user, [(ResourceType.GROUP, groups, read)], prefixed)
    ground.allow(kafka, "bob", [(ResourceType.GROUP, "*", read)])
    admin = ground.admin(kafka)  # must outlive its answers
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in LONG_TOPICS]).values():
        future.result(60)
    return kafka, ground


def _open(folder: Path) -> LocalKafka:
    kafka = LocalKafka(folder, brokers=1, sidecar_env=_env())
    kafka.start_brokers()
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})  # must outlive its answers
    topics = [
        *(NewTopic(name, 6, 1) for name in (ORDERS, DATA, TOPIC)),
        *(NewTopic(name, 1, 1) for name in LONG_TOPICS),
    ]
    for future in admin.create_topics(topics).values():
        future.result(60)
    fill(kafka)
    return kafka


@contextmanager
def place(folder: Path, secured: bool = True, base: str = "") -> Iterator[AttackedSidecar]:
    """A broker and a sidecar with default limits but CONNECTIONS. `base`: another checkout, whose sidecar runs."""
    kafka, ground = _secured(folder) if secured else (_open(folder), None)
    try:
        node = kafka.nodes[0]
        if base:
            kafka.trees[node.node_id] = Path(base)
        process = kafka.start_sidecar(node)
        kafka.wait_ready(PATIENCE_S)
        ways = (node.admin_port, GROUP, kafka.clients_listener(node))
        made = AttackedSidecar(kafka, ground, Side("sidecar", node.sidecar_port, process, b"", "", *ways))
        made.side.user = made.user
        made.heal()
        made.side.attacked("large_token", 1.0)
        made.newcomer()
        yield made
    finally:
        kafka.stop()
