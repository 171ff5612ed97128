"""Access to the admin endpoint: addresses, names, tokens, cookies, TLS; and the cost of one client."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from pydantic import ValidationError

from sidecar.process.admin_access import COOKIE, Access, AdminFault, host_of, is_loopback
from sidecar.process.setting_kinds import admin_address
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, Lines, until
from tests.process.admin_ground import OTHER, TOKEN, Ground, given, run

DOCS = Path(__file__).parent.parent.parent / "docs"
SECRET_PATHS = ("/owners", "/group?id=g", "/api/v1/overview", "/api/v1/groups", "/api/v1/group?id=g", "/nothing")


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def put(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    put(path, f"# of operators\n{TOKEN}\n")
    return path


# ---- where it listens -----------------------------------------------------------------------------------------------
def test_a_port_alone_is_on_this_machine() -> None:
    assert admin_address("9400") == "127.0.0.1:9400"
    assert admin_address("0.0.0.0:9400") == "0.0.0.0:9400"
    for wrong in ("", "host", "host:", "0", "70000", "-1"):
        with pytest.raises(ValueError, match="is not HOST:PORT"):
            admin_address(wrong)


@pytest.mark.parametrize(
    ("address", "files", "without"),
    [
        ("127.0.0.1:1", False, ""),
        ("[::1]:1", False, ""),
        ("localhost:1", False, ""),
        ("0.0.0.0:1", False, "a token and TLS"),
        ("10.0.0.1:1", True, "TLS"),
    ],
)
def test_an_endpoint_open_to_the_network_is_told(address: str, files: bool, without: str, tokens: Path) -> None:
    lines = Lines()
    Access(address, given(token_file=tokens if files else None), lines, Counted())
    told = [fields["without"] for _, event, fields in lines.lines if "open to the network" in event]
    assert told == ([without] if without else [])


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


# ---- names ----------------------------------------------------------------------------------------------------------
def test_a_name_of_somebody_else_is_refused_but_not_to_probes() -> None:
    async def test(g: Ground) -> None:
        evil = {"Host": f"rebound.example.org:{g.port}"}
        for path in ("/", "/page/page.js", *SECRET_PATHS):
            assert await g.status(path, headers=evil) == 421, path
        for path in ("/livez", "/readyz", "/metrics"):
            assert await g.status(path, headers=evil) == 200, path
        for host in ("localhost", "LOCALHOST.", f"127.0.0.1:{g.port}", "[::1]:9", "10.2.3.4:80", "known.example.org"):
            assert await g.status("/owners", headers={"Host": host}) == 200, host

    run(Ground(given(hosts=("Known.example.org",))), test)


def test_any_name_where_that_is_wanted() -> None:
    async def test(g: Ground) -> None:
        assert await g.status("/owners", headers={"Host": "rebound.example.org"}) == 200

    run(Ground(given(hosts=("*",))), test)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("a.b:80", "a.b"),
        ("A.B.", "a.b"),
        ("[::1]:80", "::1"),
        ("[fe80::1]", "fe80::1"),
        ("", ""),
        ("1.2.3.4", "1.2.3.4"),
    ],
)
def test_the_name_in_a_host_header(header: str, host: str) -> None:
    assert host_of(header) == host


# ---- tokens ---------------------------------------------------------------------------------------------------------
def test_without_a_token_nothing_is_told_but_probes(tokens: Path) -> None:
    async def test(g: Ground) -> None:
        for path in (*SECRET_PATHS, "/metrics"):
            status, headers, body = await g.get(path)
            assert status == 401, path
            assert headers["WWW-Authenticate"].startswith("Bearer")
            assert "token" in body["problem"] and TOKEN not in str(body)
        for path in ("/livez", "/readyz", "/", "/page/page.js", "/page/page.css", "/page/icon.svg"):
            assert await g.status(path) == 200, path
        wrong = (OTHER, TOKEN[:-1], TOKEN + "x", "", TOKEN.upper(), "tökén")
        for token in wrong:
            assert await g.status("/owners", headers=bearer(token)) == 401, token
        no_text = b"GET /owners HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
        assert b" 401 " in await raw(g, no_text)
        assert await g.status("/login", method="POST", data=b"token=%ff%ed%a0%80") == 401
        assert await g.status("/owners", headers={"Authorization": f"Basic {TOKEN}"}) == 401
        assert await g.status(f"/owners?token={TOKEN}") == 401, "never in an address"
        for path in ("/owners", "/metrics", "/api/v1/overview"):
            assert await g.status(path, headers=bearer()) == 200, path
        named = {**bearer(), "Host": "anything.example.org"}
        assert await g.status("/owners", headers=named) == 200, "no browser sends this of itself"

    run(Ground(given(token_file=tokens)), test)


def test_metrics_may_be_open(tokens: Path) -> None:
    async def test(g: Ground) -> None:
        assert await g.status("/metrics") == 200
        assert await g.status("/owners") == 401

    run(Ground(given(token_file=tokens, metrics_open=True)), test)


def test_a_token_that_is_replaced(tokens: Path) -> None:
    async def test(g: Ground) -> None:
        _, _, cookie = await login(g)
        put(tokens, f"{TOKEN}\n{OTHER}\n")
        await asyncio.to_thread(g.access.refresh)
        assert [await g.status("/owners", headers=bearer(t)) for t in (TOKEN, OTHER)] == [200, 200]
        assert await g.status("/owners", headers={"Cookie": cookie}) == 200
        put(tokens, "short\n")
        await asyncio.to_thread(g.access.refresh)
        assert await g.status("/owners", headers=bearer(OTHER)) == 200, "what was read before counts"
        assert g.lines.lines[-1][0] == "error" and "short" not in str(g.lines.lines)
        before = len(g.lines.lines)
        await asyncio.to_thread(g.access.refresh)
        assert len(g.lines.lines) == before, "it is told once"
        put(tokens, f"{OTHER}\n")
        await asyncio.to_thread(g.access.refresh)
        assert [await g.status("/owners", headers=bearer(t)) for t in (TOKEN, OTHER)] == [401, 200]
        assert await g.status("/owners", headers={"Cookie": cookie}) == 401, "a cookie ends with its token"
        await asyncio.to_thread(os.unlink, tokens)
        await asyncio.to_thread(g.access.refresh)
        assert await g.status("/owners") == 401
        assert TOKEN not in str(g.lines.lines) and OTHER not in str(g.lines.lines)

    run(Ground(given(token_file=tokens)), test)


def test_files_are_read_again_by_themselves(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(g: Ground) -> None:
        put(tokens, f"{OTHER}\n")
        refresh, read = g.access.refresh, threading.Event()

        def refreshed() -> None:
            refresh()
            read.set()

        monkeypatch.setattr(g.access, "refresh", refreshed)
        assert await asyncio.to_thread(read.wait, 60)
        assert await g.status("/owners", headers=bearer(OTHER)) == 200

    run(Ground(given(token_file=tokens)), test)


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "short\n", "with spaces in between\n", "töken-töken-töken-tö\n"])
def test_a_file_without_a_good_token_is_refused_at_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    put(path, text)
    with pytest.raises(AdminFault, match="token_file"):
        Access("127.0.0.1:1", given(token_file=path), Lines(), Counted())
    with pytest.raises(AdminFault, match="No such file"):
        Access("127.0.0.1:1", given(token_file=tmp_path / "none"), Lines(), Counted())


# ---- the page's cookie ----------------------------------------------------------------------------------------------
async def login(g: Ground, token: str = TOKEN, **headers: str) -> tuple[int, str, str]:
    """Status, Set-Cookie, and the cookie as it is sent back."""
    status, answered, _ = await g.get("/login", method="POST", data={"token": token}, headers=headers, ssl=False)
    text = answered.get("Set-Cookie", "")
    return status, text, text.partition(";")[0]


def test_a_token_gives_the_page_a_cookie(tokens: Path) -> None:
    async def test(g: Ground) -> None:
        status, text, cookie = await login(g)
        assert status == 200
        assert all(part in text for part in (COOKIE, "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"))
        assert TOKEN not in text and "Secure" not in text
        assert await g.status("/api/v1/overview", headers={"Cookie": cookie}) == 200
        assert await g.status("/owners", headers={"Cookie": cookie, "Host": "rebound.example.org"}) == 421
        name, _, value = cookie.partition("=")
        until, _, mac = value.partition(".")
        for forged in (f"{int(until) + 1}.{mac}", f"{until}.{mac[:-1]}0x", "", ".", f"{until}.", f"{until}.é", "x.y"):
            assert await g.status("/owners", headers={"Cookie": f"{name}={forged}"}) == 401, forged
        for wrong in (OTHER, ""):
            assert (await login(g, wrong))[:2] == (401, "")
        assert (await login(g, Origin="http://elsewhere.example.org"))[0] == 403
        assert (await login(g, Origin=f"http://127.0.0.1:{g.port}"))[0] == 200
        assert (await login(g, Host="rebound.example.org"))[0] == 421

    run(Ground(given(token_file=tokens)), test)


FORM = b"Content-Type: application/x-www-form-urlencoded"
PARTS = b"Content-Type: multipart/form-data"
BODIES = [
    (FORM, b"token=\xff", 401),
    (FORM + b"; charset=none-of-that-name", b"token=x", 401),
    (FORM + b"; charset=utf-16", b"token", 401),
    (FORM + b"\r\nContent-Encoding: gzip", b"token=x", 400),
    (PARTS, b"x", 401),
    (PARTS + b"; boundary=x", b"--x\r\n\r\n", 401),
]


def test_what_is_no_request_is_answered_and_has_no_line(
    tokens: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Symptom: without a token, each of these wrote 10 to 40 lines into the log, which were not of its format."""

    async def answer(g: Ground, line: bytes, head: bytes, body: bytes) -> int:
        length = b"Content-Length: %d" % len(body)
        said = await raw(g, b"\r\n".join((line, b"Host: localhost", length, b"Connection: close", head, b"", body)))
        return int(said.split()[1])

    async def test(g: Ground) -> None:
        for head, body, status in BODIES:
            assert await answer(g, b"POST /login HTTP/1.1", head, body) == status, (head, body)
        for line in (b"GET /group?id=\xff HTTP/1.1", b"GET http://[/ HTTP/1.1", b"\x16\x03\x01"):
            assert await answer(g, line, b"A: b", b"") == 400, line
        assert set(g.lines.events()) == {"login at the admin endpoint refused"}

    run(Ground(given(token_file=tokens)), test)
    assert caplog.records == [] and capfd.readouterr().err == ""


