"""Markdown of third parties as HTML that runs nothing, loads nothing and keeps to its place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from tasks.models.visible import visible

LinkTo = Callable[
    [str], str | None
]  # the address of a bundled file by its path, None if there is no such file

# Rendering takes time that grows faster than a text; what is longer stands as it was written.
_LONGEST, _MOST_CELLS = 20_000, 4_000
_SCHEMES = {"http", "https", "mailto"}
_BLOCKS = {
    "p", "ul", "ol", "li", "pre", "blockquote", "hr", "table", "thead", "tbody", "tr", "th", "td",
    "h3", "h4", "h5", "h6",
}  # fmt: skip
_INLINE = {"a", "br", "code", "em", "s", "strong"}
_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}


def render_blocks(text: str, link_to: LinkTo) -> Markup:
    """Return a text rendered as CommonMark with tables; headings in it begin at the third level.

    HTML in it is shown as it was written, comments included: what an agent reads, a person sees. Images are
    links, and links lead to the web or to bundled files. A text that is too long to render quickly comes as
    it was written.
    """
    shown = visible(text, lines=True)
    if len(shown) > _LONGEST or shown.count("|") > _MOST_CELLS:
        return Markup("<pre>{}</pre>").format(shown)
    return _clean(_parser().render(shown), _BLOCKS | _INLINE, link_to)


def render_inline(text: str, link_to: LinkTo) -> Markup:
    """Return a text of one paragraph rendered without a block around it; else as `render_blocks`."""
    shown = visible(text, lines=True)
    if len(shown) > _LONGEST:
        return Markup("{}").format(shown)
    return _clean(_parser().renderInline(shown), _INLINE, link_to)


def is_paragraph(text: str) -> bool:
    """Tell whether a text is one paragraph, so that it can stand within another."""
    if len(text) > _LONGEST:
        return False
    tokens: list[Token] = []
    parser = _parser()
    parser.block.parse(text, parser, {}, tokens)
    return [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]


def _clean(html: str, tags: set[str], link_to: LinkTo) -> Markup:
    def attribute(_: str, name: str, value: str) -> str | None:
        return _address(value, link_to) if name == "href" else value

    clean = nh3.clean(
        html, tags=tags, attributes=_ATTRIBUTES, attribute_filter=attribute, url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )  # fmt: skip
    return Markup(clean)  # noqa: S704 (cleaned)


def _address(href: str, link_to: LinkTo) -> str | None:
    """Return where a link may lead: to the web, or to a file of the skill."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return None
    if parts.scheme:
        return href  # of a scheme that is allowed, or else it is gone already
    return None if parts.netloc or not parts.path else link_to(parts.path)


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.add_render_rule("image", _image)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    return parser


def _image(_: Any, tokens: Sequence[Token], place: int, *__: Any) -> str:  # noqa: ANN401 (the library's)
    """Return a link to an image, since a page loads nothing from elsewhere."""
    token = tokens[place]
    said = f"image: {token.content or 'without a text'}"
    return str(Markup('<a href="{}">[{}]</a>').format(token.attrs.get("src", ""), said))


def _heading(_: Any, tokens: Sequence[Token], place: int, *__: Any) -> str:  # noqa: ANN401 (the library's)
    """Return the tag of a heading below the page's own: the first two levels are the page's."""
    token = tokens[place]
    tag = f"h{min(6, int(token.tag[1]) + 2)}"
    return f"<{tag}>" if token.nesting == 1 else f"</{tag}>"
