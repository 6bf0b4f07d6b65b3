from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.frontmatter.frontmatter import MAX_FRONTMATTER_CHARS, parse_frontmatter
from tasks.refine.text.strict_yaml import Value

YAML_PIECES = st.sampled_from([
    "---", "\n---\n", "...", "\n", "\r\n", "\ufeff", "name: kiln", "description:", " |", " >-", ": ", "- ",
    "  ", "\t", "&a ", "*a", "{", "}", "[", "]", '"', "'", "\\", "#", "# Kiln", "```", "\x00", "\ud800",
    "é", "!!x ",
])  # fmt: skip


def codes(text: str) -> list[str]:
    return [found.code for found in parse_frontmatter(text).findings]


@given(st.one_of(st.text(), st.lists(YAML_PIECES, max_size=40).map("".join)))
def test_no_text_whatever_makes_it_raise(text: str) -> None:
    left = iter(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    assert all(c in left for c in parse_frontmatter(text).body.replace("\n", ""))


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.from_regex(r"[a-z ]{0,20}[a-z]", fullmatch=True)
    )
)
def test_plain_fields_come_back_without_a_finding(written: dict[str, str]) -> None:
    block = "".join(f'{key}: "{value}"\n' for key, value in written.items())
    front = parse_frontmatter(f"---\n{block}---\nBody.")
    assert front.fields == written
    assert front.body == "Body."
    assert [found.code for found in front.findings] == ([] if written else ["frontmatter.empty"])


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("\ufeff---\nname: kiln\n---\nFire it.", "Fire it."),
        ("\n  \n---\nname: kiln\n---\nFire it.", "Fire it."),
        ("---  \nname: kiln\n...\nFire it.", "Fire it."),
        ("---\r\nname: kiln\r\n---\r\nFire it.\r\n", "Fire it.\n"),
        ("---\nname: kiln\n---", ""),
        *(
            (f"---\nname: kiln\n---\n{body}", body)
            for body in (
                "---\n\nFire it.\n\n---\n",
                "---\nnote: between rules\n---\nFire it.",
                "---\nname: x\n\nFire it.",
                "# Fire it\n\n**Name:** oven\n\nname: oven\n",
            )
        ),
    ],
    ids=[
        "byte-order mark", "blank lines before", "dots close", "CR LF", "nothing after",
        "prose between rules", "no key of the specification", "unclosed", "fields of the body",
    ],
)  # fmt: skip
def test_the_marks_are_found_and_the_body_stays_whole(text: str, body: str) -> None:
    front = parse_frontmatter(text)
    assert (front.fields, front.body, front.findings) == ({"name": "kiln"}, body, ())


WELL_FORMED = (
    "description: Use when: cold\nlicense: 'Ann''s own'\ncompatibility: |\n  gas: kilns\n\n  wood\n"
    "allowed-tools: [Read, Write]\nmetadata:\n\tauthor: ann: b"
)


