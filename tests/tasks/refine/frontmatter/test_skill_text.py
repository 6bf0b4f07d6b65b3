from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.schemas import BundledFile, Finding
from tasks.refine.frontmatter.skill_text import (
    MAX_DESCRIPTION_CHARS,
    description_of,
    first_prose,
    folder_of,
    name_of,
)
from tasks.refine.frontmatter.spec_findings import (
    allowed_tools,
    on_body,
    on_description,
    on_fields,
    on_links,
    on_offering,
    relative_links,
)
from tasks.refine.text.strict_yaml import Value


@pytest.mark.parametrize(
    ("doc_id", "path", "folder"),
    [
        ("ann/pots/skills/kiln", "skills/kiln/SKILL.md", "kiln"),
        ("ann/pots/skills/kiln", "skills/kiln", "kiln"),
        ("ann/pots/skills/kiln", "skills\\kiln\\skill.md", "kiln"),
        ("ann/pots", "SKILL.md", "pots"),
        ("ann/pots", ".", "pots"),
        ("ann/pots/kiln", None, "kiln"),
        ("ann--pots--kiln", None, "kiln"),
        ("ann--", None, "ann--"),
    ],
)
def test_the_folder_comes_from_the_path_else_from_the_id(doc_id: str, path: str | None, folder: str) -> None:
    assert folder_of(doc_id, path) == folder


@pytest.mark.parametrize(
    ("value", "name", "codes"),
    [
        ("kiln-2", "kiln-2", []),
        ("töpferei", "töpferei", ["name.not-ascii"]),
        ("技能", "技能", ["name.not-ascii"]),
        ("Kiln", "Kiln", ["name.pattern"]),
        ("kiln--fire", "kiln--fire", ["name.pattern"]),
        ("-kiln", "-kiln", ["name.pattern"]),
        (" Kiln\n fire\x00 ", "Kiln fire", ["name.pattern"]),
        ("k" * 64, "k" * 64, []),
        ("k" * 65, "k" * 65, ["name.too-long"]),
        *((value, None, ["name.missing"]) for value in (None, "", " \n", ["kiln"], {"kiln": "x"})),
    ],
)
def test_a_name_is_kept_on_one_line_and_judged_or_inferred_from_the_folder(
    value: Value | None, name: str | None, codes: list[str]
) -> None:
    kept, inferred, found = name_of(value, name or "oven")
    assert (kept, inferred) == (name or "oven", name is None)
    assert [f.code for f in found] == codes
    if name:
        other = name_of(value, "oven")[2][-1]
        assert (other.code, other.message) == ("name.folder", f"{name!r} in folder 'oven'")


SENTENCE = "Fire the pots slowly over two days."


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"# Kiln\n\n{SENTENCE}\n\nMore about glazes follows here.", SENTENCE),
        (f"Kiln\n====\n{SENTENCE}", SENTENCE),
        (f"```sh\nkiln --all of the pots.\n```\n{SENTENCE}", SENTENCE),
        (f"- check the cones and shelves first.\n\n{SENTENCE}", SENTENCE),
        (f"> A potter once said so to me.\n\n{SENTENCE}", SENTENCE),
        (f"| cone | heat |\n|---|---|\n\n{SENTENCE}", SENTENCE),
        (f"<!-- a remark for the editor. -->\n\n{SENTENCE}", SENTENCE),
        (f"Use this whenever you have:\n- wet pots of any kind.\n- dry pots.\n\n{SENTENCE}", SENTENCE),
        (f"**Last fired**: 2024-01-02\n\n{SENTENCE}", SENTENCE),
        ("**Fire** the [pots](https://example.org/pots) `slowly`\nover __two__ *days*.", SENTENCE),
        ("# Kiln\n\n- Check the cones before firing", "Check the cones before firing"),
        ("Use it for:\n- cups\n- bowls", "Use it for: cups bowls"),
        ("# Kiln\n\n```\nfire --now\n```", "Kiln fire --now"),
        ("# Kiln\n\nHot.", "Kiln Hot."),
        ("***\n\n---", ""),
        ("Keep `_id` and `a_b` and 2 * 3 * 4 as they are.", "Keep _id and a_b and 2 * 3 * 4 as they are."),
        ("把陶器慢慢地烧制两天，直到全部完成为止，不要着急打开。",) * 2,
    ],
    ids=[
        "heading", "underlined", "code", "list", "quote", "table", "comment", "lead-in", "label", "markup",
        "only a list", "lead-in with its list", "only code", "short", "no letter", "not markup", "Chinese",
    ],
)  # fmt: skip
def test_the_first_prose_or_the_next_best_text_is_found_and_made_plain(body: str, expected: str) -> None:
    assert first_prose(body) == expected


