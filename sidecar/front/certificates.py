"""The listener's TLS: what is read from files, and read again when they change. tls.py makes connections with it.

Whoever connects gets the newest files that fit together. Connections that are there go on, whatever becomes of them.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from sidecar.front.refusals import ServerContext
from sidecar.link.ports import Figures, Logger

SOON_S = 14 * 86_400
"""A certificate that ends within this time is warned of."""
Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class TlsSettings:
    """TLS of the listener. `key` None: it is in the file of the certificate. `clients_from`: PEM file of authorities;
    None: clients are not asked for certificates. `ciphers` "": OpenSSL's. `reload_s` 0: files are not looked at.
    `handshakes`: under way at once, each for at most `handshake_s` from when the client connected."""

    certificate: Path
    key: Path | None = None
    password_file: Path | None = None
    clients_from: Path | None = None
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: str = ""
    reload_s: float = 10.0
    handshake_s: float = 10.0
    handshakes: int = 256


class TlsError(Exception):
    """The files or settings are of no use; the text says why and what to do."""


def read_context(s: TlsSettings) -> ssl.SSLContext:
    """Raises TlsError."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = s.min_version
    context.options |= ssl.OP_NO_RENEGOTIATION
    if s.ciphers:
        try:
            context.set_ciphers(s.ciphers)
        except ssl.SSLError:
            raise TlsError(
                f"tls.ciphers {s.ciphers!r}: OpenSSL knows none of them; `openssl ciphers` lists them"
            ) from None
    _load_key(context, s)
    if s.clients_from is not None:
        try:
            context.load_verify_locations(s.clients_from)
        except ssl.SSLError as exc:
            raise TlsError(f"tls.ca {s.clients_from}: no certificates in PEM form ({exc.reason})") from None
        except OSError as exc:
            raise TlsError(f"tls.ca {s.clients_from}: {exc.strerror or exc}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_key(context: ssl.SSLContext, s: TlsSettings) -> None:
    for name, path in (("certificate", s.certificate), ("key", s.key), ("key_password_file", s.password_file)):
        if path is not None:
            try:
                path.open("rb").close()
            except OSError as exc:
                raise TlsError(f"tls.{name} {path}: {exc.strerror or exc}") from None
    password_asked = False
    password = s.password_file.read_bytes().rstrip(b"\r\n") if s.password_file is not None else b""

    def key_password() -> bytes:  # without it OpenSSL would ask at the terminal
        nonlocal password_asked
        password_asked = True
        return password

    key = s.key or s.certificate
    try:
        context.load_cert_chain(s.certificate, s.key, key_password)
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(f"the key in {key} is not that of the first certificate in {s.certificate}") from None
        if password_asked and s.password_file is None:
            raise TlsError(f"the key in {key} is encrypted: set tls.key_password_file") from None
        if password_asked:
            raise TlsError(
                f"the password in tls.key_password_file {s.password_file} does not open the key in {key}"
            ) from None
        raise TlsError(
            f"tls.certificate {s.certificate} and the key in {key}: no certificate and key in PEM form ({exc.reason})"
        ) from None
    except (OSError, ValueError) as exc:  # it has gone meanwhile; a password that is too long
        raise TlsError(f"tls.certificate {s.certificate}, tls.key {key}: {exc}") from None


def expiry_of(certificate: Path) -> float:
    """Unix time at which the first certificate of this file ends. Raises TlsError."""
    from cryptography import x509  # takes a while to import, and most sidecars have no TLS

    try:
        return x509.load_pem_x509_certificates(certificate.read_bytes())[0].not_valid_after_utc.timestamp()
    except (OSError, ValueError) as exc:
        raise TlsError(f"tls.certificate {certificate}: {exc}") from None


class Certificates:
    """The listener's TLS context, read again when its files change. `context` is for the next connection."""

    def __init__(self, settings: TlsSettings, figures: Figures, log: Logger) -> None:
        """Raises TlsError."""
        self.settings = settings
        self._figures = figures
        self._log = log
        self._ends_s = 0.0
        self._last_warning = ""
        """The last warning about the certificate's expiry: "", "soon" or "expired"."""
        self._stamp = self._files()
        self.context = self._read()

    async def watch(self) -> None:
        while self.settings.reload_s:
            await asyncio.sleep(self.settings.reload_s)
            self.look()

    def look(self) -> None:
        """Reads the files again if one of them has changed since."""
        stamp = self._files()
        if stamp != self._stamp:
            self._stamp = stamp
            self.reload()
        else:
            self._log_expiry()

    def reload(self) -> None:
        """Reads the files again; if they cannot be used, the former context stays."""
        try:
            self.context = self._read()
        except TlsError as exc:
            self._figures("tls_reloads", "failed").inc()
            self._log.error("TLS files not used, the former ones go on", problem=str(exc))
        else:
            self._figures("tls_reloads", "done").inc()
            self._log.info("TLS files read again", certificate=str(self.settings.certificate))

    def _read(self) -> ssl.SSLContext:
        s = self.settings
        context = read_context(s)
        self._ends_s, self._last_warning = expiry_of(s.certificate), ""
        self._figures("tls_expiry").set(self._ends_s)
        self._log_expiry()
        return context

    def _log_expiry(self) -> None:
        """Warns once when the certificate's end is near, and once when it has come."""
        left_s, file = self._ends_s - time.time(), str(self.settings.certificate)
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._ends_s))
        if left_s <= 0 and self._last_warning != "expired":
            self._last_warning = "expired"
            self._log.error("certificate has expired: clients refuse it", file=file, expires=when)
        elif 0 < left_s < SOON_S and not self._last_warning:
            self._last_warning = "soon"
            self._log.warning("certificate expires soon", file=file, expires=when)

    def _files(self) -> Stamp:
        """Returns the files' stamps. A symbolic link that points elsewhere is a change, too: secrets are mounted that
        way."""
        s = self.settings
        return tuple(_stamp(p) for p in (s.certificate, s.key, s.password_file, s.clients_from) if p is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