def test_a_request_that_breaks_has_a_line_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    ground = Ground(given())

    async def breaks() -> bytes:
        raise ZeroDivisionError("injected")

    ground.admin._metrics_text = breaks

    async def test(g: Ground) -> None:
        assert await g.status("/metrics") == 500
        fields = g.lines.fields("a request at the admin endpoint broke")
        assert "injected" in fields["error"] and isinstance(fields["trace"], ZeroDivisionError)

    run(ground, test)
    assert caplog.records == []


def test_a_cookie_ends(tokens: Path) -> None:
    wall_s = 1_000.0
    access = Access("127.0.0.1:1", given(token_file=tokens, session_s=60), Lines(), Counted(), lambda: wall_s)
    cookie = access.new_cookie(TOKEN)
    assert access.is_cookie(cookie)
    wall_s = 1_059.0
    assert access.is_cookie(cookie)
    wall_s = 1_060.0
    assert not access.is_cookie(cookie)
    another = Access("127.0.0.1:1", given(token_file=tokens), Lines(), Counted(), lambda: 1_000.0)
    assert not another.is_cookie(cookie), "each process has a key of its own"


@pytest.mark.parametrize(("with_", "left"), [(TOKEN, OTHER), (OTHER, TOKEN)])
def test_a_cookie_ends_with_the_token_that_it_was_made_for(tokens: Path, with_: str, left: str) -> None:
    """While two count, whichever of them stands first."""

    async def test(g: Ground) -> None:
        put(tokens, f"{TOKEN}\n{OTHER}\n")
        await asyncio.to_thread(g.access.refresh)
        _, _, ends = await login(g, with_)
        _, _, stays = await login(g, left)
        put(tokens, f"{left}\n")
        await asyncio.to_thread(g.access.refresh)
        assert await g.status("/owners", headers={"Cookie": ends}) == 401
        assert await g.status("/owners", headers={"Cookie": stays}) == 200

    run(Ground(given(token_file=tokens)), test)


