from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.flows.serve.catalogue.conftest import HOSTILE_FILE, HOSTILE_ID, Catalogue
from tests.support.processes import require_chromium, slow_but
from tests.support.serving import ask_http

pytestmark = pytest.mark.browser
_AXE = "axe-core@4.11.1"
_REPORTED = "window.broken = []; addEventListener('securitypolicyviolation', e => broken.push(e.blockedURI))"
FILE = f"/file?doc_id={HOSTILE_ID}&path={quote(HOSTILE_FILE)}"
PAGES = (
    "/", "/?q=bake+bread&kind=skill", "/skill?doc_id=bread", "/sources", "/report", "/docs", FILE,
    "/skill?doc_id=bread&q=how+long%3F&percent=30", "/graph?doc_id=bread", "/skill?doc_id=none",
    "/file?doc_id=bread&path=notes.md", "/revisions?doc_id=bread", f"/skill?doc_id={HOSTILE_ID}&q=tide",
)  # fmt: skip
_TAG = quote("<script>alert(1)</script>")
Open = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=30_000)  # a machine may be busy
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=require_chromium(), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def opened(browser: Browser, catalogue: Catalogue) -> Open:
    """Return what opens a page of the catalogue; at its end nothing has run, or was asked of another host."""

    @contextmanager
    def opening(target: str, *, width: int = 1280, dark: bool = False, script: bool = True) -> Iterator[Page]:
        context = browser.new_context(
            base_url=catalogue.server.url, viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light", java_script_enabled=script,
        )  # fmt: skip
        page, asked, dialogs = context.new_page(), list[str](), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss())[1])
        page.add_init_script(_REPORTED)
        page.goto(target)
        yield page
        if script:
            assert page.evaluate("[window.broken, typeof window.ran]") == [[], "undefined"]
        assert not dialogs
        assert {urlsplit(url).netloc for url in asked} == {urlsplit(catalogue.server.url).netloc}
        context.close()

    return opening


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("npm") is None:
        pytest.skip("npm, which brings axe-core, is not on PATH")
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), _AXE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        pytest.skip(f"npm cannot bring {_AXE}: {done.stderr.strip()[-200:]}")
    return Path(folder, "node_modules", "axe-core", "axe.min.js").read_text("utf-8")


def marked(page: Page) -> list[str]:
    return [str(element.get_attribute("id")) for element in page.query_selector_all("#body .node.taken")]


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_a_person_searches_filters_opens_and_moves_the_budget(opened: Open, catalogue: Catalogue) -> None:
    with opened("/") as page:
        page.get_by_label("What is to be done?").fill("bake bread")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("link", name="bread", exact=True)).to_be_visible()
        page.get_by_text("Risk", exact=True).click()
        page.get_by_role("checkbox", name="none").check()
        page.wait_for_url("**risk=none**")
        page.get_by_role("link", name="bread", exact=True).click()
        page.get_by_label("What do you need of this skill?").fill("how long does it rise?")
        page.get_by_role("button", name="Mark it").click()
        page.wait_for_url("**q=how+long+does+it+rise**")  # what was searched for was marked before
        free = ask_http(catalogue.server, "/api/page?doc_id=bread&q=how+long+does+it+rise%3F").json()
        assert marked(page) == [f"n{node['node_id'].rpartition('#')[2]}" for node in free["nodes"]]
        page.get_by_label("Budget").fill("30")
        expect(page.locator("#budget")).to_contain_text("30%")
        page.wait_for_url("**percent=30**")
        target = "/api/page?doc_id=bread&q=how+long+does+it+rise%3F&budget=0.3"
        tight = ask_http(catalogue.server, target).json()
        expect(page.locator("#answer strong")).to_have_text(str(tight["tokens"]))
        assert marked(page) == [f"n{node['node_id'].rpartition('#')[2]}" for node in tight["nodes"]]
        page.get_by_text("What an agent gets").click()
        assert page.locator(".context pre").inner_text().strip() == tight["context"].strip()


