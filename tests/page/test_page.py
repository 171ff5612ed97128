"""The page at the admin endpoint in a real browser, over a synthetic copy of the state topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sidecar.coordinator.inspect.group_views import Lag
from sidecar.core.consumer import records as consumer
from sidecar.core.consumer.records import MemberState
from sidecar.kafka.group_lists import PartitionLag
from tests.coordinator.inspect.test_group_views import streams_world
from tests.page.browser import SIZES, CheckedPages, Served, chromium, fits, focused, small, until
from tests.process.admin_ground import TOKEN, Ground, given

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.needs("chromium")
EVIL = "<img src=x onerror=alert(1)>\"'&</script>"
LONG = "a-very-long-name-of-a-group-" + "x" * 150


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def checked_pages(browser: Browser) -> Iterator[CheckedPages]:
    opened = CheckedPages(browser)
    yield opened
    opened.close()


@pytest.fixture
def served() -> Iterator[Served]:
    ground = Ground(given())
    s = ground.synthetic
    s.consumer_group("payments", members=3, each=2, why="payments-3 joined")
    s.classic_group("audit", members=2)
    s.consumer_group("returns", members=2, each=1)
    s.write(consumer.GroupRecord("returns", 2, 0, "the topic has more partitions"))
    with Served(ground) as running:
        yield running


@pytest.fixture(scope="module")
def crowd() -> Iterator[Served]:
    """10,000 groups."""
    ground = Ground(given())
    ground.synthetic.many(10_000)
    with Served(ground) as running:
        yield running


@pytest.mark.parametrize(("size", "scheme"), list(zip(SIZES, ("light", "dark", "light"), strict=True)))
def test_it_opens_at_every_size(checked_pages: CheckedPages, served: Served, size: str, scheme: str) -> None:
    page = checked_pages.open(served.ground.url("/"), size, color_scheme=scheme)
    assert page.inner_text("h1") == "Sidecar of node 1"
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.locator("#groups a").all_inner_texts() == ["audit", "payments", "returns"]
    assert (
        page.locator("#groups tr").nth(2).inner_text().split("\t")[1 if size == "phone" else 2].strip() == "Assigning"
    )
    assert page.locator("#sidecars tr").count() == 2
    assert "3 groups" in page.inner_text("#counts")
    assert fits(page) and (size != "phone" or small(page) == [])
    page.click("text=payments")
    page.wait_for_selector("#one:not([hidden])")
    assert page.inner_text("#group-title") == "payments"
    assert page.locator("#members tr").count() == 3
    assert page.locator("#partitions tr").count() == 6
    assert "payments-3 joined" in page.inner_text("#rebalances")
    assert "not known" in page.inner_text("#partitions"), "nobody tells the lag here"
    assert fits(page) and (size != "phone" or small(page) == [])


def test_a_streams_group_is_shown_by_its_tasks(checked_pages: CheckedPages, served: Served) -> None:
    """Symptom: it was a group of kind `other`, without members."""
    served.do(lambda: served.ground.synthetic.write(*streams_world().log))
    page = checked_pages.open(served.ground.url("/"))
    until(page, "document.querySelectorAll('#groups a').length === 4")
    row = page.locator("#groups tr").nth(1).inner_text().split("\t")
    assert [cell.strip() for cell in row[:4]] == ["g", "streams", "Stable", "1"]
    page.goto(served.ground.url("/#g=g"))
    page.wait_for_selector("#one:not([hidden])")
    until(page, "document.querySelectorAll('#partitions tr').length === 4")
    assert page.locator("#partitions td:first-child").all_inner_texts() == ["0_0", "0_1", "1_0", "1_1"]
    facts = page.inner_text("#facts")
    assert "Subtopologies" in facts and "0: in; 1: app-r" in facts
    assert "process p-m1" in page.inner_text("#members")


@pytest.mark.parametrize("size", SIZES)
def test_groups_of_brokers_stand_beside_those_of_sidecars(
    checked_pages: CheckedPages, served: Served, size: str
) -> None:
    s = served.ground.synthetic
    s.listed.at = {1: {"theirs": ("share", "Stable"), "payments": ("", "Stable")}, 2: None, 3: {}}
    s.views.lag = Lag(lambda name: {("orders", 0): PartitionLag(5, None, 4)} if name == "theirs" else None)
    page = checked_pages.open(served.ground.url("/"), size)
    rows = "[...document.querySelectorAll('#groups a')].map(a => a.innerText).join()"
    until(page, f"{rows} === 'audit,payments,returns,theirs'")
    theirs = page.locator("#groups tr").nth(3).inner_text()
    assert size == "phone" or ("broker 1" in theirs and "4" in theirs)
    sidecars = page.locator("#sidecars tr").all_inner_texts()
    assert len(sidecars) == 3 and "none" in sidecars[2], "there is a broker without a sidecar"
    assert sidecars[0].endswith("1") and "not known: it stands still" in sidecars[1]
    assert fits(page)
    page.click("text=theirs")
    until(page, "document.querySelector('#group-told').innerText.startsWith('Broker 1 coordinates it')")
    assert page.locator("#partitions tr").all_inner_texts() == ["orders-0\tnot known\tnot known\t5\tnot known\t4"]
    assert not page.is_visible("#members") and not page.is_visible("#rebalances") and fits(page)


def test_the_keyboard_alone_is_enough(checked_pages: CheckedPages, served: Served) -> None:
    page = checked_pages.open(served.ground.url("/"))
    page.keyboard.press("j")
    assert focused(page) == "audit"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert focused(page) == "returns"
    page.keyboard.press("k")
    assert focused(page) == "payments"
    page.keyboard.press("Enter")
    page.wait_for_selector("#one:not([hidden])")
    assert focused(page) == "group-title"
    page.keyboard.press("Escape")
    page.wait_for_selector("#list:not([hidden])")
    until(page, "document.activeElement.dataset.group === 'payments'")
    page.keyboard.press("/")
    assert focused(page) == "search"
    page.keyboard.type("aud")
    until(page, "document.querySelectorAll('#groups a').length === 1")
    page.keyboard.press("ArrowDown")
    assert focused(page) == "audit"
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    until(page, "document.querySelectorAll('#groups a').length === 3")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before
    page.locator("body").click(position={"x": 2, "y": 2})
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus can be seen"


def test_it_follows_what_happens(checked_pages: CheckedPages, served: Served) -> None:
    page = checked_pages.open(served.ground.url("/#g=returns"))
    page.wait_for_selector("#one:not([hidden])")
    s = served.ground.synthetic

    def settles() -> None:
        s.target("returns", ["m00001", "m00000"], 1, 2)
        s.current("returns", "m00000", 1, range(0), pending=range(1), state=MemberState.UNREVOKED_PARTITIONS)

    served.do(settles)
    until(page, "document.getElementById('facts').innerText.includes('Reconciling')")
    row = page.locator("#partitions tr").first.inner_text()
    assert "m00000 has yet to give it up" in row and "m00001" in row
    page.keyboard.press("Escape")
    page.wait_for_selector("#list:not([hidden])")
    page.keyboard.press("/")
    served.do(lambda: s.consumer_group("a-new-one"))
    until(page, "document.querySelectorAll('#groups a').length === 4")
    assert focused(page) == "search", "nothing takes the focus away"


def test_the_focus_stays_with_its_group(checked_pages: CheckedPages, served: Served) -> None:
    page = checked_pages.open(served.ground.url("/"))
    page.keyboard.press("j")
    assert focused(page) == "audit"
    served.do(lambda: served.ground.synthetic.consumer_group("a-first"))
    until(page, "document.querySelectorAll('#groups a').length === 4")
    assert focused(page) == "audit"


def test_why_it_is_not_ready_and_that_nobody_answers(checked_pages: CheckedPages, served: Served) -> None:
    checked_pages.expected = ("ERR_CONNECTION", "Failed to load resource")
    page = checked_pages.open(served.ground.url("/"))
    assert page.locator("#problems").is_hidden()
    served.ground.problems.append("2 partitions are being taken over")
    page.wait_for_selector("#problems:not([hidden])", timeout=10_000)
    assert "2 partitions are being taken over" in page.inner_text("#problems")
    served.stop()
    page.wait_for_selector("#lost:not([hidden])", timeout=15_000)
    assert page.inner_text("#live") == "Connection lost"
    assert page.locator("#groups a").count() == 3, "what was there stays, and is told to be old"


def test_names_that_are_markup_are_shown_as_text(checked_pages: CheckedPages, served: Served) -> None:
    s = served.ground.synthetic
    served.do(lambda: s.consumer_group(EVIL, why=EVIL))
    served.do(lambda: s.classic_group(LONG, why=EVIL))
    page = checked_pages.open(served.ground.url("/"), "phone")
    assert EVIL in page.locator("#groups a").all_inner_texts()
    assert fits(page)
    page.locator("#groups a", has_text="onerror").click()
    page.wait_for_selector("#one:not([hidden])")
    assert page.inner_text("#group-title") == EVIL
    assert EVIL in page.inner_text("#rebalances")
    assert fits(page)
    assert page.locator("img").count() == 0
    page.goto(served.ground.url("/#g=" + "%3Cb%3E%ZZ"))
    page.wait_for_selector("#list:not([hidden])")
    page.goto(served.ground.url("/#g=theirs"))
    until(page, "document.getElementById('group-told').innerText === 'no such group'")
    checked_pages.expected = ("404",)
    checked_pages.wrong = [w for w in checked_pages.wrong if "404" not in w]


@pytest.mark.parametrize("size", SIZES)
def test_ten_thousand_groups_are_usable(checked_pages: CheckedPages, crowd: Served, size: str) -> None:
    page = checked_pages.open(crowd.ground.url("/"), size)
    assert "10,000 groups" in page.inner_text("#counts")
    assert page.inner_text("#range") == "1 to 100 of 10,000"
    assert page.locator("#groups a").count() == 100
    page.keyboard.press("n")
    until(page, "document.querySelector('#groups a').innerText === 'group-00100'")
    page.keyboard.press("p")
    until(page, "document.querySelector('#groups a').innerText === 'group-00000'")
    page.locator("#groups-head button", has_text="Group").click()
    until(page, "document.querySelector('#groups a').innerText === 'group-09999'")
    page.fill("#search", "group-0421")
    until(page, "document.querySelectorAll('#groups a').length === 10")
    page.select_option("#kind", "classic")
    until(page, "document.querySelectorAll('#groups a').length === 5")
    page.click("text=group-04211")
    page.wait_for_selector("#one:not([hidden])")
    assert page.inner_text("#group-title") == "group-04211"
    assert "a member joined" in page.inner_text("#rebalances")
    assert fits(page)


def test_it_asks_for_a_token(checked_pages: CheckedPages, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(TOKEN)
    ground = Ground(given(token_file=path))
    ground.synthetic.consumer_group("payments")
    checked_pages.expected = ("401",)
    with Served(ground):
        page = checked_pages.open(ground.url("/"), "phone")
        assert page.locator("#login").is_visible() and not page.locator("#main").is_visible()
        assert fits(page)
        assert focused(page) == "token"
        page.keyboard.type("a-token-that-is-wrong")
        page.keyboard.press("Enter")
        until(page, "document.getElementById('login-told').innerText !== ''")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#main:not([hidden])")
        assert page.locator("#groups a").all_inner_texts() == ["payments"]
        assert TOKEN not in page.url and TOKEN not in str(page.context.cookies())
        assert page.evaluate("document.cookie") == "", "no script reads it"
        page.reload()
        page.wait_for_selector("#main:not([hidden])")
        path.write_text("another-token-that-counts-now")
        page.wait_for_selector("#login:not([hidden])", timeout=15_000)
        page.close()
    assert TOKEN not in str(ground.lines.lines)