def test_an_inferred_description_is_cut_at_a_words_end() -> None:
    text = first_prose("kiln " * 400)
    assert len(text) <= MAX_DESCRIPTION_CHARS
    assert set(text.split()) == {"kiln"}
    assert len(first_prose("窯" * 3_000)) == MAX_DESCRIPTION_CHARS


@given(st.text())
def test_an_inferred_description_is_one_line_within_the_limit(body: str) -> None:
    text = first_prose(body)
    assert len(text) <= MAX_DESCRIPTION_CHARS
    assert text == " ".join(text.split())


LONG = "clay " * 300 + "end"
BOILERPLATE = "Use when this capability is needed."


@pytest.mark.parametrize(
    ("value", "expected", "codes"),
    [
        (["Fires clay.", "Cools it."], "Fires clay., Cools it.", ["description.not-text"]),
        ({"Use when": "cold", "not": ["hot"]}, "Use when: cold; not: hot", ["description.not-text"]),
        (LONG, LONG, ["description.too-long"]),
        *((value, None, ["description.missing"]) for value in (None, "", " \n")),
        ([], None, ["description.not-text", "description.missing"]),
        (BOILERPLATE, None, ["boilerplate.removed", "description.missing"]),
    ],
)
def test_a_description_is_joined_and_never_cut_or_inferred(
    value: Value | None, expected: str | None, codes: list[str]
) -> None:
    text, inferred, found = description_of(value, SENTENCE)
    assert (text, inferred) == (expected or SENTENCE, expected is None)
    assert [f.code for f in found] == codes


@pytest.mark.parametrize(
    ("value", "tools", "codes"),
    [
        ("Read Bash(git add:*)", ("Read", "Bash(git add:*)"), []),
        ("Read, Bash(git:*),Read", ("Read", "Bash(git:*)"), ["tools.comma"]),
        ("Bash(a, b) Read", ("Bash(a, b)", "Read"), []),
        (["Read", "Bash(npm run x)"], ("Read", "Bash(npm run x)"), ["tools.list"]),
        (["Read", {"a": "b"}], ("Read",), ["tools.list", "tools.not-text"]),
        ({"a": "b"}, (), ["tools.not-text"]),
        ("Bash(unclosed a b", ("Bash(unclosed a b",), []),
        ("", (), []),
        (None, (), []),
    ],
)
def test_tools_are_read_in_each_spelling(
    value: Value | None, tools: tuple[str, ...], codes: list[str]
) -> None:
    named, found = allowed_tools(value)
    assert named == tools
    assert [f.code for f in found] == [*(["tools.declared"] if tools else []), *codes]
    assert not tools or found[0].message == " ".join(tools)


def described(description: str) -> tuple[Finding, ...]:
    return on_description(description, "clay firing")


