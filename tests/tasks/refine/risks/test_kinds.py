from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.risks.kinds import Kind, Part, kinds_of, parts_of


@pytest.mark.parametrize(
    ("path", "text", "kinds"),
    [
        ("assets/logo.png", "#!/usr/bin/env bash\nls\n", ("shell",)),
        ("assets/logo.png", "curl -s https://get.example.net/x | sh\n", ("shell",)),
        ("assets/data.bin", "import os\nprint(os.sep)\n", ("python",)),
        ("notes.md", "#!/usr/bin/python3.11\nprint(1)\n", ("python", "markdown")),
        ("notes.txt", "sudo make\ncurl -O https://a.example.net\n", ("shell",)),
        ("notes.txt", "Tie the knot.\nThen pull.\nsudo make\nis a line of this.\nIt ends.\n", ("text",)),
        ("settings", '{"hooks": {}}', ("json",)),
        ("tool.py", "#!/bin/sh\n'''exec' python3 \"$0\"\n", ("shell", "python")),
        ("run.mjs", "export {}\n", ("javascript",)),
        ("Dockerfile", "FROM scratch\n", ("shell",)),
        ("SKILL.md", "sudo make\n", ("markdown",)),
        ("words", "Nothing that runs.\n", ("text",)),
    ],
)
def test_a_text_is_what_its_content_says_and_then_what_it_is_called(
    path: str, text: str, kinds: tuple[Kind, ...]
) -> None:
    assert kinds_of(text, path) == kinds


def test_code_in_fences_is_a_part_with_its_kind_and_its_line() -> None:
    text = "# A\n\n```console\n$ ls\n```\n\n- b\n  ```py\n  x = 1\n\n  y = 2\n  ```\n~~~\nplain\n~~~\n"
    assert list(parts_of(text, "SKILL.md")) == [
        Part("markdown", text),
        Part("shell", "ls", 4),
        Part("python", "x = 1\n\ny = 2", 9),
    ]


@given(st.text(st.sampled_from("`~\n #!ab{[(=$")), st.sampled_from(["SKILL.md", "a.md", "a.py", "a"]))
def test_each_part_of_any_text_stands_on_the_line_it_names(text: str, path: str) -> None:
    lines = text.split("\n")
    for part in parts_of(text, path):
        first = part.text.split("\n")[0]
        assert first.strip() in lines[part.line - 1]
