"""The page in a browser, at three sizes: it opens, zooms, pans, searches, links, exports and prints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.audit.page.looking import COVERED, NEEDS_BROWSER, OUTSIDE, SIZES, Open, axis, group, press, settled
from tests.audit.page.rows import unpacked

pytestmark = [NEEDS_BROWSER, pytest.mark.tier("all")]


@pytest.mark.parametrize(("size", "scheme"), list(zip(SIZES, ("light", "dark", "light"), strict=True)))
def test_it_opens_at_every_size(open_page: Open, size: str, scheme: str) -> None:
    page = open_page(size=size, color_scheme=scheme)
    assert page.inner_text("#verdict-head") == "2 findings"
    assert "2025-11-23 01:20:00" in page.inner_text("#verdict")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0], "wider than the window"
    assert int(page.evaluate("document.body.dataset.bars")) > 10
    group(page, "payments")
    assert page.locator("#labels button", has_text="Partitions").count() == 1
    drawn = page.evaluate(
        "() => { const c = document.getElementById('lanes');"
        " return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size }"
    )
    assert drawn > 20, "the canvas is all but empty"


@pytest.mark.parametrize("size", SIZES)
def test_zoom_pan_and_search_at_every_size(open_page: Open, size: str) -> None:
    page = open_page(size=size)
    group(page, "payments")
    begin, end = axis(page)
    page.click("#zoom-in")
    page.click("#zoom-in")
    settled(page)
    nearer = axis(page)
    assert nearer[1] - nearer[0] == pytest.approx((end - begin) / 4, rel=0.01)
    page.locator("#lanes").scroll_into_view_if_needed()
    box = page.locator("#lanes").bounding_box()
    assert box and box["width"] > SIZES[size][0] * 0.4, "the names leave too little for the lanes"
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40, steps=4)
    page.mouse.up()
    settled(page)
    assert axis(page)[0] - nearer[0] == pytest.approx((nearer[1] - nearer[0]) / 2, rel=0.05)
    page.click("#whole")
    settled(page)
    assert axis(page) == (begin, end)
    page.fill("#search", "payments-2-a7f1")
    assert page.evaluate(OUTSIDE) == []
    page.locator("#hits li").first.click()
    settled(page)
    assert "Member m2, payments-2" in page.inner_text("#detail")
    detail = page.locator("#detail").bounding_box()
    assert detail and detail["x"] >= 0 and detail["x"] + detail["width"] <= SIZES[size][0]
    assert page.evaluate(COVERED, "payments-2") is False
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0], "wider than the window"


def test_keys_zoom_and_pan(open_page: Open) -> None:
    page = open_page()
    begin, end = axis(page)
    press(page, "+", "+")
    nearer = axis(page)
    assert nearer[1] - nearer[0] == pytest.approx((end - begin) / 4, rel=0.01)
    press(page, "ArrowRight")
    assert axis(page)[0] > nearer[0]
    assert axis(page)[1] - axis(page)[0] == pytest.approx(nearer[1] - nearer[0], abs=2)
    press(page, "0")
    assert axis(page) == (begin, end)
    press(page, "+", "-")
    assert axis(page)[1] - axis(page)[0] == pytest.approx(end - begin, rel=0.01)


def test_the_wheel_zooms_at_the_pointer_and_dragging_pans(open_page: Open) -> None:
    page = open_page()
    begin, end = axis(page)
    box = page.locator("#axis").bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 4, box["y"] + 20
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    settled(page)
    nearer = axis(page)
    assert nearer[1] - nearer[0] < (end - begin) * 0.8
    held = begin + (end - begin) / 4
    assert nearer[0] + (nearer[1] - nearer[0]) / 4 == pytest.approx(held, abs=(end - begin) / 100)
    page.mouse.move(x, y + 60)
    page.mouse.down()
    page.mouse.move(x - 100, y + 60, steps=4)
    page.mouse.up()
    settled(page)
    assert axis(page)[0] > nearer[0]


def test_dragging_on_the_axis_chooses_a_range(open_page: Open) -> None:
    page = open_page()
    begin, end = axis(page)
    box = page.locator("#axis").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 20, steps=4)
    page.mouse.up()
    settled(page)
    assert axis(page)[1] - axis(page)[0] == pytest.approx((end - begin) * 0.1, rel=0.1)


def test_search_finds_members_partitions_and_filters(open_page: Open) -> None:
    page = open_page()
    press(page, "/")
    page.keyboard.type("payments-2-a7f1")
    assert page.locator("#hits li").first.inner_text().split("\n")[:2] == ["member", "m2 payments-2"]
    page.keyboard.press("Enter")
    settled(page)
    assert "m=2" in page.url
    assert "Member m2, payments-2" in page.inner_text("#detail")
    press(page, "/")
    page.keyboard.type("clickstream-events-41")
    page.keyboard.press("Enter")
    settled(page)
    assert "g=2%2Fclickstream" in page.url
    assert "clickstream-events-41 owned by" in page.inner_text("#detail")
    assert page.locator('#labels button[title="clickstream-events-41"]').is_visible()
    press(page, "/")
    page.keyboard.type("events-4")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    settled(page)
    assert "q=events-4" in page.url
    assert page.locator("#labels button", has_text="Partitions").inner_text().split()[-1] == "9"


def test_a_finding_leads_to_its_moment(open_page: Open, shown: dict[str, Any]) -> None:
    page = open_page()
    page.locator("#findings-list a", has_text="two owners").first.click()
    settled(page)
    listed = unpacked(shown, "findings")
    at = listed["t"][listed["k"].index(0)]
    begin, end = axis(page)
    assert begin < at < end
    assert end - begin < 60_000
    assert page.locator("#pick option:checked").inner_text() == "payments"
    assert "m2 (payments-2) began while m1 (payments-1) still owned it" in page.inner_text("#detail")
    press(page, "f")
    assert "Stale write" in page.inner_text("#detail")
    press(page, "F")
    assert "Two owners" in page.inner_text("#detail")


def test_a_click_tells_offsets_bounds_and_why(open_page: Open) -> None:
    page = open_page("#g=1/payments&t=1763863211600..1763863217400")
    at = page.evaluate(
        "() => { const l = [...document.querySelectorAll('#labels button')].find(x =>"
        " x.title === 'payments-events-3');"
        " return l.getBoundingClientRect().top + 8 }"
    )
    box = page.locator("#lanes").bounding_box()
    assert box
    page.mouse.click(box["x"] + 20, at)
    settled(page)
    told = page.inner_text("#detail")
    for words in ("payments-events-3 owned by m1", "payments-1-a7f0", "exact, offset", "reached its member epoch"):
        assert words in told
    press(page, "]")
    assert "owned by m2" in page.inner_text("#detail")
    assert "not exact: first seen at offset" in page.inner_text("#detail")


def test_a_link_shows_the_same_again(open_page: Open) -> None:
    page = open_page()
    page.locator("#findings-list a", has_text="two owners").first.click()
    page.locator(".chip", has_text="stale write").click()
    press(page, "u", "c")
    page.locator(".owner").first.click()
    settled(page)
    again = open_page("#" + page.url.split("#")[1])
    assert axis(again) == axis(page)
    for part in ("#detail", "#kinds", "#filters", "#told", "#labels", "#zone"):
        assert again.inner_text(part) == page.inner_text(part)
    assert again.locator("#pick").input_value() == page.locator("#pick").input_value()
    assert again.locator("#compact").get_attribute("aria-pressed") == "true"


def test_back_leads_to_where_one_came_from(open_page: Open) -> None:
    page = open_page()
    page.locator("#index-body button", has_text="payments").click()
    settled(page)
    assert page.locator("#pick option:checked").inner_text() == "payments"
    page.go_back()
    settled(page)
    assert page.locator("#pick option:checked").inner_text() == "All groups (6)"


def test_on_paper_there_are_verdict_findings_and_the_table(open_page: Open) -> None:
    page = open_page(color_scheme="dark")
    group(page, "payments")
    page.emulate_media(media="print")
    settled(page)
    for part in ("#verdict", "#findings-list", "#index-body", "#lanes", "#table-body tr >> nth=0"):
        assert page.locator(part).is_visible()
    for part in ("#search", "#trace", "#help-open"):
        assert not page.locator(part).is_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.pdf()[:4] == b"%PDF"
    page.emulate_media(media="screen")
    settled(page)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_text_table_says_what_is_in_view(open_page: Open) -> None:
    page = open_page("#g=1/payments&t=1763863211600..1763863217400")
    rows = page.locator("#table-body tr").all_inner_texts()
    assert any(r.startswith("payments-events-3") and "owned by m2" in r for r in rows)
    assert not any("04:13" in r.split("\t")[1] for r in rows)
    assert "2025-11-23 02:00:11" in page.inner_text("#told")
    page.locator("#table-body button", has_text="payments-events-3").first.click()
    assert "payments-events-3 owned by m1" in page.inner_text("#detail")


def test_everything_has_a_name_and_tab_reaches_the_lanes(open_page: Open) -> None:
    page = open_page()
    nameless = page.evaluate(
        "() => [...document.querySelectorAll('button, input, select')].filter(b =>"
        " !(b.textContent.trim() || b.ariaLabel || b.title)).map(b => b.outerHTML)"
    )
    assert nameless == []
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "scroll":
            break
    assert page.evaluate("document.activeElement.id") == "scroll"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(page, "?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