@pytest.mark.parametrize(
    ("found", "codes"),
    [
        (on_fields({"name": "a", "license": "MIT"}), []),
        (on_fields({"zone": "a", "origin": "b"}), ["keys.unknown"]),
        (on_fields({"compatibility": "x" * 500}), []),
        (on_fields({"compatibility": "x" * 501}), ["compatibility.length"]),
        (on_fields({"compatibility": ""}), ["compatibility.length"]),
        (on_fields({"compatibility": ["x"]}), ["compatibility.not-text"]),
        (on_fields({"metadata": {"a": "b"}}), []),
        (on_fields({"metadata": {"a": ["b"]}}), ["metadata.nested"]),
        (on_fields({"metadata": "a"}), ["metadata.not-mapping"]),
        (on_fields({"allowed-tools": "a,b"}), ["tools.declared", "tools.comma"]),
        (on_fields({"disable-model-invocation": "True", "user-invocable": "false"}), []),
        # Who may be offered a skill.
        (on_offering({"disable-model-invocation": "True"}), ["offer.person-only"]),
        (on_offering({"metadata": {"internal": "yes"}}), ["offer.internal"]),
        (on_offering({"metadata": {"internal": ["true"]}, "disable-model-invocation": "false"}), []),
        (on_offering({"metadata": "internal: true", "user-invocable": "false"}), []),
        # A description that helps nobody to choose.
        (described("Fires clay in a kiln."), []),
        (described("This skill fires clay."), ["description.filler"]),
        (described("A skill for firing clay."), ["description.filler"]),
        (described("Guide to glazes."), ["description.filler"]),
        (described("This kiln is hot."), []),
        (described("Clay-Firing"), ["description.name-only"]),
        (described("Fires <b>clay</b>."), ["description.markup"]),
        (described("Fires clay at < 900 and > 800 degrees."), []),
        # A body beyond the advice.
        (on_body("x\n" * 499), []),
        (on_body("x\n" * 500), ["body.long"]),
        (on_body("clay " * 4_000), []),
        (on_body("clay " * 4_004), ["body.many-tokens"]),
        (on_body("粘土" * 3_400), ["body.many-tokens"]),
        (on_body("粘土" * 3_333), []),
        (on_body("```\nopen"), ["body.unbalanced-fence"]),
    ],
)
def test_fields_descriptions_and_bodies_are_judged_by_the_specification(
    found: tuple[Finding, ...], codes: list[str]
) -> None:
    assert [f.code for f in found] == codes


@pytest.mark.parametrize(
    ("body", "links"),
    [
        ("See [the cones](references/cones.md).", ("references/cones.md",)),
        ("![pot](./assets/pot.png 'a pot')", ("assets/pot.png",)),
        ("[a](<my notes.md>) and [b](my%20notes.md#top)", ("my notes.md",)),
        ("[list]: scripts/list.py 'title'", ("scripts/list.py",)),
        ("[a](cones.md?raw=1#x)", ("cones.md",)),
        ("[up](../oven/SKILL.md)", ("../oven/SKILL.md",)),
        ("[x](https://example.org/a.md) [y](#top) [z](/etc/a) [m](mailto:a@b)", ()),
        ("[x]({{path}}/a.md) [y](path/to/*.md) [z](...)", ()),
        ("`[x](a.md)` and\n```\n[y](b.md)\n```", ()),
        ("a [b] (c.md)", ()),
        ("", ()),
    ],
)
def test_links_to_files_are_read_outside_code(body: str, links: tuple[str, ...]) -> None:
    assert relative_links(body) == links


NINE = " ".join(f"[x](f{i}.md)" for i in range(9))
TWO = tuple(BundledFile(f"scripts/{name}.py", 1, "0") for name in ("fire", "cool"))


@pytest.mark.parametrize(
    ("body", "files", "nested", "expected"),
    [
        ("[a](scripts/fire.py) [b](x.py) [c](scripts/) [d](SKILL.md)", TWO, (), ("missing", "x.py")),
        ("[a](scripts/fire.py) [b](scripts/cool.py)", TWO, (), None),
        ("[a](b/w/SKILL.md) [b](b/w) [c](b) [d](b/w/x.md) [e](b/v)", (), ["b/w"], ("missing", "b/v")),
        ("[a](scripts/fire.py) [b](../oven.md)", None, (), ("outside", "../oven.md")),
        (NINE, (), (), ("missing", "f0.md, f1.md, f2.md, f3.md, f4.md and 4 more")),
    ],
    ids=["one lacks", "none lacks", "another skill's folder", "unknown bundle", "many lack"],
)  # fmt: skip
def test_a_link_out_of_the_folder_or_to_a_file_that_the_bundle_lacks_is_found(
    body: str, files: tuple[BundledFile, ...] | None, nested: list[str], expected: tuple[str, str] | None
) -> None:
    found = [(one.code, one.message) for one in on_links(body, files, nested)]
    assert found == ([(f"links.{expected[0]}", expected[1])] if expected else [])


@given(st.text(alphabet="[](){}<>`!#./ab\n: "))
def test_any_text_yields_normal_relative_paths(body: str) -> None:
    assert all(link and not link.startswith("/") for link in relative_links(body))
