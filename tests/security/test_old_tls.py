"""TLS 1.1 at the admin endpoint: refused, also where the ciphers would allow it. Of the clients' listener:
tests/front/test_tls.py."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.process.admin_ground import Ground, given, run
from tests.security.ground import Authority

OLD = "ALL:@SECLEVEL=0"
"""With these ciphers OpenSSL speaks TLS 1.1, if it may."""


def test_the_admin_endpoint_does_not_speak_tls_1_1(tmp_path: Path) -> None:
    papers = Authority(tmp_path).issue("admin")
    settings = given(tls_certificate=papers.certificate, tls_key=papers.key)

    async def test(g: Ground) -> None:
        assert g.access.context is not None
        g.access.context.set_ciphers(OLD)
        client = ssl.create_default_context(cafile=papers.authority)
        client.set_ciphers(OLD)
        with pytest.warns(DeprecationWarning):
            client.minimum_version = ssl.TLSVersion.TLSv1_1
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        _, writer = await asyncio.open_connection("127.0.0.1", g.port, ssl=client)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
        writer.close()
        with pytest.warns(DeprecationWarning):
            client.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", g.port, ssl=client)

    run(Ground(settings), test)
