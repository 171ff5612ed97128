"""Pages of the audit in a real browser: headless Chromium, through Playwright.

Without them these tests fail: a test that did not run is not green. AUDIT_PAGE_WITHOUT_BROWSER=1 leaves them out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.audit.page import build, view
from tests.audit.page.example import example, large

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LEFT_OUT = os.environ.get("AUDIT_PAGE_WITHOUT_BROWSER") == "1"
NEEDS_BROWSER = pytest.mark.skipif(LEFT_OUT, reason="AUDIT_PAGE_WITHOUT_BROWSER=1")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
SIZES = {"desktop": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
OUTSIDE = """() => [...document.querySelectorAll('button, select, input, summary')].filter(c => {
  const box = c.getBoundingClientRect();
  return box.width && !c.closest('.scroll-x, .skip') && (box.left < 0 || box.right > innerWidth);
}).map(c => c.outerHTML)"""
"""Controls that are beside the window. Tables scroll by themselves."""
COVERED = """(lane) => {
  const name = document.querySelector(`#labels button[title="${lane}"]`), box = name.getBoundingClientRect();
  return !name.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2));
}"""
"""Whether what is told of a lane lies over it, or it is out of the window."""
Open = Callable[..., "Page"]
Point = tuple[float, float]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "no chromium: install it, or set AUDIT_PAGE_WITHOUT_BROWSER=1"
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=FLAGS.split())
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    rows, marks, until = example()
    return view(rows, marks=marks, title="Six groups", until_ms=until)


@pytest.fixture(scope="module")
def page_file(folder: Path, shown: dict[str, Any]) -> Path:
    path = folder / "example.html"
    path.write_text(build(shown), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def large_file(folder: Path) -> Path:
    rows, until = large()
    path = folder / "large.html"
    path.write_text(build(view(rows, title="Large", until_ms=until)), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser: Browser, page_file: Path) -> Iterator[Open]:
    """Opens a page, and at the end wants that it never complained and asked for nothing."""
    wrong: list[str] = []
    opened: list[Page] = []

    def opens(fragment: str = "", size: str = "desktop", path: Path = page_file, **more: Any) -> Page:
        width, height = SIZES[size]
        page = browser.new_page(viewport={"width": width, "height": height}, **more)
        opened.append(page)
        page.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: wrong.append(str(e)))
        page.on("dialog", lambda d: wrong.append(f"dialog: {d.message}"))
        page.on("request", lambda r: None if r.url.startswith(("file:", "blob:")) else wrong.append(r.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("body[data-ready]")
        settled(page)
        return page

    yield opens
    for page in opened:
        page.close()
    assert not wrong


def settled(page: Page) -> None:
    """Past the next two frames, and past the timer after which address and table follow: 180 ms, and the page's timers
    come in their order."""
    page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 181))))"
    )


def axis(page: Page) -> tuple[int, int]:
    begin, end = page.evaluate("() => [document.body.dataset.from, document.body.dataset.to]")
    return int(begin), int(end)


def press(page: Page, *keys: str) -> None:
    page.locator("#scroll").focus()
    for key in keys:
        page.keyboard.press(key)
    settled(page)


def group(page: Page, name: str) -> None:
    page.select_option("#pick", label=name)
    settled(page)