def test_without_tokens_there_is_no_login() -> None:
    async def test(g: Ground) -> None:
        assert (await g.get("/login", method="POST", data={"token": "x"}))[0] == 404

    run(Ground(given()), test)


# ---- what every answer says -----------------------------------------------------------------------------------------
def test_browsers_are_told_what_they_may_not_do(tokens: Path) -> None:
    async def test(g: Ground) -> None:
        for path in ("/", "/page/page.js", "/livez", "/owners", "/api/v1/overview", "/nothing"):
            for headers in ({}, bearer(), {"Host": "rebound.example.org"}):
                _, told, _ = await g.get(path, headers=headers)
                policy = told["Content-Security-Policy"]
                assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy and "http" not in policy and "*" not in policy
                assert told["X-Frame-Options"] == "DENY"
                assert told["X-Content-Type-Options"] == "nosniff"
                assert told["Cache-Control"] == "no-store"
                assert "Access-Control-Allow-Origin" not in told

    run(Ground(given(token_file=tokens)), test)


def test_nothing_can_be_changed() -> None:
    async def test(g: Ground) -> None:
        for path in ("/", "/owners", "/group", "/api/v1/overview", "/api/v1/groups", "/api/v1/group", "/metrics"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
                assert (await g.get(path, method=method))[0] == 405, (path, method)

    run(Ground(given()), test)


# ---- what the documentation says ------------------------------------------------------------------------------------
def documented() -> dict[tuple[str, str], str]:
    """Method and path -> whether the token is wanted, as docs/operate/admin.md says."""
    table = (DOCS / "operate/admin.md").read_text().partition("| path |")[2].partition("\n\n")[0]
    found = {}
    for row in table.splitlines()[2:]:
        _, paths, _, wanted, _ = (cell.strip() for cell in row.split("|"))
        for text in re.findall("`([^`]+)`", paths):
            method, _, path = text.rpartition(" ")
            found[method or "GET", path.partition("?")[0]] = wanted.partition(",")[0]
    return found


def test_the_documentation_has_every_path_and_says_what_wants_the_token(tokens: Path) -> None:
    async def test(g: Ground) -> None:
        told = documented()
        assert told.keys() == {(method, path) for method, path in g.admin.routes() if method != "HEAD"}
        for (method, path), wanted in told.items():
            if method == "GET":
                assert wanted == ("yes" if await g.status(path) == 401 else "no"), path

    run(Ground(given(token_file=tokens)), test)


# ---- limits ---------------------------------------------------------------------------------------------------------
async def raw(g: Ground, data: bytes, wait_s: float = 60.0) -> bytes:
    """Sends bytes. Returns what comes until the endpoint closes the connection, or raises TimeoutError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
    try:
        writer.write(data)
        async with asyncio.timeout(wait_s):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_requests_of_a_great_size_are_refused(tokens: Path) -> None:
    async def test(g: Ground) -> None:
        assert await g.status("/api/v1/group?id=" + "x" * 9_000) == 400
        large = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"x" * 100_000 + b"\r\n\r\n"
        assert b" 400 " in await raw(g, large) or await raw(g, large) == b""
        status, _, _ = await g.get("/login", method="POST", data={"token": "x" * 100_000})
        assert status == 413
        assert await g.status("/livez") == 200

    run(Ground(given(token_file=tokens)), test)


def test_slow_clients_are_cut_off() -> None:
    async def test(g: Ground) -> None:
        """By the endpoint's limit: `raw` would fail if they were kept."""
        assert await raw(g, b"") == b""
        assert await raw(g, b"GET /livez HTT") == b""
        assert g.metrics.value("admin_closed", "first_request_timeout") == 2
        head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntok"
        await raw(g, head)
        assert b"live" in await raw(g, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert g.metrics.value("admin_closed", "request_timeout") >= 1
        assert await g.status("/livez") == 200

    run(Ground(given(request_timeout_ms=1_000, first_request_timeout_ms=100)), test)


PROBE = b"GET /livez HTTP/1.0\r\n\r\n"


class SilentConnections:
    """Connections that say nothing, from an address of this machine."""

    def __init__(self, g: Ground) -> None:
        self.g = g
        self.open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, host: str, count: int = 1) -> None:
        for _ in range(count):
            self.open.append(await asyncio.open_connection("127.0.0.1", self.g.port, local_addr=(host, 0)))

    async def ended(self, count: int) -> list[int]:
        """Places of those that were closed: so many, or the time is up."""
        await until(lambda: sum(r.at_eof() or r.exception() is not None for r, _ in self.open) >= count)
        return [i for i, (r, _) in enumerate(self.open) if r.at_eof() or r.exception() is not None]

    def close(self) -> None:
        for _, writer in self.open:
            writer.close()


def test_a_probe_is_answered_while_others_take_all_places() -> None:
    """Symptom: 64 connections of one client that said nothing, and renewed, kept the kubelet's probe out: it restarted
    the sidecar."""

    async def test(g: Ground) -> None:
        silent = SilentConnections(g)
        for round_ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
            await silent.connect("127.0.0.2", 5)
            await silent.connect("127.0.0.3", 3)
            writer.write(PROBE)
            assert b'{"live": true}' in await reader.read(), round_
            writer.close()
        assert g.metrics.value("admin_closed", "crowded_out") >= 140
        silent.close()

    run(Ground(given(connections=8)), test)


def test_of_one_address_the_one_that_has_been_idle_for_longest_gives_way() -> None:
    async def test(g: Ground) -> None:
        silent = SilentConnections(g)
        await silent.connect("127.0.0.2")
        await silent.connect("127.0.0.1", 2)
        silent.open[1][1].write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in await silent.open[1][0].readline()
        await silent.connect("127.0.0.1")
        assert await silent.ended(1) == [2], "the first of the address that has most, but for the one that just asked"
        silent.close()

    run(Ground(given(connections=3)), test)


def test_what_is_being_answered_gives_way_last() -> None:
    async def test(g: Ground) -> None:
        silent = SilentConnections(g)
        await silent.connect("127.0.0.1")
        g.hold.clear()
        silent.open[0][1].write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: g.asked)
        await silent.connect("127.0.0.1", 3)
        assert await silent.ended(2) == [1, 2]
        g.hold.set()
        assert b"200" in await silent.open[0][0].readline()
        silent.close()

    run(Ground(given(connections=2)), test)


