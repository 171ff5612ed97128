"""Pages of the audit in a real browser: headless Chromium, through Playwright."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

NEEDS_BROWSER = pytest.mark.needs("chromium")
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
