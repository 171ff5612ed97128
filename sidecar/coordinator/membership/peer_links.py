"""Links to the other sidecars: a process that dies closes its links at once, and one that stands still answers no ping.

Each sidecar listens for the others on a port of its own (`PeerListener`), which is in its membership's metadata, and
echoes all bytes there. So a ping goes through the event loop that coordinates, and through nothing that clients can
fill up. Links prove nothing: a peer that was removed by mistake is a member again a moment later.

A sidecar whose broker is gone sends `LEFT` on its links, so that the others need not wait until the brokers announce
the rebalance: while a commit waits for the dead broker, no heartbeat is answered. A sidecar through which topics were
changed sends `TOPICS`: the others' groups learn of it as soon as its own. The echo of a ping is followed by a word
of `STATES`: whether the sidecar is ready.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from sidecar.kafka.resolver import addresses_of, connected, is_resolvers
from sidecar.link.eviction import gives_way
from sidecar.link.ports import Logger, Tasks

PING, LEFT, TOPICS = b"ping from sidecar-%d", b"left", b"topics"
"""The words on a link. A ping names its sender, so that a capture of packets can be read. An older version skips a word
that it does not know."""
STATES = {b"+ready+": True, b"+waits+": False}
"""The words behind the echo of a ping: whether this sidecar is ready. For people only."""
STATE_S = 0.2
"""Seconds for which an answer of `ready()` is reused, however many peers ask."""
ECHO_BYTES = 64
"""Most bytes of one read that are echoed."""
LISTENS_MAX = 1_000
"""Most links to this sidecar. A further one displaces a link that gives way to it."""
CONNECT_S = 0.5
AGAIN_S = 0.5
QUICK_S = 0.02
SUSPECT_PINGS = 2
"""Unanswered pings after which a peer is suspected: requests for its groups wait then."""
CALM_S = 10.0
"""Seconds between two suspicions of a peer whose links break again and again; each lasts `silence_s` at most."""
LATE = 2.0
"""Factor by which a round must exceed `ping_s` to count as this process's own delay, not the peer's silence."""


@dataclass(frozen=True)
class Peer:
    """A member of the owners' group. `port`: its port for pings; 0: none, as an older version; a link to `client_port`
    then shows only whether its process is there."""

    member_id: str
    host: str
    client_port: int
    port: int = 0


@dataclass(frozen=True)
class PeerSettings:
    """Settings of the links. `silence_s`: a peer that answers no ping for this long is removed."""

    links: bool = True
    ping_s: float = 0.2
    silence_s: float = 1.2

    @property
    def missed_max(self) -> int:
        return max(SUSPECT_PINGS, round(self.silence_s / self.ping_s))


class Answers(Protocol):
    """The answering side of the links, which peers have to this sidecar: PeerListener, or a fake in tests."""

    @property
    def port(self) -> int: ...

    def send_left(self) -> None: ...

    def send_topics(self) -> None: ...


# ---- answering ----------------------------------------------------------------------------------------------------
Links: TypeAlias = "dict[asyncio.BaseTransport, _Echo]"


class _Echo(asyncio.Protocol):
    """A connection to this sidecar's port for pings. Strangers may connect, too: they keep no peer out."""

    def __init__(self, links: Links, state: Callable[[], bytes]) -> None:
        self._links = links
        self._state = state
        self.last_ping_s = time.monotonic()
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        if len(self._links) >= LISTENS_MAX:
            silent = gives_way(self._links.values(), lambda e: e.host, lambda e: e.last_ping_s)
            silent.end()
        self._links[transport] = self

    def end(self) -> None:
        self._links.pop(self._transport, None)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self.last_ping_s = time.monotonic()
        self._transport.write(data[:ECHO_BYTES] + self._state())

    def pause_writing(self) -> None:
        self._transport.abort()  # no peer leaves its answers unread

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.pop(self._transport, None)