@pytest.mark.parametrize(
    ("block", "fields", "found"),
    [
        (
            "version: 1.10\nretired: no\nsince: 2024-01-02\ntags: [clay, 3]\nmetadata:\n  level: 7",
            {"version": "1.10", "retired": "no", "since": "2024-01-02", "tags": ["clay", "3"],
             "metadata": {"level": "7"}},
            [],
        ),
        *((f"description: {null}", {"description": ""}, []) for null in ("", "~", "null", "Null")),
        ("description: cones --- and shelves", {"description": "cones --- and shelves"}, []),
        ('description: "---"', {"description": "---"}, []),
        ("description: |\n  above\n  ---\n  below", {"description": "above\n---\nbelow\n"}, []),
        (
            WELL_FORMED,
            {"description": "Use when: cold", "license": "Ann's own", "compatibility": "gas: kilns\n\nwood\n",
             "allowed-tools": ["Read", "Write"], "metadata": {"author": "ann: b"}},
            ["requoted"],
        ),
        *(
            (f"description: {indicator} Use when the kiln is cold.\n  And dry.",
             {"description": "Use when the kiln is cold. And dry."}, ["requoted", "block-indicator"])
            for indicator in ("|", ">", "|-", ">+", "|2")
        ),
        (
            "}{\ndescription: > Fires clay\nand glass.\n  - x: y: z\nmetadata:\n - a\n b: c",
            {"name": "kiln }{", "description": "Fires clay and glass. - x: y: z", "metadata": "- a b: c"},
            ["lines", "block-indicator"],
        ),
        ("name: oven", {"name": "oven"}, ["duplicate-key"]),
    ],
)  # fmt: skip
def test_a_block_is_read_as_strict_yaml_then_with_its_values_quoted_then_as_text(
    block: str, fields: dict[str, Value], found: list[str]
) -> None:
    text = f"---\nname: kiln\n{block}\n---\nFire it."
    front = parse_frontmatter(text)
    assert (front.fields, front.body) == ({"name": "kiln", **fields}, "Fire it.")
    assert codes(text) == [f"frontmatter.{code}" for code in found]


@pytest.mark.parametrize(
    ("line", "description"),
    [
        ("description:Fires clay", "Fires clay"),
        ("description: Fires clay. Use when: the kiln is cold", "Fires clay. Use when: the kiln is cold"),
        ("description: [Studio] Fires clay", "[Studio] Fires clay"),
        ("description: **Bold** words first", "**Bold** words first"),
        ("description: @kiln/core guide", "@kiln/core guide"),
        ("description: `kiln` at work", "`kiln` at work"),
        ("description: - Fires clay", "- Fires clay"),
        ("description: {{APP}} helper", "{{APP}} helper"),
        ("description: 100% hot: \"really\" \\ hot", '100% hot: "really" \\ hot'),
        ('description: "Fires" clay', '"Fires" clay'),
        ("description: Fires: clay\n  and: glass", "Fires: clay and: glass"),
        ("description: Fires: clay # and glass", "Fires: clay # and glass"),
    ],
)  # fmt: skip
def test_a_value_that_strict_yaml_refuses_is_quoted_and_read_whole(line: str, description: str) -> None:
    text = f"---\nname: kiln\n{line}\nmetadata:\n  author: ann\n---\nFire it."
    front = parse_frontmatter(text)
    assert front.fields == {"name": "kiln", "description": description, "metadata": {"author": "ann"}}
    assert codes(text) == ["frontmatter.requoted"]


def test_the_finding_says_what_strict_yaml_disliked_and_where() -> None:
    (found,) = parse_frontmatter("---\nname: kiln\ndescription: a: b\n---\nx").findings
    assert "line 2" in found.message


@pytest.mark.parametrize(
    ("line", "description", "found"),
    [
        ("description: Fire batch #12 again", "Fire batch #12 again", ["frontmatter.comment"]),
        ("description: Fire #a and #b", "Fire #a and #b", ["frontmatter.comment"]),
        ("description: Fire it # by night", "Fire it", []),
        ("description: Fire it ## by night", "Fire it", []),
        ("description: Fire it #", "Fire it", []),
        ('description: "Fire it" #12', "Fire it", []),
        ("description: Fire#12", "Fire#12", []),
        ("description: |\n  Fire #12", "Fire #12", []),
    ],
)
def test_a_number_after_a_hash_belongs_to_its_description(
    line: str, description: str, found: list[str]
) -> None:
    text = f"---\nname: kiln\n{line}\n---\nFire it."
    assert str(parse_frontmatter(text).fields["description"]).rstrip() == description
    assert codes(text) == found


