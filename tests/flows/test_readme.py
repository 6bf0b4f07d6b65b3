"""README's example of `compose`: it is asked again, and answers as README shows it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support.command import Ask
from tests.support.paths import PROJECT
from tests.support.roots.skill_root import SkillRoot

README = (PROJECT / "README.md").read_text("utf-8")
DETAIL = (PROJECT / "flows/cli/README.md").read_text("utf-8")
(COMMAND,) = re.findall(r"^\.venv/bin/skillery (compose .*)$", README, re.MULTILINE)
(SHOWN,) = re.findall(r"^```\n( 1\. .*?)^```$", DETAIL, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def sample(shipped: SkillRoot) -> str:
    """Return a root that serves the skills that come with Skillery; no plan needs their nodes."""
    return str(shipped.root.folder)


def told(line: str) -> list[str]:
    """Return what a line of a step says that no weights decide."""
    return re.findall(r"^ ?\d+\. .*|^    (?:after [\d, ]+|local/\S+)$", line)


def test_the_example_answers_as_readme_shows_it(sample: str, ask: Ask) -> None:
    arguments = shlex.split(COMMAND)
    printed = ask(*arguments, "--root", sample)
    plan = json.loads(ask(*arguments, "--root", sample, "--json").stdout)
    assert printed.code == 0, printed.stderr
    lines = [[part for line in text.splitlines() for part in told(line)] for text in (SHOWN, printed.stdout)]
    assert lines[0] == lines[1]
    assert [step["doc_id"] for step in plan["steps"]] == re.findall(r"^    (local/\S+)$", SHOWN, re.MULTILINE)
    assert [step["after"] for step in plan["steps"]] == [[], [1]]


def test_the_example_can_be_drawn_and_has_pages(sample: str, ask: Ask, tmp_path: Path) -> None:
    out = tmp_path / "plan.mmd"
    arguments = [*shlex.split(COMMAND), "--out", str(out), "--pages", "0.3"]
    plan = json.loads(ask(*arguments, "--root", sample, "--json").stdout)
    for step in plan["steps"]:
        assert 0 < step["page"]["tokens"] <= 0.3 * step["page"]["document_tokens"]
        assert step["doc_id"] in out.read_text("utf-8")


def test_the_lines_of_python_run(
    sample: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (lines,) = re.findall(r"^<!-- python -->\n```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert lines.count("\n") <= 10
    monkeypatch.chdir(Path(sample).parent)
    (Path(sample).parent / "data").symlink_to(sample)
    exec(compile(lines, "README.md", "exec"), {})  # noqa: S102 (our own)
    printed = capsys.readouterr().out
    assert "local/marketplace/data/csv-cleaning" in printed
    assert "compost" in printed


def test_readme_is_short() -> None:
    assert README.count("\n") < 150
