"""Headless Chromium, through Playwright, and in it the page at the admin endpoint. Nothing of it may be wrong: no
message in the console, no request to anywhere else, nothing wider than the window."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tests.process.admin_ground import Ground

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
SIZES = {"phone": (320, 640), "tablet": (1024, 768), "desktop": (1920, 1080)}

SMALL = """() => [...document.querySelectorAll('button, select, input, summary, a[href]')].map(c => {
  const box = c.getBoundingClientRect(), lane = c.closest('#labels'), least = lane ? 23 : 40;
  const small = box.width && !c.closest('.skip') && (box.height < least || box.width < least);
  return small ? `${Math.round(box.width)} x ${Math.round(box.height)}: ${c.outerHTML.slice(0, 120)}` : '';
}).filter(Boolean)"""


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "no chromium: install it"
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=FLAGS.split())
        yield started
        started.close()


class CheckedPages:
    """Opens pages and collects their errors. `expected`: words of messages that a test expects."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._opened: list[Page] = []
        self.wrong: list[str] = []
        self.expected: tuple[str, ...] = ()

    def open(self, url: str, size: str = "desktop", ready: str = "body[data-ready]", **more: Any) -> Page:
        width, height = SIZES[size]
        page = self._browser.new_page(viewport={"width": width, "height": height}, **more)
        self._opened.append(page)
        page.on("console", lambda m: self._record(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self._record(str(e)))
        page.on("dialog", lambda d: self._record(f"dialog: {d.message}"))
        base = url.split("/", 3)[:3]
        page.on("request", lambda r: None if r.url.split("/", 3)[:3] == base else self._record(r.url))
        page.goto(url)
        page.wait_for_selector(ready)
        return page

    def _record(self, text: str) -> None:
        if not any(words in text for words in self.expected):
            self.wrong.append(text)

    def close(self) -> None:
        for page in self._opened:
            page.close()
        assert not self.wrong


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def small(page: Page) -> list[str]:
    """Controls that are small for a finger: below 40 px. Names of lanes in the audit's page are as high as lanes, which
    are 24 px with their border."""
    return list(page.evaluate(SMALL))


def until(page: Page, true: str, seconds: float = 10) -> None:
    """Waits until this expression is true. Playwright's own way to wait for one is kept out by the page's policy."""
    end = time.monotonic() + seconds
    while not page.evaluate(true):
        assert time.monotonic() < end, f"not true within {seconds} s: {true}"
        page.wait_for_timeout(50)


def focused(page: Page) -> str:
    """The group whose link has the focus, or the id of what has it."""
    return str(page.evaluate("document.activeElement.dataset.group ?? document.activeElement.id"))


class Served:
    """A ground whose endpoint runs on a loop of its own thread, as the browser's client blocks this one."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def do(self, what: Any) -> None:
        """Call this on the loop."""
        done = threading.Event()

        def call() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(10)

    def start(self) -> None:
        asyncio.run_coroutine_threadsafe(self.ground.admin.start(), self._loop).result(30)
        self._keeping = asyncio.run_coroutine_threadsafe(self.ground.admin.keep(), self._loop)

    def stop(self) -> None:
        self._keeping.cancel()
        asyncio.run_coroutine_threadsafe(self.ground.admin.stop(), self._loop).result(30)

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
