"""Sockets that listen for both families."""

from __future__ import annotations

import asyncio
import socket

from sidecar.front.accepting import Acceptor
from tests.inprocess.embedded_sidecar import Lines, until


def test_a_client_of_ipv4_has_its_own_address_at_a_socket_for_both_families() -> None:
    """As systemd opens one for `ListenStream=9092`."""
    hosts: list[str] = []

    def arrived(sock: socket.socket, host: str) -> None:
        sock.close()
        hosts.append(host)

    async def main() -> None:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as both:
            acceptor = Acceptor(arrived, Lines())
            await acceptor.open((), 0, 8, [both])
            for host in ("127.0.0.1", "::1"):
                socket.create_connection((host, both.getsockname()[1])).close()
            await until(lambda: len(hosts) == 2)
            acceptor.close()

    asyncio.run(main())
    assert hosts == ["127.0.0.1", "::1"]
