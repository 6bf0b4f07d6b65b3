"""Markdown of third parties as HTML that runs nothing, loads nothing and hides no word."""

from __future__ import annotations

import functools
import html
import re
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from tasks.models.visible import visible
from tasks.refine.text.words import WORD

# The address of a bundled file by its path, None if there is none.
LinkTo = Callable[[str], str | None]

# Rendering takes time that grows faster than a text; what is longer stands as it was written.
_LONGEST, _MOST_CELLS = 8_000, 4_000
_SCHEMES = {"http", "https", "mailto"}
_TAGS = {
    "p", "ul", "ol", "li", "pre", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td", "h3", "h4",
    "h5", "h6", "a", "br", "code", "em", "s", "strong",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}
_NUMBER = re.compile(r"(?m)^[ \t>*+-]*\d+[.)](?=\s|$)")  # of a list item, which `start` holds
_TAG, _HREF = re.compile(r"<[^<>]*>"), re.compile(r'<a href="([^"]*)"')


class Rendered(NamedTuple):
    """A text as HTML; `inline` if it was one paragraph, which then can stand within another."""

    html: Markup
    inline: bool


def render(text: str, link_to: LinkTo) -> Rendered:
    """Return a text rendered as CommonMark with tables; headings in it begin at the third level.

    What an agent reads, a person sees: HTML, comments and character references stand as they were written,
    and a text of which rendering would drop a word comes as it is. So does one that is too long to render
    quickly. Images are links, and links lead to the web or to bundled files.
    """
    shown = visible(text, lines=True)
    if len(shown) > _LONGEST or _cells(shown) > _MOST_CELLS:
        return plain(shown)
    parser, env = _parser(), {"link_to": link_to}
    tokens = parser.parse(shown, env)
    inline = [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    made = parser.renderer.render(tokens[1].children or [] if inline else tokens, parser.options, env)
    clean = nh3.clean(
        made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )  # fmt: skip
    return Rendered(Markup(clean), inline) if _is_whole(shown, clean) else plain(shown)  # noqa: S704 (cleaned)


def plain(text: str) -> Rendered:
    """Return a text as it was written."""
    return Rendered(Markup("<pre>{}</pre>").format(visible(text, lines=True)), inline=False)


def _cells(text: str) -> int:
    """Return the most cells that a table of these lines would have, which short rows are filled up to."""
    pipes = [line.count("|") for line in text.split("\n")]
    return (max(pipes) + 1) * len(pipes) if any(pipes) else 0


def _is_whole(text: str, made: str) -> bool:
    """Tell whether HTML shows every word of a text, as often as it stands there."""
    addresses = " ".join(unquote(html.unescape(address)) for address in _HREF.findall(made))
    seen = Counter(WORD.findall(f"{html.unescape(_TAG.sub(' ', made))} {addresses}"))
    # An emphasis may end within a word, and an address hold one in another form.
    missing = Counter(WORD.findall(_NUMBER.sub("", text))) - seen
    joined = html.unescape(_TAG.sub("", made))
    return all(joined.count(word) + addresses.count(word) >= text.count(word) for word in missing)


def _address(href: str, link_to: LinkTo) -> str | None:
    """Return where a link may lead: to the web, or to a file of the skill."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return None
    if parts.scheme:
        return href if parts.scheme in _SCHEMES else None
    own = None if parts.netloc or not parts.path else link_to(unquote(parts.path))
    return f"{own}#{parts.fragment}" if own and parts.fragment else own


@functools.cache
def _parser() -> MarkdownIt:
    # Definitions, which leave nothing behind, stay paragraphs.
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["entity", "reference"])
    rules: dict[str, Callable[..., str]] = {
        "image": _image, "fence": _fence, "link_open": _open, "link_close": _close,
        "heading_open": _heading, "heading_close": _heading,
    }  # fmt: skip
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser


Env = MutableMapping[str, Any]


def _image(_: Any, tokens: Sequence[Token], place: int, __: Any, env: Env) -> str:  # noqa: ANN401 (the library's)
    """Return a link to an image, since a page loads nothing from elsewhere."""
    token = tokens[place]
    begin, end = _ends(token, "src", env["link_to"])
    return f"{begin}{Markup.escape(f'[image: {token.content}]')}{end}"


def _open(_: Any, tokens: Sequence[Token], place: int, __: Any, env: Env) -> str:  # noqa: ANN401 (the library's)
    token = tokens[place]
    begin, env["closing"] = _ends(token, "href", env["link_to"])  # no link lies within another
    says_nothing = tokens[place + 1].type == "link_close" and begin
    return begin + (Markup.escape(token.attrs["href"]) if says_nothing else "")


def _ends(token: Token, name: str, link_to: LinkTo) -> tuple[str, str]:
    """Return what stands before and after a link's text: its address, where it leads nowhere; its title."""
    href, title = str(token.attrs.get(name, "")), token.attrs.get("title")
    address = _address(href, link_to)
    said = Markup(' "{}"').format(title) if title else ""
    if address is None:
        return "", f"{Markup.escape(f' ({unquote(href)})') if href else ''}{said}"
    return str(Markup('<a href="{}">').format(address)), f"</a>{said}"


def _close(_: Any, __: Any, ___: Any, ____: Any, env: Env) -> str:  # noqa: ANN401 (the library's)
    return str(env.pop("closing"))


def _fence(_: Any, tokens: Sequence[Token], place: int, *__: Any) -> str:  # noqa: ANN401 (the library's)
    """Return a code block below what its author wrote beside the fence."""
    token = tokens[place]
    said = Markup("<p><em>{}</em></p>").format(token.info.strip()) if token.info.strip() else ""
    return str(said + Markup("<pre><code>{}</code></pre>").format(token.content))


def _heading(_: Any, tokens: Sequence[Token], place: int, *__: Any) -> str:  # noqa: ANN401 (the library's)
    """Return the tag of a heading below the page's own: the first two levels are the page's."""
    token = tokens[place]
    tag = f"h{min(6, int(token.tag[1]) + 2)}"
    return f"<{tag}>" if token.nesting == 1 else f"</{tag}>"
