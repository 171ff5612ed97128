"""What others feel of an attack on a real broker with SASL, ACLs and a sidecar, and whether that is too much.

**Waits.** Two bystanders have one request at a time under way, as members and producers have: a KIP-848 heartbeat,
which the sidecar answers, and Metadata, which passes. Their p99 counts a long wait for every moment of it (`felt`). It
may be 50 ms more than the worse of two calm times, one just before the attack and one just after. On a busy machine
the processor alone makes waits of that size, so one of three figures must say, too, that the sidecar was the cause: its
loop was held for more than 50 ms at a time (`sidecar_loop_busy_seconds`, which is CPU time), its loop worked throughout
whenever it had a processor (the kernel's schedstat), or heartbeats waited for half a second longer than what
passed. Attacks have the least priority, so that they take no processor from those who are measured.

**Memory.** RSS of the sidecar, sampled each 50 ms: at most 64 MiB more than before, and no more than 16 MiB more when
the attack has been over for some seconds. What the allocator keeps of the first large requests is there before.

**Owners.** /owners is the same with its generation, which each rebalance of the sidecars' own group raises; and each
answer to the bystander's heartbeats is the same, byte by byte: epoch, assignment and error.

**Others who come.** A newcomer that connects, authenticates and joins a new group has its partitions within some
seconds; a kubelet's probe of /livez on a connection of its own has its answer.

**The pager.** No log line of level error or critical, no traceback, and no change of a metric in the expression of an
alert with the severity `critical` (tools/alerts.py).
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
from sidecar.core.runtime.member_limits import MemberLimits
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process, wait_until
from sidecar.kafka.properties import of
from sidecar.kafka.security import OPEN
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.clients.ground import ENV
from tests.hostile.attacks import CALLERS
from tests.hostile.side import Repeated, Side, calm, login, p99s
from tests.hostile.target import HOST
from tests.security.ground import ADMIN, Secured
from tools.alerts import ALERTS

WAIT_MS, ALONE_MS, HELD_MS, BUSY = 50.0, 500.0, 50.0, 0.8
GROWS_MIB, STAYS_MIB = 64.0, 24.0
"""17 MiB at most were seen to stay, after attacks that send thousands of requests."""
OF_MANY_GROUPS = {"assigned_often": MemberLimits().all_bytes / (1 << 20)}
"""MiB that an attack may take which fills many groups: `limits.members_bytes`."""
NEWCOMER_S, PROBE_S = 6.0, 2.0
CALM_S, BACK_S, PATIENCE_S = 1.5, 13.0, 120.0
CONNECTIONS = 2_000
"""`limits.connections`: an attack that takes all of them is over sooner."""
CAROL, GROUP = "carol", "managed-bystander"
LONG_TOPICS = [f"t{'a' * 235}{i:04}" for i in range(100)]
PAGING = {name for a in ALERTS if a.severity == "critical" for name in re.findall(r"\bsidecar_\w+", a.expr)}
LOUD = re.compile(r"level='?(error|critical)|Traceback|handler broke|ended by a bug|ownership lost")
BUCKET = re.compile(r'sidecar_loop_busy_seconds_bucket\{le="([^"]+)"\} (\S+)')


@dataclass
class Effect:
    """Milliseconds are p99s: calm before, meanwhile, calm after. MiB: before, at most, after. `held_ms`: the longest
    that the loop's own work held it, rounded up to a bucket; `busy`: how much of the time in which it had a processor
    the loop worked."""

    attack: str
    caller: str
    beat_ms: list[float] = field(default_factory=list)
    passed_ms: list[float] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    held_ms: float = 0.0
    busy: float = 0.0
    newcomer_s: float = 0.0
    probes_failed: int = 0
    others: list[str] = field(default_factory=list)
    """What else is wrong, each as a sentence."""
    done: dict[str, Any] = field(default_factory=dict)

    def _waits(self) -> Iterator[str]:
        waits = {"heartbeat": self.beat_ms, "passed": self.passed_ms}
        more_ms = {what: now - max(before, after) for what, (before, now, after) in waits.items()}
        only = self.beat_ms[1] - self.passed_ms[1] > ALONE_MS
        own = self.held_ms > HELD_MS or self.busy > BUSY or only
        for what, (before, now, after) in waits.items():
            if isinf(now):
                yield f"{what}: not served any more"
            elif more_ms[what] > WAIT_MS and own:
                yield f"{what}: p99 {now:.0f} ms, {max(before, after):.0f} ms when calm"

    def faults(self) -> list[str]:
        """Every limit that the attack broke; nothing if others noticed little enough."""
        before, most, after = self.rss_mib
        found = [*self._waits(), *self.others]
        if most - before > OF_MANY_GROUPS.get(self.attack, GROWS_MIB):
            found.append(f"RSS grew by {most - before:.0f} MiB")
        if after - before > STAYS_MIB:
            found.append(f"RSS stays {after - before:.0f} MiB above")
        if self.newcomer_s > NEWCOMER_S:
            found.append(f"a newcomer waited {self.newcomer_s:.1f} s")
        if self.probes_failed:
            found.append(f"{self.probes_failed} probes of /livez failed")
        return found

    def row(self) -> str:
        waits = "  ".join("/".join(f"{ms:.0f}" for ms in of) for of in (self.beat_ms, self.passed_ms))
        rss = "/".join(f"{mib:.0f}" for mib in self.rss_mib)
        own = f"{self.held_ms:6.0f} {self.busy:5.0%} {self.newcomer_s:6.1f}"
        verdict = "; ".join(self.faults()) or "good"
        return f"{self.attack:24} {self.caller or 'nobody':8} {waits:26} {own}  {rss:13} {verdict}"


HEAD = f"{'attack':24} {'caller':8} {'beat, passed p99 ms':26}   held  busy  new s  {'RSS MiB':13} verdict"


@dataclass
class Place:
    """One broker with its sidecar. `ground`: None where it is open, and every caller is nobody."""

    kafka: LocalKafka
    ground: Secured | None
    side: Side
    calm_ms: tuple[float, float] = (0.0, 0.0)

    @property
    def user(self) -> str:
        return CAROL if self.ground else ""

    # ---- what the sidecar tells -----------------------------------------------------------------------
    def get(self, path: str, timeout_s: float = PATIENCE_S) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{self.side.admin}{path}", timeout=timeout_s) as res:
            return str(res.read().decode())

    def told(self) -> Told:
        text = self.get("/metrics")
        figures = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in text.splitlines() if line[:1] != "#"}
        pages = {name: value for name, value in figures.items() if name.partition("{")[0] in PAGING}
        held = {float(le) * 1000: float(n) for le, n in BUCKET.findall(text)}
        return Told(json.loads(self.get("/owners")), pages, held, self.log.stat().st_size)

    @property
    def log(self) -> Path:
        assert self.kafka.nodes[0].sidecar is not None
        return self.kafka.nodes[0].sidecar.log

    # ---- others ---------------------------------------------------------------------------------------
    def newcomer(self) -> None:
        """Raises OSError and EOFError when it is not served in time."""
        group, member, epoch = f"{GROUP}-{uuid.uuid4()}", str(uuid.uuid4()), 0
        until = time.monotonic() + NEWCOMER_S
        client = login(self.side.port, self.user)
        client.sock.settimeout(NEWCOMER_S)
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
        self.get("/livez", PROBE_S)

    # ---- before and after -----------------------------------------------------------------------------
    def heal(self) -> None:
        """A sidecar that ended is started again, and the bystander is a member of a settled group."""
        node = self.kafka.nodes[0]
        assert node.sidecar is not None
        if not node.sidecar.alive:
            self.side.process = self.kafka.start_sidecar(node)
        self.kafka.wait_ready(PATIENCE_S)
        security = of(self.ground.java(CAROL, self.ground.clients, "PLAIN")) if self.ground else OPEN
        self.side.heartbeat = asyncio.run(join(HOST, self.side.port, GROUP, 1, security))[0]
        self.calm_ms = calm(self.side, CALM_S)

    def attacked(self, name: str, user: str, seconds: float) -> Effect:
        """Raises RuntimeError when the attack itself broke."""
        effect, before, first_mib = Effect(name, user), self.told(), self.side.rss_mib()
        bystanders, newcomer, probe = self.side.bystanders(), Repeated(self.newcomer, 0.3), Repeated(self.probe, 0.5)
        newcomer.start()
        probe.start()
        run, since = ran_s(self.side.process), time.monotonic()
        most, out = self.side.attacked(name, seconds, user if self.ground else "")
        alive = self.side.process.alive
        if alive:
            worked, waited = (now - was for now, was in zip(ran_s(self.side.process), run, strict=True))
            effect.busy = worked / (time.monotonic() - since - waited)
        effect.done = json.loads(out)
        effect.newcomer_s = newcomer.end()
        effect.others += sorted({f"a newcomer: {why}" for why in newcomer.failures})
        probe.end()
        effect.probes_failed = len(probe.failures)
        others = bystanders[0].other
        meanwhile = p99s(bystanders)
        if others:
            effect.others.append(f"{others} heartbeats had another answer")
        try:
            self._after(effect, before)
            late = time.monotonic() + BACK_S
            wait_until(
                "RSS", lambda: time.monotonic() > late or self.side.rss_mib() - first_mib <= STAYS_MIB, 2 * BACK_S
            )
        except OSError:
            wait_until("the end of a sidecar that answers nothing", lambda: not self.side.process.alive, PATIENCE_S)
            effect.others.append("the sidecar ended")
        last_mib, former = self.side.rss_mib(), self.calm_ms
        self.heal()
        effect.beat_ms, effect.passed_ms = map(list, zip(former, meanwhile, self.calm_ms, strict=True))
        effect.rss_mib = [first_mib, most, last_mib]
        return effect

    def _after(self, effect: Effect, before: Told) -> None:
        after = self.told()
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


def ran_s(process: Process) -> tuple[float, float]:
    """Seconds that the first thread of a process, which runs the loop, had a processor, and waited for one."""
    worked, waited = Path(f"/proc/{process.worker_pid}/schedstat").read_text().split()[:2]
    return int(worked) / 1e9, int(waited) / 1e9


def event_of(line: str) -> str:
    """What a line of the log says, without what is different in each."""
    return " ".join(re.findall(r"(?:event|api|why)=(?:'[^']*'|\"[^\"]*\"|\S+)", line)) or line[:100]


@dataclass
class Told:
    """What a sidecar tells at one moment. `pages`: metric with labels -> value; `held`: upper bound in ms -> how many
    stops of the loop were no longer; `logged`: bytes."""

    owners: dict[str, Any]
    pages: dict[str, str]
    held: dict[float, float]
    logged: int

    def grew(self, before: Told, le: float) -> bool:
        """Whether a stop of the loop came between this bound and the one below it."""
        below = max((b for b in self.held if b < le), default=None)
        told = [t.held[le] - (t.held[below] if below is not None else 0.0) for t in (before, self)]
        return told[1] > told[0]


# ---- worlds -----------------------------------------------------------------------------------------------
def _env(**more: str) -> dict[str, str]:
    return {**ENV, "SIDECAR_LIMITS__CONNECTIONS": str(CONNECTIONS), **more}


def _secured(folder: Path) -> tuple[LocalKafka, Secured]:
    """Without its sidecar yet."""
    ground = Secured(folder, internal="SASL_PLAINTEXT", users=(*filter(None, CALLERS), CAROL))
    files = {
        "SIDECAR_COMMAND_CONFIG": str(ground.file("own", ground.java(ADMIN, ground.internal, "PLAIN"))),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(ground.file("seen", ground.java(ADMIN, ground.clients, "PLAIN"))),
    }
    kafka = ground.start(brokers=1, sidecar_env=_env(**files))
    read, prefixed = AclOperation.READ, ResourcePatternType.PREFIXED
    for user, topic, groups in (("alice", "orders", "managed-alice"), (CAROL, TOPIC, GROUP)):
        ground.create(kafka, topic, 6)
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
    topics = [NewTopic("orders", 6, 1), NewTopic(TOPIC, 6, 1), *(NewTopic(name, 1, 1) for name in LONG_TOPICS)]
    for future in admin.create_topics(topics).values():
        future.result(60)
    return kafka


@contextmanager
def place(folder: Path, secured: bool = True, base: str = "") -> Iterator[Place]:
    """A broker and a sidecar with default limits but CONNECTIONS. `base`: another checkout, whose sidecar runs."""
    kafka, ground = _secured(folder) if secured else (_open(folder), None)
    try:
        node = kafka.nodes[0]
        if base:
            kafka.trees[node.node_id] = Path(base)
        process = kafka.start_sidecar(node)
        kafka.wait_ready(PATIENCE_S)
        made = Place(kafka, ground, Side("sidecar", node.sidecar_port, process, b"", "", node.admin_port, GROUP, 19))
        made.side.user = made.user
        made.heal()
        made.side.attacked("large_token", 1.0)
        made.newcomer()
        yield made
    finally:
        kafka.stop()
