"""Segments a Markdown body into the fragments to be typed and the headings between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from storage.schemas import Block
from tasks.parse.segment.blocks import Item, Leaf, read_blocks
from tasks.parse.segment.headings import Heading, read_heading
from tasks.parse.segment.sentences import opens, sentence_spans

# Characters. Each fragment carries both, so that a hostile text could make them the bulk of the index.
_LONGEST_TITLE = 300
_LONGEST_LEAD_IN = 1000
_TAIL = 60  # of a text, that tells whether it announces what follows
_BLANK_LINES = re.compile(r"(?:[^\S\r\n]{0,200}(?:\r\n?|\n))*+")


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a body before it is typed: `text` is `body[start:end]`, `ordinal` its place from 0.

    `heading_path` holds the titles of the enclosing headings, outermost first, at most 300 characters each.
    `lead_in` is the text that announces this fragment's list, code, table or HTML, its last 1,000 characters.
    """

    ordinal: int
    heading_path: tuple[str, ...]
    lead_in: str | None
    block: Block
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Segmentation:
    """The parts of a body: every non-blank character lies in exactly one fragment or heading."""

    fragments: tuple[Fragment, ...]
    headings: tuple[Heading, ...]


@dataclass(slots=True, eq=False)
class _Draft:
    block: Block
    start: int
    end: int
    path: tuple[str, ...]
    lead_in: str | None
    item: Item | None


@dataclass(slots=True)
class _Composer:
    """Turns leaf blocks, in order, into drafts of fragments; headings reset `last` and `opener`.

    `opener` is the last draft if it announces what follows; `held` the span of a rule or quote marker that
    waits for the text after it; `lead_ins` what announced each list, by `Item.siblings`.
    """

    body: str
    drafts: list[_Draft] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    stack: list[Heading] = field(default_factory=list)
    path: tuple[str, ...] = ()
    last: _Draft | None = None
    opener: _Draft | None = None
    held: tuple[int, int] | None = None
    lead_ins: dict[int, str | None] = field(default_factory=dict)

    def trimmed(self, start: int, end: int) -> tuple[int, int]:
        text = self.body[start:end]
        return end - len(text.lstrip()), start + len(text.rstrip())

    def add(
        self, block: Block, start: int, end: int, item: Item | None = None, lead: str | None = None
    ) -> _Draft:
        """Append a draft; a held rule or quote marker becomes its beginning."""
        if self.held:
            start, self.held = self.held[0], None
        draft = _Draft(block, start, end, self.path, lead, item)
        self.drafts.append(draft)
        self.last = draft
        return draft

    def flush(self) -> None:
        """Make a draft of a held rule or quote marker that no text follows."""
        if self.held:
            self.add("prose", *self.held)

    def announce(self, draft: _Draft) -> None:
        """Make the draft the opener if it announces what follows."""
        self.opener = draft if opens(self.body[max(draft.start, draft.end - _TAIL) : draft.end]) else None

    def lead_in(self, item: Item | None) -> str | None:
        """Return what announces a block here: the text just before it, else what announces its list."""
        outer = self.list_lead_in(item) if item else None
        if self.opener is None:
            return outer
        return self.body[max(self.opener.start, self.opener.end - _LONGEST_LEAD_IN) : self.opener.end]

    def list_lead_in(self, item: Item) -> str | None:
        """Return what announced the list of an item, as it was at the list's first block."""
        if item.siblings not in self.lead_ins:
            self.lead_ins[item.siblings] = self.lead_in(item.parent)
        return self.lead_ins[item.siblings]

    def heading(self, leaf: Leaf) -> None:
        self.flush()
        heading = read_heading(self.body, leaf.start, leaf.end)
        self.headings.append(heading)
        self.stack = [h for h in self.stack if h.level < heading.level] + [heading]
        self.path = tuple(h.title[:_LONGEST_TITLE] for h in self.stack if h.title)
        self.last = self.opener = None

    def rule(self, leaf: Leaf) -> None:
        """Attach a thematic break or bare quote marker to the text before it, else to the text after it."""
        start, end = self.trimmed(leaf.start, leaf.end)
        if self.held is None and self.last and self.last.block in ("prose", "list_item", "html"):
            self.last.end = end
        else:
            self.held = (self.held[0] if self.held else start, end)
        if leaf.kind == "break":
            self.opener = None

    def item_text(self, leaf: Leaf, item: Item) -> None:
        start, end = self.trimmed(leaf.start, leaf.end)
        lead = self.list_lead_in(item)
        if self.last and self.last.item is item and self.last.block == "list_item" and not self.held:
            self.last.end = end
        else:
            self.add("list_item", start, end, item, lead)
        if self.last:
            self.announce(self.last)

    def prose(self, leaf: Leaf) -> None:
        """Add a paragraph's sentences; an opener takes in the sentence after it."""
        for start, end in sentence_spans(self.body[leaf.start : leaf.end]):
            opener = self.opener
            if opener and opener is self.last and opener.block == "prose" and not self.held:
                opener.end = leaf.start + end
            else:
                opener = self.add("prose", leaf.start + start, leaf.start + end)
            self.announce(opener)

    def whole(self, leaf: Leaf, block: Block) -> None:
        """Add code, a table or HTML uncut, with the indentation of its first line."""
        lead = self.lead_in(leaf.item)
        self.flush()
        first = _BLANK_LINES.match(self.body, leaf.start, leaf.end)
        start = first.end() if first else leaf.start
        self.add(block, start, self.trimmed(start, leaf.end)[1], leaf.item, lead)
        self.opener = None

    def take(self, leaf: Leaf) -> None:
        match leaf.kind:
            case "heading":
                self.heading(leaf)
            case "break" | "margin":
                self.rule(leaf)
            case "text":
                self.item_text(leaf, leaf.item) if leaf.item else self.prose(leaf)
            case "code" | "table" | "html":
                self.whole(leaf, leaf.kind)


