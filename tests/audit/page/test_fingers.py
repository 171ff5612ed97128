"""The page on a screen that is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.audit.page.looking import COVERED, NEEDS_BROWSER, OUTSIDE, SIZES, Open, Point, axis, group, settled
from tests.page.browser import small

if TYPE_CHECKING:
    from playwright.sync_api import Page

STILL = """async () => {
  const frame = () => new Promise(requestAnimationFrame), top = () => document.getElementById('scroll').scrollTop;
  const before = top();
  for (let n = 0; n < 10; n++) await frame();
  return top() === before;
}"""
"""Whether the lanes have stopped: they glide on when a finger has scrolled them."""

pytestmark = [NEEDS_BROWSER, pytest.mark.tier("all")]


class Fingers:
    """On a screen, by events of the DevTools protocol: Playwright itself has a tap only."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._to = page.context.new_cdp_session(page)

    def _touch(self, kind: str, fingers: dict[int, Point]) -> None:
        points = [{"x": x, "y": y, "id": n} for n, (x, y) in fingers.items()]
        self._to.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def go(self, *ways: tuple[Point, Point], lift: bool = True) -> None:
        """Each finger from one point to another, all at once."""
        for n in range(len(ways)):
            self._touch("touchStart", {m: ways[m][0] for m in range(n + 1)})
        for part in (0.25, 0.5, 0.75, 1.0):
            at = {n: (a + (c - a) * part, b + (d - b) * part) for n, ((a, b), (c, d)) in enumerate(ways)}
            self._touch("touchMove", at)
        if lift:
            self._touch("touchEnd", {})
            settled(self._page)

    def lift_second(self, there: Point, first_goes: Point) -> None:
        self._touch("touchEnd", {1: there})
        self._touch("touchMove", {0: first_goes})
        self._touch("touchEnd", {})
        settled(self._page)


def test_fingers_zoom_pan_choose_and_scroll(open_page: Open) -> None:
    page = open_page(size="phone", has_touch=True, is_mobile=True)
    group(page, "clickstream")
    page.evaluate("document.getElementById('timeline').scrollIntoView()")
    box = page.locator("#lanes").bounding_box()
    assert box
    fingers, (x, y, wide) = Fingers(page), (box["x"], box["y"] + 60, box["width"])
    begin, end = axis(page)
    fingers.go(((x + wide * 0.4, y), (x + wide * 0.3, y)), ((x + wide * 0.6, y), (x + wide * 0.7, y)), lift=False)
    settled(page)
    nearer = axis(page)
    assert nearer[1] - nearer[0] == pytest.approx((end - begin) / 2, rel=0.05)
    assert sum(nearer) / 2 == pytest.approx((begin + end) / 2, abs=(end - begin) / 50), "not where the fingers are"
    fingers.lift_second((x + wide * 0.7, y), (x + wide * 0.4, y))
    moved = axis(page)
    assert moved[1] - moved[0] == nearer[1] - nearer[0], "the finger that stays takes the zoom back"
    assert nearer[0] - moved[0] == pytest.approx((nearer[1] - nearer[0]) / 10, rel=0.2)
    fingers.go(((x + wide * 0.8, y), (x + wide * 0.3, y)))
    assert axis(page)[0] - moved[0] == pytest.approx((moved[1] - moved[0]) / 2, rel=0.1)
    before = axis(page)
    fingers.go(((x + wide * 0.5, y + 200), (x + wide * 0.5, y)))
    page.wait_for_function("document.getElementById('scroll').scrollTop > 50")
    assert axis(page) == before, "who scrolls the lanes does not pan"
    ruler = page.locator("#axis").bounding_box()
    assert ruler
    fingers.go(((x + wide * 0.25, ruler["y"] + 20), (x + wide * 0.75, ruler["y"] + 20)))
    assert axis(page)[1] - axis(page)[0] == pytest.approx((before[1] - before[0]) / 2, rel=0.1)
    # A finger that comes while the lanes still glide would stop them, and where they stop no lane may have an owner.
    page.wait_for_function(STILL)
    page.evaluate("document.getElementById('scroll').scrollTop = 0")
    settled(page)
    page.touchscreen.tap(x + wide / 2, y)
    page.locator("#detail").wait_for(state="visible")


def test_controls_are_large_enough_for_fingers(open_page: Open) -> None:
    page = open_page(size="phone", has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES["phone"][0], "wider than the window"
    assert small(page) == []
    group(page, "payments")
    page.locator("#findings-list a").first.tap()
    settled(page)
    assert page.evaluate(COVERED, "payments-events-3") is False
    page.locator(".owner").first.tap()
    page.fill("#search", "payments")
    assert page.locator(".owner").count() and page.locator("#filters .chip").count() and page.locator("#detail").count()
    assert small(page) == []
    assert page.evaluate("[...document.querySelectorAll('#hits li')].every(l => l.offsetHeight >= 40)")
    assert page.evaluate(OUTSIDE) == []
    page.locator("#help-open").tap()
    assert small(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES["phone"][0], "wider than the window"
