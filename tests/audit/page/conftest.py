"""The pages that are looked at, and the browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.audit.page import build, view
from tests.audit.page.example import example, large
from tests.audit.page.looking import SIZES, Open, settled
from tests.page.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


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
