"""The groups of a partition that are still to be loaded after a takeover, their order, and the requests that wait.

Requested groups come first, the smaller before the larger: the members of a small group need not wait for a group of
thousands. A request for a group that is not loaded yet waits. Later requests wait behind it until it has been answered,
so that the order of one group's requests stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from heapq import heappop, heappush

from sidecar.core.runtime.pending_requests import Held


class LoadQueue:
    def __init__(self, groups: Collection[str] = ()) -> None:
        self.left: dict[str, None] = dict.fromkeys(groups)
        """Groups that are not loaded yet."""
        self.behind: dict[str, deque[Held]] = {}
        """Requested groups, with the requests that wait for them, in their order."""
        self._wanted: list[tuple[int, int, str]] = []
        self._count = 0

    def must_wait(self, group_id: str) -> bool:
        """Whether a request for this group must wait."""
        return group_id in self.left or group_id in self.behind

    def hold(self, held: Held, records: int) -> None:
        """Holds a request until its group is loaded. `records`: how many the group has."""
        group_id = held.event.group_id
        requests = self.behind.get(group_id)
        if requests is None:
            requests = self.behind[group_id] = deque()
            self.want(group_id, records)
        requests.append(held)

    def want(self, group_id: str, records: int) -> None:
        """Puts the group before all groups without a request. `records`: how many it has; the smallest group comes
        first."""
        self._count += 1
        heappush(self._wanted, (records, self._count, group_id))

    def next(self) -> str | None:
        """Returns the group to load next, or whose requests to answer next; None: all is done."""
        while self._wanted:
            group_id = self._wanted[0][2]
            if self.must_wait(group_id):
                return group_id
            heappop(self._wanted)
        return next(iter(self.left), None)

    def loaded(self, group_id: str) -> None:
        """Removes the group from the queue: it is loaded, or unreadable."""
        self.left.pop(group_id, None)

    def take(self, group_id: str, count: int) -> list[Held]:
        """Takes out the next requests that wait for this group. After the last one, new requests for the group need not
        wait."""
        requests = self.behind.get(group_id, deque())
        taken = [requests.popleft() for _ in range(min(count, len(requests)))]
        if not requests:
            self.behind.pop(group_id, None)
        return taken

    def late(self, now_ms: int) -> Iterator[Held]:
        """Takes out and yields the requests whose time is over."""
        for group_id in list(self.behind):
            requests = self.behind[group_id]
            while requests and requests[0].until_ms <= now_ms:
                yield requests.popleft()
            if not requests:
                del self.behind[group_id]

    def everybody(self) -> list[Held]:
        """Returns all waiting requests; those of one group in their order."""
        return [held for requests in self.behind.values() for held in requests]
