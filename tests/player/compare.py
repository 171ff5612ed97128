"""Plays cases at both listeners and tells where the answers differ, and by which row of docs/reference/differences.md
if so."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Any

from tests.player.cases import Case
from tests.player.line import Line
from tests.player.schema import Messages
from tests.player.side import Answered, Side
from tests.player.states import TOPICS
from tests.player.tolerated import judge

LIMIT_S = 10.0
"""For an answer. A rebalance without a silent member ends before (REBALANCE_MS)."""
OF_CONSUMER_GROUPS = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
REFUSED = 35
WORKERS = 12
"""Most of them wait: for a rebalance, or for an answer that never comes."""
SLOW_MS = 3000


@dataclass(frozen=True)
class Listeners:
    messages: Messages
    sidecar: int
    broker: int
    ports: frozenset[int]


@dataclass
class Found:
    played: int = 0
    differences: list[tuple[Case, list[Answered], list[Answered]]] = field(default_factory=list)
    agreed: Counter[str] = field(default_factory=Counter)
    slow: Counter[str] = field(default_factory=Counter)
    """Cases that took long, in ms."""


def announced(at: Listeners, port: int) -> dict[str, tuple[int, int]]:
    line = Line(port, at.messages, 30)
    answer = line.ask("ApiVersions", 3, {"clientSoftwareName": "player", "clientSoftwareVersion": "1"})
    line.close()
    names = at.messages.apis
    keys = answer["apiKeys"]
    return {names[k["apiKey"]]: (k["minVersion"], k["maxVersion"]) for k in keys if k["apiKey"] in names}


def both(at: Listeners) -> dict[str, tuple[int, int]]:
    """The versions that both announce and the JSON knows."""
    ours, theirs = announced(at, at.sidecar), announced(at, at.broker)
    found: dict[str, tuple[int, int]] = {}
    refused = set() if theirs.keys() >= OF_CONSUMER_GROUPS and _has_consumer_groups(at) else OF_CONSUMER_GROUPS
    for api in (ours.keys() & theirs.keys()) - refused:
        valid = at.messages[f"{api}Request"].valid
        low, high = max(ours[api][0], theirs[api][0], valid.low), min(ours[api][1], theirs[api][1], valid.high)
        if low <= high:
            found[api] = low, high
    return dict(sorted(found.items()))


def _has_consumer_groups(at: Listeners) -> bool:
    """Kafka 3.9 announces their APIs, and refuses every request."""
    line = Line(at.broker, at.messages, 30)
    answer = line.ask("ConsumerGroupDescribe", 0, {"groupIds": ["no-such-group"]})
    line.close()
    return bool(answer["groups"][0]["errorCode"] != REFUSED)


def topic_ids(at: Listeners) -> Mapping[str, Any]:
    line = Line(at.broker, at.messages, 30)
    answer = line.ask("Metadata", 12, {"topics": [{"name": t} for t in TOPICS], "allowAutoTopicCreation": False})
    line.close()
    return {t["name"]: t["topicId"] for t in answer["topics"]}


def play(at: Listeners, cases: Iterable[Case], run: str, seconds: float = math.inf) -> Found:
    """Ends after so many seconds, whatever is left."""
    left: Queue[Case] = Queue()
    for case in cases:
        left.put(case)
    newest = {api: high for api, (_, high) in both(at).items()}
    ids = topic_ids(at)
    end = time.monotonic() + seconds
    found, lock = Found(), threading.Lock()

    def one(case: Case, ours: Side, theirs: Side) -> None:
        start = time.monotonic()
        heard = [case.play(side, ids, newest, run) for side in (theirs, ours)]
        names, same = judge(case, *heard)
        with lock:
            found.played += 1
            if (took_ms := round(1000 * (time.monotonic() - start))) > SLOW_MS:
                found.slow[str(case)] = took_ms
            found.agreed.update(names)
            if not same:
                found.differences.append((case, heard[0], heard[1]))

    def worker() -> None:
        ours = Side("sidecar", at.sidecar, at.messages, at.ports, LIMIT_S)
        theirs = Side("broker", at.broker, at.messages, at.ports, LIMIT_S)
        with closing(ours), closing(theirs), suppress(Empty):
            while time.monotonic() < end:
                one(left.get_nowait(), ours, theirs)

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(worker) for _ in range(WORKERS)]:
            done.result()
    return found


def differing_answers(case: Case, theirs: list[Answered], ours: list[Answered], whole: bool = False) -> str:
    """Returns the case with the answers that differ, or with all of them."""
    out = [str(case)]
    for n in range(max(len(theirs), len(ours))):
        a, b = (lines[n] if n < len(lines) else None for lines in (theirs, ours))
        if a != b:
            out += [f"  broker  {_line(a)}", f"  sidecar {_line(b)}"]
        elif whole:
            out.append(f"  both    {_line(a)}")
    return "\n".join(out)


def _line(answered: Answered | None) -> str:
    return "nothing" if answered is None else f"{answered[0]} v{answered[1]}: {json.dumps(answered[2])}"
