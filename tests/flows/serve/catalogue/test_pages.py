from __future__ import annotations

import html
import re

import pytest

from tests.flows.serve.catalogue.conftest import HOSTILE_ID, Catalogue
from tests.support.serving import Answer, ask_http
from tests.support.texts.html import Read

PAGES = (
    "/", "/?q=bake+bread", "/?kind=skill&risk=none", "/skill?doc_id=bread", "/sources", "/report", "/docs",
    "/skill?doc_id=bread&q=how+long%3F", "/graph?doc_id=bread", "/file?doc_id=bread&path=notes.md",
    "/revisions?doc_id=bread", f"/skill?doc_id={HOSTILE_ID}&q=tide", f"/graph?doc_id={HOSTILE_ID}",
    "/skill?doc_id=none",
)  # fmt: skip


def page(catalogue: Catalogue, target: str, status: int = 200) -> str:
    answer = ask_http(catalogue.server, target, accept="text/html")
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.body.decode()


def text_of(made: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", made)).split())


@pytest.mark.parametrize("target", PAGES)
def test_a_page_loads_only_what_is_this_servers_own(catalogue: Catalogue, target: str) -> None:
    answer: Answer = ask_http(catalogue.server, target, accept="text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'")
    assert "set-cookie" not in answer.headers
    made = answer.body.decode()
    assert set(re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"([^\"]*)\"", made)) == {
        "/static/catalogue.css", "/static/catalogue.js", "/static/icon.svg"
    }  # fmt: skip
    assert not {name for name in Read(made).attributes if name.startswith("on") or name == "style"}


def test_a_search_tells_why_each_skill_was_found(catalogue: Catalogue) -> None:
    made = page(catalogue, "/?q=bake+bread")
    assert made.index("doc_id=local%2Fmarket%2Fbread") < made.index("doc_id=local%2Fmarket%2Ftea")
    assert "<mark>" in made
    assert re.search(r"Fit \d+ %\. Score .* words in common", text_of(made))
    assert "seems to fit" not in text_of(made)


def test_a_search_that_nothing_fits_says_so_above_what_comes_nearest(catalogue: Catalogue) -> None:
    made = text_of(page(catalogue, "/?q=prepare+the+quarterly+statement+of+value+added+tax"))
    assert "Nothing served seems to fit; what comes nearest" in made
    assert "words in common" in made or "meaning of the whole task" in made


def test_without_a_task_all_skills_are_listed_by_name_and_filtered(catalogue: Catalogue) -> None:
    made = page(catalogue, "/")
    names = re.findall(r"<h3><a [^>]*>(\w+)", made)
    assert names == sorted(names)
    assert len(names) == 5
    risky = page(catalogue, "/?risk=none")
    assert 'name="risk" value="none" checked' in risky
    assert 'value="dir:' in page(catalogue, "/?source=dir").partition(" checked")[0].rpartition("<input")[2]
    assert HOSTILE_ID not in risky
    assert "nothing served has it" in page(catalogue, "/?licence=Nonesuch", 400)
    assert "on 5 pages" in page(catalogue, "/?q=bread&page=9", 400)


@pytest.mark.parametrize("percent", [100, 40, 1])
def test_what_is_marked_is_what_page_takes(catalogue: Catalogue, percent: int) -> None:
    budget = "" if percent == 100 else f"&budget={percent / 100}"
    found = ask_http(catalogue.server, f"/api/page?doc_id=bread&q=how+long%3F{budget}").json()
    made = page(catalogue, f"/skill?doc_id=bread&q=how+long%3F&percent={percent}")
    marked = re.findall(r'id="n(\d+)" class="node \w+ taken"', made)
    assert [f"local/market/bread#{n}" for n in marked] == [node["node_id"] for node in found["nodes"]]
    assert "taken in part" not in made  # each node of this skill is short
    assert f"{found['tokens']} of {found['document_tokens']} tokens" in text_of(made)
    headings = re.findall(r'<h\d class="taken">([^<]*)<', made)
    assert headings == [line.lstrip("# ") for line in found["context"].splitlines() if line.startswith("#")]


def test_a_skill_without_a_request_is_shown_whole_with_its_files_and_revisions(catalogue: Catalogue) -> None:
    made = page(catalogue, "/skill?doc_id=bread")
    assert "taken" not in made
    assert "three hours" in made
    assert 'href="/file?doc_id=local%2Fmarket%2Fbread&amp;path=notes.md"' in made
    revisions = text_of(page(catalogue, "/revisions?doc_id=bread"))
    assert "two hours" in revisions
    assert "+" in revisions
    assert "Use rye." in page(catalogue, "/file?doc_id=bread&path=notes.md")


def test_the_graph_names_each_node_and_counts_edges(catalogue: Catalogue) -> None:
    made = page(catalogue, "/graph?doc_id=bread")
    known = ask_http(catalogue.server, "/api/page?doc_id=bread&q=bake&budget=1000000").json()
    assert made.count('class="node ') - 6 == len(known["nodes"])  # six stand in the legend
    assert made.count('<path class="edge sequence') == len(known["nodes"])  # one stands in the legend


def test_the_state_of_sources_and_the_last_night_are_told(catalogue: Catalogue) -> None:
    assert "dir:" in text_of(page(catalogue, "/sources"))
    report = text_of(page(catalogue, "/report"))
    assert catalogue.root.served().version in report
    assert ask_http(catalogue.server, "/evaluation").status == 404
    catalogue.root.root.write("reports/evaluation.html", b"<p>An evaluation.")
    kept = ask_http(catalogue.server, "/evaluation")
    assert kept.body == b"<p>An evaluation."
    policy = kept.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; img-src data:")
    assert {"form-action 'none'", "base-uri 'none'", "sandbox"} <= set(policy.split("; "))
    assert 'href="/evaluation"' in page(catalogue, "/report")


def test_what_a_reader_wrote_is_shown_without_control_characters(catalogue: Catalogue) -> None:
    made = page(catalogue, "/?q=%1b%5b31m+bread+%e2%80%ae")
    assert "\x1b" not in made
    assert "\u202e" not in made
    assert "\\x1b[31m bread \\u202e" in made


def test_errors_are_pages_to_a_browser_and_json_to_programs(catalogue: Catalogue) -> None:
    made = text_of(page(catalogue, "/skill?doc_id=brea", 404))
    assert "no served document has the id 'brea'" in made
    assert ask_http(catalogue.server, "/skill?doc_id=brea").json()["status"] == 404
    assert ask_http(catalogue.server, "/api/skills/brea", accept="text/html").json()["status"] == 404
    assert "percent" in page(catalogue, "/skill?doc_id=bread&percent=101", 400)
    assert ask_http(catalogue.server, "/static/routes.py").status == 404


def test_hostile_fields_stand_as_text(catalogue: Catalogue) -> None:
    made = page(catalogue, f"/skill?doc_id={HOSTILE_ID}&q=tide")
    assert made.count("<script") == 1  # the page's own
    assert "\x1b" not in made
    assert "\u202e" not in made
    assert "<script>window.ran = 1; alert(1)</script>" in html.unescape(made)
    risks = text_of(made)
    assert "Risks were found" in risks