def test_a_reload_shows_what_was_asked_last_and_no_script_is_needed(opened: Open) -> None:
    with opened("/skill?doc_id=bread&q=how+long%3F&percent=30", script=False) as page:
        by_server = marked(page)
        page.get_by_label("What do you need of this skill?").fill("flour")
        page.get_by_role("button", name="Mark it").click()
        assert query_of(page) == {"doc_id": ["local/market/bread"], "q": ["flour"], "percent": ["30"]}
    with opened("/skill?doc_id=bread&q=how+long%3F&percent=30") as page:
        assert marked(page) == by_server


def test_the_keyboard_alone_will_do(opened: Open) -> None:
    with opened("/") as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "q"
        page.keyboard.type("bake bread")
        page.keyboard.press("Enter")
        page.wait_for_url("**q=bake+bread**")
        focus_on(page, "bread")
        page.keyboard.press("Enter")
        page.wait_for_url("**/skill?**")
        focus_on(page, "percent")
        page.keyboard.press("Home")
        page.wait_for_url("**percent=1**")
        expect(page.locator("#budget")).to_contain_text("1%")
        assert page.evaluate("document.activeElement.id") == "percent"


def focus_on(page: Page, wanted: str) -> None:
    """Press Tab until the element with this id or text has the focus."""
    for _ in range(40):
        page.keyboard.press("Tab")
        found = page.evaluate("[document.activeElement.id, document.activeElement.textContent.trim()]")
        if wanted in found:
            return
    raise AssertionError(wanted)


@pytest.mark.parametrize("target", slow_but({"/", FILE, PAGES[7]}, PAGES))
def test_a_page_fits_a_narrow_screen(opened: Open, target: str) -> None:
    with opened(target, width=360) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize(
    ("dark", "targets"),
    [
        (False, ("/?q=bake+bread&kind=skill", PAGES[7], "/graph?doc_id=bread")),
        pytest.param(False, PAGES, marks=pytest.mark.slow), pytest.param(True, PAGES, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_page_is_accessible(opened: Open, axe: str, dark: bool, targets: Sequence[str]) -> None:
    found: dict[str, Any] = {}
    for target in targets:
        with opened(target, dark=dark) as page:
            page.evaluate(axe)  # by the debugger, whom no policy binds
            tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
            # In the dark all is as in the light but the colours.
            rules = {"runOnly": {"type": "rule", "values": ["color-contrast"]} if dark else tags}
            result = page.evaluate("rules => axe.run(document, rules)", rules)
            assert len(result["passes"]) > (0 if dark else 10)
            found |= {
                f"{target}: {one['id']}": [node["html"][:200] for node in one["nodes"]]
                for one in result["violations"]
                if one["impact"] in {"serious", "critical"}
            }
    assert found == {}, json.dumps(found, indent=1)


def test_dark_and_light_follow_the_reader(opened: Open) -> None:
    def ground(*, dark: bool) -> int:
        with opened("/", dark=dark) as page:
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            return sum(int(part) for part in colour[4:-1].split(","))

    assert ground(dark=True) + 450 < ground(dark=False)


HOSTILE_PAGES = (
    f"/skill?doc_id={HOSTILE_ID}&q=tide&percent=50", FILE, f"/?q={_TAG}", f"/skill?doc_id={HOSTILE_ID}",
    f"/graph?doc_id={HOSTILE_ID}", f"/revisions?doc_id={HOSTILE_ID}", "/?q=tide", "/sources", "/report",
    f"/skill?doc_id={_TAG}",
)  # fmt: skip


@pytest.mark.parametrize("target", slow_but(HOSTILE_PAGES[:3], HOSTILE_PAGES))
def test_hostile_texts_run_nothing_and_load_nothing(opened: Open, target: str) -> None:
    with opened(target) as page:
        page.wait_for_timeout(200)  # in which a script would run, or a page be left
        assert urlsplit(page.url).path == urlsplit(target).path
        for summary in page.query_selector_all("summary"):
            summary.click()
        if "/skill?doc_id=local" in target:
            shown = page.locator("#body").inner_text()
            assert "<script>window.ran = 1; alert(1)</script>" in shown
            assert "\\u202eexe.fdp" in shown
            page.get_by_label("What do you need of this skill?").fill("<script>alert(1)</script> tide")
            page.get_by_role("button", name="Mark it").click()
            page.wait_for_url("**alert%281%29**")
            expect(page.locator("#answer strong")).to_be_visible()