class PeerListener:
    """Listener for the pings of peers. `port`: the port that peers are given; `ready()`: whether this sidecar is."""

    def __init__(self, links: Links) -> None:
        self._servers: list[asyncio.Server] = []
        self._links = links
        self.port = 0
        self.ready: Callable[[], bool] | None = None
        self._state, self._state_until_s = b"", 0.0

    @staticmethod
    async def open(hosts: Sequence[str], port: int, advertised: int = 0) -> PeerListener:
        """Opens a listener at these addresses. Port 0: any free port, the same at all addresses. `advertised`: the port
        that peers are given instead; 0: the same. Raises OSError."""
        links: Links = {}
        loop, made = asyncio.get_running_loop(), PeerListener(links)
        servers = made._servers
        try:
            for host in hosts:
                server = await loop.create_server(
                    lambda: _Echo(links, made._state_word), host, port, reuse_address=True
                )
                servers.append(server)
                port = int(servers[0].sockets[0].getsockname()[1])
        except OSError:
            made.close()
            raise
        made.port = advertised or port
        return made

    def _state_word(self) -> bytes:
        if self.ready is not None and (now_s := time.monotonic()) >= self._state_until_s:
            ready, self._state_until_s = self.ready(), now_s + STATE_S
            self._state = next(word for word, means in STATES.items() if means is ready)
        return self._state

    def send_left(self) -> None:
        """Tells all linked peers that this sidecar owns nothing any more."""
        self._send(LEFT)

    def send_topics(self) -> None:
        """Tells all linked peers that topics were changed through this sidecar."""
        self._send(TOPICS)

    def _send(self, word: bytes) -> None:
        for transport in self._links:
            cast(asyncio.Transport, transport).write(word)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for transport in list(self._links):
            transport.close()


# ---- asking -------------------------------------------------------------------------------------------------------
OnWords: TypeAlias = Mapping[bytes, Callable[[], None]]
"""Word of a peer -> the call that it triggers."""


