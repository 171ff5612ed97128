"""What goes into one Produce request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from sidecar.runtime.produce import _Item, _Leader


def test_no_partition_twice_in_a_request() -> None:
    """Track record 10: of two a broker takes one, and answers for both."""

    async def run() -> None:
        leader = _Leader(cast(Any, None), 1, 1.0)
        loop = asyncio.get_running_loop()
        leader.queue = [
            _Item("t", p, name, loop.create_future()) for p, name in ((0, b"a"), (1, b"b"), (0, b"c"), (0, b"d"))
        ]
        taken = [[i.batch for i in leader._take()] for _ in range(3)]
        assert taken == [[b"a", b"b"], [b"c"], [b"d"]] and not leader.queue

    asyncio.run(run())