@pytest.mark.timeout(5)
@pytest.mark.parametrize("line", ["> name: a\n", ">  name: a\n\n", "     ===\n> name: a\n"])
def test_lines_that_could_begin_a_block_are_not_each_read_on_from(line: str) -> None:
    assert not parse_frontmatter(line * 7_000).fields


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(
            (text, "missing")
            for text in ("Fire it.", "", "# Kiln\n\n---\nnote: x\n---\n", "---- \nx", "---\nJust a rule.")
        ),
        *(
            (f"---\n{block}\n---\nFire it.", "not-mapping")
            for block in ("Some prose between two rules.", "- a\n- b", "Odd: prose: here: [", "1: [")
        ),
    ],
)
def test_what_is_no_front_matter_stays_in_the_body(text: str, code: str) -> None:
    front = parse_frontmatter(text)
    assert (front.fields, front.body) == ({}, text)
    assert codes(text) == [f"frontmatter.{code}"]


@pytest.mark.parametrize("block", ["", "\n\n", "# only a remark\n"])
def test_empty_front_matter_is_a_finding(block: str) -> None:
    text = f"---\n{block}---\nFire it."
    assert parse_frontmatter(text).body == "Fire it."
    assert codes(text) == ["frontmatter.empty"]


@pytest.mark.parametrize(
    "rest",
    ["\n# Kiln\n\nFire it.", "# Kiln\n\nFire it.", "\nFire it slowly.\n\n---\n\nThen cool it."],
    ids=["blank line", "heading at once", "a rule further down"],
)
def test_unclosed_front_matter_ends_where_it_stops_to_look_like_it(rest: str) -> None:
    text = f"---\nname: kiln\ndescription: Fires: clay\ntags:\n- hot\n{rest}"
    front = parse_frontmatter(text)
    assert front.fields == {"name": "kiln", "description": "Fires: clay", "tags": ["hot"]}
    assert front.body == rest
    assert codes(text) == ["frontmatter.unclosed", "frontmatter.requoted"]


def test_a_second_front_matter_is_the_authors_and_overrides_the_first() -> None:
    theirs = "---\nname: kiln\ndescription: name: kiln\n---\n\n"
    text = f"{theirs}---\nname: kiln\ndescription: Fires clay.\n---\nFire it."
    front = parse_frontmatter(text)
    assert (front.fields, front.body) == ({"name": "kiln", "description": "Fires clay."}, "Fire it.")
    assert codes(text) == ["frontmatter.requoted", "frontmatter.nested"]


def test_aliases_cannot_multiply() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    front = parse_frontmatter("---\nname: bomb\n" + "\n".join(levels) + "\n---\nx")
    assert front.fields["name"] == "bomb"
    assert len(str(front.fields)) < 2_000


@pytest.mark.timeout(20)
@pytest.mark.parametrize("field", [f"description: {{{': ' * 30_000}", f"metadata: {'[' * 60_000}"])
def test_brackets_that_never_close_are_no_structure_and_cost_no_time(field: str) -> None:
    text = f"---\nname: deep\n{field}\n---\nx"
    assert parse_frontmatter(text).fields["name"] == "deep"
    assert codes(text) == ["frontmatter.requoted"]