def test_no_client_holds_up_the_end_of_the_process(tokens: Path) -> None:
    """Symptom: a client that read nothing, or that left half a form, held up the end for 60 to 122 s."""

    async def test() -> None:
        g = Ground(given(token_file=tokens, metrics_open=True))
        g.text = b"x" * 1_000_000
        await g.admin.start()
        stalled = SilentConnections(g)
        await stalled.connect("127.0.0.1", 4)
        many = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
        form = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n"
        for (_, writer), sent in zip(stalled.open, (many, form, b"GET /liv", b""), strict=True):
            writer.write(sent)
        clock_s = asyncio.get_running_loop().time
        then_s = clock_s() + 0.5
        await until(lambda: clock_s() > then_s)
        asked = g.asked
        assert 0 < asked < 20
        g.hold.clear()
        scrape = asyncio.create_task(g.get("/metrics"))
        await until(lambda: g.asked > asked)
        began_s = clock_s()
        end = asyncio.create_task(g.admin.stop())
        await asyncio.sleep(0)
        g.hold.set()
        assert (await scrape)[2] == g.text.decode(), "what reads its answer gets it"
        await end
        assert clock_s() - began_s < 1
        answers = [await reader.read() for reader, _ in stalled.open]
        assert 0 < answers[0].count(b"200 OK") < 20
        stalled.close()

    clock.run(test())


