"""The listener that ends TLS: new files while connections go on."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from sidecar.front.certificates import Certificates, TlsError, TlsSettings, read_context
from tests.front.tls import Loops, TlsBench, exchange, play, trusting
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import until
from tests.security.ground import Authority, Papers


def test_new_files_count_for_new_connections_and_old_ones_go_on(
    loops: Loops, authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    link = tmp_path / "mounted.pem"
    link.symlink_to(first.store)

    async def test(place: TlsBench) -> None:
        context = trusting(first)

        async def name() -> tuple[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
            streams = await place.connect(context)
            certificate = streams[1].get_extra_info("peercert")
            names = {key: value for part in certificate["subject"] for key, value in part}
            return names["commonName"], streams

        called, early = await name()
        assert called == "first"
        other = tmp_path / "other.pem"
        other.symlink_to(second.store)
        os.replace(other, link)  # so secrets are mounted
        place.certificates.look()
        called, late = await name()
        assert called == "second"
        assert place.embedded.metrics.value("tls_reloads", "done") == 1
        await exchange(early, 1)
        await exchange(late, 1)
        place.certificates.look()
        assert place.embedded.metrics.value("tls_reloads", "done") == 1, "nothing has changed since"

        link.unlink()
        link.write_bytes(second.certificate.read_bytes())  # its key is not there yet
        for _ in range(2):
            place.certificates.look()
        assert place.embedded.metrics.value("tls_reloads", "failed") == 1
        assert "the former ones go on" in place.embedded.lines.events("error")[0]
        called, late = await name()
        assert called == "second"
        link.write_bytes(first.store.read_bytes())
        place.certificates.look()
        assert (await name())[0] == "first"

    play(loops, TlsSettings(link), test)


def test_files_are_looked_at_now_and_then(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "both.pem"
    path.write_bytes(authority.issue("first").store.read_bytes())

    async def test(place: TlsBench) -> None:
        watch = asyncio.get_running_loop().create_task(place.certificates.watch())
        before = place.certificates.context
        path.write_bytes(authority.issue("second").store.read_bytes())
        await until(lambda: place.certificates.context is not before)
        watch.cancel()

    play(asyncio.new_event_loop, TlsSettings(path, reload_s=0.01), test)


def test_what_is_wrong_with_the_files_is_said(papers: Papers, authority: Authority, tmp_path: Path) -> None:
    other = authority.issue("other")
    empty, secret = tmp_path / "empty.pem", tmp_path / "secret"
    empty.write_text("")
    key = serialization.load_pem_private_key(papers.key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"open sesame")
    locked = tmp_path / "locked.key"
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    good = TlsSettings(papers.certificate, papers.key)
    missing = tmp_path / "missing.pem"
    wrong = partial(replace, good)
    for settings, words in (
        (wrong(certificate=missing), "tls.certificate .*missing.pem: No such file"),
        (wrong(key=missing), "tls.key .*missing.pem: No such file"),
        (wrong(key=other.key), "not that of the first certificate"),
        (wrong(key=None), "no certificate and key in PEM form"),
        (wrong(certificate=empty), "no certificate and key in PEM form"),
        (wrong(key=locked), "is encrypted: set tls.key_password_file"),
        (wrong(key=locked, password_file=missing), "tls.key_password_file .*missing.pem: No such file"),
        (wrong(clients_from=missing), "tls.ca .*missing.pem: No such file"),
        (wrong(clients_from=empty), "tls.ca .*: no certificates in PEM form"),
        (wrong(ciphers="NONSENSE"), "tls.ciphers 'NONSENSE'"),
    ):
        with pytest.raises(TlsError, match=words):
            read_context(settings)
    secret.write_text("sesame\n")
    with pytest.raises(TlsError, match="does not open the key") as told:
        read_context(wrong(key=locked, password_file=secret))
    assert "sesame" not in str(told.value)
    secret.write_text("open sesame\n")
    read_context(wrong(key=locked, password_file=secret))


def test_the_end_of_a_certificate_is_told_and_warned_of(papers: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        embedded = EmbeddedFront()
        Certificates(TlsSettings(papers.certificate, papers.key), embedded.metrics, embedded.lines)
        ends = embedded.metrics.value("tls_expiry")
        assert ends > 1_700_000_000 and not embedded.lines.events("warning")
        for at, level, words in (
            (ends - 86_400, "warning", "certificate expires soon"),
            (ends + 1, "error", "certificate has expired"),
        ):
            monkeypatch.setattr("sidecar.front.certificates.time.time", lambda at=at: at)
            Certificates(TlsSettings(papers.certificate, papers.key), embedded.metrics, embedded.lines)
            assert embedded.lines.events(level)[-1].startswith(words)

    asyncio.run(main())


def test_the_end_of_a_certificate_is_said_when_it_comes(papers: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a warning some days before, and nothing when clients began to refuse it."""

    async def main() -> None:
        embedded = EmbeddedFront()
        certificates = Certificates(TlsSettings(papers.certificate, papers.key), embedded.metrics, embedded.lines)
        ends = embedded.metrics.value("tls_expiry")
        said = []
        for at in (ends - 30 * 86_400, ends - 86_400, ends - 1, ends + 1, ends + 86_400):
            monkeypatch.setattr("sidecar.front.certificates.time.time", lambda at=at: at)
            certificates.look()
            said.append((len(embedded.lines.events("warning")), len(embedded.lines.events("error"))))
        assert said == [(0, 0), (1, 0), (1, 0), (1, 1), (1, 1)]

    asyncio.run(main())