def test_front_matter_over_the_limit_is_read_by_lines_up_to_it() -> None:
    padding = "\n".join(f"k{i}: {'v' * 80}" for i in range(MAX_FRONTMATTER_CHARS // 80))
    text = f"---\nname: big\n{padding}\nlate: x\n---\nFire it."
    front = parse_frontmatter(text)
    assert front.fields["name"] == "big"
    assert "late" not in front.fields
    assert front.body == "Fire it."
    assert codes(text) == ["frontmatter.too-large"]


KILN = "name: kiln\ndescription: Fires clay.\nlicense: MIT\n"
BODY = "# Fire it\n\nSlowly.\n"
FENCED = f"---\n{KILN}---\n{BODY}"
SAID = {"name": "kiln", "description": "Fires clay.", "license": "MIT", "metadata": {"tags": ["a", "b"]}}
JSON, LONG_JSON = json.dumps(SAID), json.dumps(SAID, indent=2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"<!-- generated,\n do not edit -->\n{FENCED}", "displaced"),
        (f"# Kiln\n\n> A copy.\n\n{FENCED}", "displaced"),
        (f"Kiln firing\n===\n{FENCED}", "displaced"),
        (f"[![build](a.svg)](b)\n\ufeff{FENCED}", "displaced"),
        (f"# Kiln\n{KILN}---\n{BODY}", "marks"),
        (f"{KILN}\n{BODY}", "marks"),
        (f"<!--\n{KILN}-->\n{BODY}", "marks"),
        (f"> name: kiln\n> description: Fires clay.\n> license: MIT\n\n{BODY}", "marks"),
        (f"```yaml\n{KILN}```\n{BODY}", "marks"),
        (f"```yaml\n---\n{KILN}---\n```\n{BODY}", "marks"),
        (f"```markdown\n{FENCED}```\n", "marks"),
        (f"# Kiln\n\n```yaml\n{KILN}```\n\n{BODY}", "marks"),
        (f"+++\n{KILN}+++\n{BODY}", "marks"),
        (f'+++\nname = "kiln"\ndescription = "Fires clay."\nlicense = "MIT"\n[a]\n+++\n{BODY}', "marks"),
        (f"+++\nname = kiln\ndescription = Fires clay.\nlicense = MIT\n+++\n{BODY}", "marks"),
        (f"——\n{KILN}——\n{BODY}", "marks"),
        (f"---\n{KILN}----\n{BODY}", "marks"),
        (f"# Kiln\n\n**Name:** kiln\n**Description:** Fires clay.\n**License:** MIT\n\n{BODY}", "marks"),
        (f"- **name**: kiln\n- **description**: Fires clay.\n- **license**: MIT\n\n---\n{BODY}", "marks"),
        (f"---\n**name:** kiln\n`description`: Fires clay.\n**license: MIT**\n---\n{BODY}", "requoted"),
        (f"---\n- name: kiln\n- description: Fires clay.\n- license: MIT\n---\n{BODY}", "requoted"),
        (f"---\nname：kiln\ndescription： Fires clay.\nlicense:\u00a0MIT\n---\n{BODY}", "requoted"),
        (f"---\nname: kiln\n  description: Fires clay.\n  license: MIT\n---\n{BODY}", "requoted"),
        (f"---\n name: kiln\ndescription: Fires clay.\n\tlicense: MIT\n---\n{BODY}", "requoted"),
        (f"---\nname: kiln\ndescription:\nFires clay.\nlicense: MIT\n---\n{BODY}", "requoted"),
        (f"---\nname: “kiln”\ndescription: „Fires clay.“\nlicense: 'MIT’\n---\n{BODY}", "quotes"),
        (f"---\n“name”: “kiln”\ndescription: \"Fires clay.\nlicense: **MIT**\n---\n{BODY}", "quotes"),
        (f"---\nNAME: kiln\nDescription: Fires clay.\nLicense: MIT\n---\n{BODY}", "key-spelling"),
        (f"---\nname: [kiln]\ndescription: Fires clay.\nlicense:\n- MIT\n---\n{BODY}", "list"),
        (f"---\n{KILN}description:\n---\n{BODY}", "duplicate-key"),
        (f"---\nname: kiln\n---\ndescription: Fires clay.\nlicense: MIT\n---\n{BODY}", "nested"),
        (f"---\n---\n{FENCED}", "nested"),
        (f"---\nname: kiln\n\ndescription: Fires clay.\n\nlicense: MIT\n\n{BODY}", "unclosed"),
        ("<!--\n" + "Licensed to all.\n" * 900 + f"-->\n<!-- kiln -->\n{FENCED}", "displaced"),
        ("# Licensed to all.\n" * 900 + f"# Kiln:\n{FENCED}", "displaced"),
        (f"--- {KILN}---\n{BODY}", "marks"),
        (f"--- # of a skill\n{KILN}---\n{BODY}", "marks"),
        (f"```json\n{JSON}\n```\n{BODY}", "marks"),
        (f"# Kiln\n\n```json\n{LONG_JSON}\n```\n{BODY}", "marks"),
        (f"{JSON}\n{BODY}", "marks"),
        (f"{LONG_JSON}\n\n{BODY}", "marks"),
        (f"| |\n|-|-|\n| **Name** | `kiln` |\n|Description|Fires clay.|\n|License|MIT|\n\n{BODY}", "marks"),
        (f"|Field|Value|\n|-|-|\n|name|kiln|\n|description|Fires clay.|\n|license|MIT|\n\n{BODY}", "marks"),
        (f"# Kiln\n\n| name | description | license |\n|-|-|-|\n| kiln |Fires clay.|MIT|\n{BODY}", "marks"),
    ],
)  # fmt: skip
def test_what_the_author_plainly_meant_is_read_and_each_repair_found(text: str, code: str) -> None:
    front = parse_frontmatter(text)
    assert [front.fields.get(key) for key in SAID][:3] == ["kiln", "Fires clay.", "MIT"]
    assert (f"frontmatter.{code}" in codes(text), "Field" in front.fields) == (True, False)
    assert front.body.rstrip().endswith(BODY.rstrip())
    assert "Fires clay" not in front.body