# ---- TLS ------------------------------------------------------------------------------------------------------------
class Papers:
    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.certificate, self.key, self.password = folder / "admin.crt", folder / "admin.key", folder / "password"

    def issue(self, password: bytes = b"") -> None:
        made = self.authority.issue_cert("127.0.0.1")
        self.certificate.write_bytes(b"".join(p.bytes() for p in made.cert_chain_pems))
        key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None)
        closed: Any = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        self.key.write_bytes(key.private_bytes(*form, closed))
        self.password.write_bytes(password + b"\n")

    def trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


async def serial(g: Ground, papers: Papers) -> int:
    """Returns the serial number of the certificate that a new connection gets."""
    _, writer = await asyncio.open_connection("127.0.0.1", g.port, ssl=papers.trusting())
    found = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.close()
    return int(found, 16)


def test_tls_with_a_certificate_that_is_renewed(tmp_path: Path, tokens: Path) -> None:
    papers = Papers(tmp_path)
    papers.issue()

    async def test(g: Ground) -> None:
        trusting = papers.trusting()
        assert await g.status("/owners", headers=bearer(), ssl=trusting) == 200
        assert "Secure" in (await login(g))[1]
        first = await serial(g, papers)
        put(papers.certificate, "half a file")
        await asyncio.to_thread(g.access.refresh)
        assert await serial(g, papers) == first, "what was read before counts"
        assert g.lines.lines[-1][0] == "error"
        papers.issue()
        await asyncio.to_thread(g.access.refresh)
        assert await serial(g, papers) != first
        plain = await raw(g, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"live" not in plain

    run(Ground(given(tls_certificate=papers.certificate, tls_key=papers.key, token_file=tokens)), test)


def test_a_key_with_a_password(tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    papers.issue(b"of-the-key")
    files = {"tls_certificate": papers.certificate, "tls_key": papers.key}

    async def test(g: Ground) -> None:
        assert await g.status("/owners", ssl=papers.trusting()) == 200

    run(Ground(given(**files, tls_key_password_file=papers.password)), test)
    with pytest.raises(AdminFault, match="tls_key"):
        Access("127.0.0.1:1", given(**files), Lines(), Counted())
    with pytest.raises(AdminFault, match="tls_certificate"):
        Access("127.0.0.1:1", given(tls_certificate=tmp_path / "none"), Lines(), Counted())


def test_a_key_without_a_certificate_is_a_fault_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="belong to a tls_certificate"):
        given(tls_key=tmp_path / "key")
