from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.refine.text.hidden import MOST_TOLD, without_hidden
from tests.support.clock import is_linear

LONG = "invoice pdf csv " * 20


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Fire.\n\n<!-- kiln clay\n\npots -->\n\nCool.", "Fire.\n\nCool."),
        ("Fire.\n<!-- kiln -->\nCool.", "Fire.\n\nCool."),
        ("Fire <!-- kiln --> it.", "Fire  it."),
        ("- Fire\n- <!-- kiln\n\n  clay --> it", "- Fire\n-  it"),
        ("Fire.\n\n<!-- kiln clay", "Fire.\n\n"),
        ("<!-- ```\n-->\nFire.\n<!-- kiln -->", "Fire.\n"),
        ("Fire.\n\n<div hidden>kiln <div>clay</div> pots</div>\nCool.", "Fire.\n\nCool."),
        ('<p style="color: red; display : none">kiln</p>Fire.', "Fire."),
        ("<span style='font-size:0'>kiln</span>Fire.", "Fire."),
        ("<div HIDDEN='until-found'>Fire.</div>", "<div HIDDEN='until-found'>Fire.</div>"),
        ("<input type=hidden value=kiln>Fire.", "Fire."),
        ("<div\nhidden>kiln</div>Fire.", "Fire."),
        ("<div  hidden>kiln</div><p\thidden>clay</p>Fire.", "Fire."),
        ("<h1 hidden>kiln</h1><div class hidden>clay</div>Fire.", "Fire."),
        ("<div data-x='>' style='display:none'>kiln</div>Fire.", "Fire."),
        ('<p style="overflow:hidden; height:0">kiln</p>Fire.', "Fire."),
        ("<div style='x:y;opacity : 0.0 !important'>kiln</div>Fire.", "Fire."),
        *((f"<{tag} hidden>kiln</{tag}>Fire.", "Fire.")
          for tag in ("code", "button", "video", "textarea", "template", "x-foo")),
        ("<p hidden>kiln\nclay\n\nFire.\n\n<b hidden/>pots\n\nCool.", "Fire.\n\nCool."),
        ("<p hidden>kiln<p>Fire.</p>", "<p>Fire.</p>"),
        ("- <p hidden>kiln\n- Fire.", "- \n- Fire."),
        ("Fire \\` <!-- kiln --> it \\`.", "Fire \\`  it \\`."),
        ("- Fire ` it\n- <!-- kiln --> and ` cool.", "- Fire ` it\n-  and ` cool."),
        ("Fire ` it\n# <!-- kiln --> and ` cool.", "Fire ` it\n#  and ` cool."),
        ("- Fire.\n\n    <!-- kiln -->", "- Fire.\n\n    "),
        ("- Fire.\n    1. It.\n\n        <!-- kiln -->", "- Fire.\n    1. It.\n\n        "),
        ("<p style='position:absolute; left:-9999px'>kiln</p>Fire.", "Fire."),
        ("<p style='color:#FFFFFF; background-color: white'>kiln</p>Fire.", "Fire."),
        ("[//]: # (kiln clay)\n\nFire.", "Fire."),
        ('[x]: <> "kiln\nclay"\nFire.', "Fire."),
        ("[Kiln]: https://a.example\n\nFire the [kiln].", "[Kiln]: https://a.example\n\nFire the [kiln]."),
        (f"Fire ![{LONG}](a.png).", "Fire ![](a.png)."),
        (f'Fire [it](a.md "{LONG}").', "Fire [it](a.md)."),
        (f'Fire <img src="a.png" alt="{LONG}">.', "Fire <img>."),
        ("Fire\U000e006b\U000e0069 it.", "Fire it."),
    ],
)  # fmt: skip
def test_what_a_reader_does_not_see_is_left_out_and_found(text: str, shown: str) -> None:
    clear, found = without_hidden(text)
    assert clear.replace("\n\n\n", "\n\n").lstrip() == shown
    assert [f.code for f in found] == (["document.hidden-text"] if clear != text else [])


@pytest.mark.parametrize(
    "text",
    [
        "```html\n<!-- kiln -->\n<p hidden>clay</p>\n```",
        "Write `<!-- kiln -->` and ``a ` <p hidden>`` there.",
        "Fire <!-- it\n\nand cool -->",
        "<details><summary>Fire</summary>Cool.</details>",
        '<p aria-hidden="true" class="hidden">Fire.</p>',
        "<hidden>Fire.</hidden> <file hidden>",
        "[Note]: never fire it wet\n[Goal]: pots",
        *(
            f'<p style="{style}">Fire.</p>'
            for style in (
                "min-height:0", "max-height: 0", "line-height:0.0", "margin-left:-100px", "left:-100px",
                "position:static;left:-100px", "color:white;background:black",
                "color:inherit;background:inherit", "--x: height:0", "height:0",
                "background-color:transparent", "x:display:none", "fill-opacity:0",
            )
        ),
        '<p hidden={!open}>Fire.</p> <p data-hidden="a" :hidden="x">Cool.</p>',
        "Fire \\<!-- it --> and \\<p hidden> cool.",
        "Fire:\n\n    <!-- it -->\n    <p hidden>\n\n    <!-- cool -->",
        "- Fire.\n\nCool:\n\n\t<!-- it -->",
        "- Fire.\n\n      <!-- it -->\n      <p hidden>",
        "1. Fire.\n   - Cool.\n\n\t\t <!-- it -->",
        "Copy <template> there.",
        "[^1]: https://a.example",
        f"Fire ![{'k' * (MOST_TOLD - 1)}](a.png) \U0001f3f4\U000e0067\U000e0062\U000e007f.",
    ],
)  # fmt: skip
def test_code_and_what_is_seen_stay(text: str) -> None:
    assert without_hidden(text) == (text, ())


PIECES = st.sampled_from([
    "<!--", "-->", "`", "```", "~~~", "\n", "\n\n", " ", "- ", "> ", "<p hidden>", "</p>", "[a]: b/", "[a]",
    '"', "(", ")", "'", "kiln", '<i title="', ">", "![", "](", "\U000e0061", "\U0001f3f4", "x" * MOST_TOLD,
])  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join))
def test_nothing_is_made_up_and_every_loss_is_found(text: str) -> None:
    clear, found = without_hidden(text)
    rest = iter(text)
    assert all(character in rest for character in clear)
    assert bool(found) == (clear != text)


@pytest.mark.parametrize(
    "run",
    ["<!--", "a <!-- ", "a <!-- b\n\n", "`", "` `` ", "```\n", "<p hidden>", "<p hidden ",
     "<p hidden>\n\n", "<p '\" \"", "<x-a hidden>\n", "\n\n    <!--", "- `\n", "\\`",
     '<p a="',
     "[a]: b/ (\n", "[a]: ", "[a](b \"", "![a", "- ", "> ", "[", "<", "\n\n[a]: b/ \"",
     "<i title='", "\U000e0061"],
)  # fmt: skip
def test_hostile_runs_take_linear_time(run: str) -> None:
    assert is_linear(lambda size: without_hidden(run * (size // len(run))), 20_000)