@pytest.mark.parametrize(
    ("lines", "description"),
    [
        ("Fires clay.\n\n  Keywords: cone, shelf", "Fires clay.\nKeywords: cone, shelf"),
        ("Fires clay.\n\nUse it: when cold.", "Fires clay.\nUse it: when cold."),
        ("|\nFires clay.\nNote: slowly.", "Fires clay.\nNote: slowly.\n"),
        (">\n    Fires clay.\n  Note: slowly.", "  Fires clay.\nNote: slowly.\n"),
        ("|-\n  Fires clay.\n\nNot glass.", "Fires clay.\n\nNot glass."),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_description_that_goes_on_below_is_read_whole(lines: str, description: str, last: bool) -> None:
    fields = [f"description: {lines}\n", "license: MIT\n"]
    front = parse_frontmatter(f"---\nname: kiln\n{''.join(reversed(fields) if last else fields)}---\n{BODY}")
    assert front.fields == {"name": "kiln", "description": description, "license": "MIT"}
    assert front.body == BODY


@pytest.mark.parametrize(
    "text",
    [
        f"# Skills\n\nWrite it so:\n\n{FENCED}",
        f"# Skills\n\n```yaml\n{KILN}```\n\nThen fire it.",
        "# Kiln\n\n**Description:** Fires clay.\n\nMore.\n",
        "# Kiln\n\n---\n\nName: it is so.\n\nFire it.\n\n---\n",
        "Name: kiln is a word.\n\nFire it.\n",
        f"> Write it so:\n\n{FENCED}",
        f"# Package\n\n{KILN}version: 1\n\nFire it.\n",
        "# Package\n\nname: kiln\n\n---\n\nFire it.\n",
        "Name: Bob\n\n---\n\nHe fires it.\n",
        f'--- "Fire it."\n\nSlowly.\n\n{KILN}---\n\nFire it.\n',
        "# Kiln\n\n---\n\n[Clay](x) is wet.\n\nname: it is so.\n\n---\n\nFire it.\n",
        "# Kiln\n\n---\n\nx = 1 is cold.\n\nname: it is so.\n\n---\n\nFire it.\n",
        f'+++\nname = "kiln"\na = {"[" * 5_000}\n+++\nFire it.\n',
        f"# Package\n\n```json\n{JSON}\n```\n\nFire it.\n",
        f"# Package\n\n{JSON}\n\nFire it.\n",
        "# Options\n\n| name | description |\n|---|---|\n| kiln | Fires clay. |\n\nFire it.\n",
        "| name | description |\n|---|---|\n| kiln | Fires clay. |\n| oven | Bakes. |\n\nFire it.\n",
    ],
)
def test_text_of_the_body_is_taken_for_no_field(text: str) -> None:
    front = parse_frontmatter(text)
    assert (front.fields, front.body) == ({}, text)