def _grouped(body: str, drafts: list[_Draft]) -> list[_Draft]:
    """Return drafts in which a list, and what an opener announces, are one with it (SkillPager, 3.1)."""
    found: list[_Draft] = []
    for draft in drafts:
        last = found[-1] if found else None
        if last is None or body[last.end : draft.start].strip() or not _joins(body, last, draft):
            found.append(draft)
            continue
        last.end, last.item = draft.end, draft.item
        last.block = draft.block if last.block == "prose" else last.block
    return found


def _joins(body: str, last: _Draft, draft: _Draft) -> bool:
    if last.item and draft.item:
        return last.item.outermost == draft.item.outermost
    opener = last.block == "prose" and draft.block != "prose"
    return opener and opens(body[max(last.start, last.end - _TAIL) : last.end])


def segment(body: str, *, grouped: bool = False) -> Segmentation:
    """Split a Markdown body into fragments as in SkillPager, section 3.1; any text is accepted.

    Prose is split into sentences. A list item is one fragment up to its first nested block, and so is the
    text after that block. Code, tables and HTML stay whole. A sentence that ends in a colon or a conditional
    opener includes the prose after it; before any other block it is that block's lead-in. A thematic break
    belongs to the text before it. Time is linear in the length of the body.

    `grouped`, a list is one fragment with all that lies in it, and so is such a sentence with the list, code,
    table or HTML after it, as the paper has it.
    """
    composer = _Composer(body)
    for leaf in read_blocks(body):
        composer.take(leaf)
    composer.flush()
    drafts = _grouped(body, composer.drafts) if grouped else composer.drafts
    fragments = tuple(
        Fragment(i, d.path, d.lead_in, d.block, d.start, d.end, body[d.start : d.end])
        for i, d in enumerate(drafts)
    )
    return Segmentation(fragments, tuple(composer.headings))