class _Link(asyncio.Protocol):
    def __init__(self, on_words: OnWords) -> None:
        self.received = False
        self.ready: bool | None = None
        """Whether the peer is ready, by its last word; None: it has sent none, as an older version."""
        self._on_words = on_words
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received = True
        for word, callback in self._on_words.items():
            if word in data:
                callback()
        for word, means in STATES.items():
            if word in data:
                self.ready = means

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class Peers:
    """Links from this sidecar to its peers. `members()`: the peers to watch, by node id; `remove(node, member id,
    why)`: has the brokers remove a peer, and returns whether they did; `suspected(nodes)`: called with all nodes that
    may be gone now; `on_words`: the calls for the words LEFT and TOPICS of a peer."""

    def __init__(
        self,
        settings: PeerSettings,
        node_id: int,
        members: Callable[[], Mapping[int, Peer]],
        remove: Callable[[int, str, str], Awaitable[bool]],
        suspected: Callable[[frozenset[int]], None],
        on_words: OnWords,
        tasks: Tasks,
        log: Logger,
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._members = members
        self._remove = remove
        self._suspected = suspected
        self._on_words = on_words
        self._tasks = tasks
        self._log = log
        self._watched: dict[int, asyncio.Task[None]] = {}
        self._suspects: frozenset[int] = frozenset()
        self._answered: dict[int, str] = {}
        """Node id -> member id of the peer that has answered a ping. A peer that never has does not count as silent."""
        self._broke_s: dict[int, float] = {}
        """Node id -> monotonic time at which a broken link last made the peer a suspect."""
        self.ready: dict[int, bool | None] = {}
        """Node id -> whether the peer reports to be ready; linked peers only."""

    def watch(self) -> None:
        """Watches the members of a new owner map, and ends the watch of those that are not in it."""
        if not self._settings.links:
            return
        members = self._members()
        for node, task in list(self._watched.items()):
            if node not in members or task.done():
                task.cancel()
                del self._watched[node]
        # A new map has new owners; a peer that was gone is not in it, or has come again.
        self._suspect(self._suspects & self._watched.keys())
        for node in members:
            if node != self._node_id and node not in self._watched:
                self._watched[node] = self._tasks.spawn(self._watch(node), f"link-{node}")

    async def stop(self) -> None:
        for task in self._watched.values():
            task.cancel()
        await asyncio.gather(*self._watched.values(), return_exceptions=True)

    def _suspect(self, nodes: frozenset[int]) -> None:
        if nodes != self._suspects:
            self._suspects = nodes
            self._suspected(nodes)

    def _now_suspect(self, node: int, may_be_gone: bool) -> None:
        self._suspect(self._suspects | {node} if may_be_gone else self._suspects - {node})

    def _broke(self, node: int) -> None:
        """Suspects a peer whose link has ended: it may be gone, and requests for its groups wait. If links break again
        within CALM_S, the cause is probably the network, and the peer gets credit."""
        if time.monotonic() - self._broke_s.get(node, -CALM_S) >= CALM_S:
            self._broke_s[node] = time.monotonic()
            self._now_suspect(node, True)
        else:
            self._give_credit(node)

    def _give_credit(self, node: int) -> None:
        if time.monotonic() - self._broke_s.get(node, 0.0) > self._settings.silence_s:
            self._now_suspect(node, False)

    async def _watch(self, node: int) -> None:
        """Watches a peer until it is no member any more, under any member id, or until it is removed."""
        reached = False
        while (peer := self._members().get(node)) is not None:
            try:
                addresses = await addresses_of(peer.host)
                async with asyncio.timeout(CONNECT_S):
                    link = await connected(self._new_link, addresses, peer.port or peer.client_port)
            except (OSError, TimeoutError) as exc:
                current = self._members().get(node, peer)
                if not reached or current.member_id != peer.member_id or is_resolvers(exc):
                    # It was never reached from here, which need not be its fault, or it has just joined anew.
                    await asyncio.sleep(AGAIN_S)
                    continue
                why = f"no connection: {str(exc) or 'timed out'}"
            else:
                reached, opened = True, time.monotonic()
                why = await self._follow(node, peer, *link)
                if not why:
                    # A peer that closes us at once (its limit of links) must not be hammered.
                    await asyncio.sleep(QUICK_S if time.monotonic() - opened > 1 else AGAIN_S)
                    continue
            self._now_suspect(node, True)
            self._log.warning("peer lost; removing it from the owners' group", peer=node, error=why)
            if await self._remove(node, peer.member_id, why):
                return
            await asyncio.sleep(AGAIN_S)

    def _new_link(self) -> _Link:
        return _Link(self._on_words)

    async def _follow(self, node: int, peer: Peer, transport: asyncio.Transport, link: _Link) -> str:
        """Pings until the link ends. Returns why the peer counts as gone; "": the link closed, and it may be alive."""
        try:
            if not peer.port:
                self._now_suspect(node, False)
                await link.lost
            elif await self._ping_until_silent(node, peer, transport, link):
                return f"no answer to a ping for {self._settings.silence_s:g} s"
        finally:
            transport.abort()
            self.ready.pop(node, None)
        self._broke(node)
        return ""

    async def _ping_until_silent(self, node: int, peer: Peer, transport: asyncio.Transport, link: _Link) -> bool:
        """Pings until the peer is silent, which returns True, or until the link is closed, which returns False."""
        ping_s = self._settings.ping_s
        missed = 0
        while True:
            began = time.monotonic()
            link.received = False
            transport.write(PING % self._node_id)
            await asyncio.wait({link.lost}, timeout=ping_s)
            if link.lost.done():
                return False
            if link.received:
                self._answered[node], missed = peer.member_id, 0
                self.ready[node] = link.ready
                self._now_suspect(node, False)
            elif self._answered.get(node) == peer.member_id and time.monotonic() - began < LATE * ping_s:
                missed += 1
                if missed == SUSPECT_PINGS:
                    self._now_suspect(node, True)
                if missed >= self._settings.missed_max:
                    return True
            elif self._answered.get(node) != peer.member_id:
                self._give_credit(node)
