"""Rules that infer the edges between the nodes of one document, as in SkillPager, section 3.1."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from storage.schemas import Edge, Node
from tasks.models.protocols import Vectors
from tasks.refine.text.markdown import unlinked
from tasks.refine.text.words import COMPOUND

# A node that mentions more is a table of contents.
MOST_REFERENCES = 8
# Words; a longer title is a sentence.
LONGEST_NAME = 8
# Letters.
SHORTEST_NAME = 4
# Too common for their mention to mean the one section or item that bears them.
_COMMON_NAMES = """
    about actions advanced after analysis api approach arguments architecture background bad before benefits
    best_practice best_practices cause check checklist cli code command commands common_issues
    common_mistakes common_patterns concept concepts config configuration constraints context core_concepts
    core_principles correct data default dependencies description design details development do_not
    documentation don't error error_handling errors example examples expected_output false faq features file
    files file_structure format getting_started goal goals good guide guidelines how how_it_works how_to_use
    implementation important input inputs installation instructions integration introduction key_concepts
    key_features limitations links main method methods mode name never next_steps note notes null optional
    options output output_format outputs overview parameters pattern patterns performance prerequisites
    principles problem process project_structure purpose quality quick_reference quick_start quickstart
    reference references related related_resources related_skills requirements required resources response
    result results review role rule rules scope script scripts security see_also setup skill skills solution
    source status step steps string structure summary support syntax task tasks template templates test
    testing tests the_problem the_solution this_skill tips tools triggers troubleshooting true type types
    usage usage_examples use use_case use_cases user user_input validation version warning what when
    when_not_to_use when_to_use when_to_use_this_skill where why workflow workflows wrong always"""
_COMMON = frozenset(tuple(name.split("_")) for name in _COMMON_NAMES.split())
_Words = tuple[str, ...]
_NUMBERED = re.compile(
    r"\A\W*+((?:step|phase|stage|part|section|appendix|rule|task|level|pattern|method|option)\s+(?:\d+(?:\.\d+)*|[A-Z]\b))",
    re.IGNORECASE,
)
_ORDINAL = re.compile(
    r"\A\W*+(?:(?:step|phase|stage|part)\s+)?\d+(?:\.\d+)*+\s*+[.):：–—-]*+\s*+", re.IGNORECASE
)
_DEFINED = re.compile(
    r"\A\s*+(?:[-*+•]\s+|\d{1,3}[.)]\s+)?"
    r"(?:\*\*(?P<bold>[^*`\n]{2,60}?)\s*:?\*\*|(?:\*\*)?`(?P<code>[^`\n]{2,60})`(?:\*\*)?)\s*(?:\([^)\n]*\)\s*)?[:：–—=→-]"
)
_DEFINED_WITHIN = re.compile(r"\A\s*+(?:[-*+•]\s+|\d{1,3}[.)]\s+)?\*\*(?P<bold>[^*`\n]{2,60}?)[:：]\*\*")
_MARKED = re.compile(
    r"`(?P<code>[^`\n]{1,80})`|\*\*(?P<bold>[^*\n]{1,80})\*\*|[\"“](?P<quote>[^\"“”\n]{4,80})[\"”]"
    r"|\[(?P<link>[^\]\n]{1,120})\](?:\((?:#(?P<anchor>[\w-]{1,120}))?)?"
)


@dataclass(frozen=True, slots=True)
class _Target:
    """The node for which a name stands, and the section (a heading path) whose nodes do not refer to it."""

    position: int
    section: tuple[str, ...] | None


_Index = dict[_Words | str, _Target]


def find_references(
    nodes: Sequence[Node], *, common: frozenset[tuple[str, ...]] = _COMMON
) -> list[tuple[int, int]]:
    """Return `(position of the node, position of the node it mentions)`, by position, each pair once.

    A node is mentioned by the title of the section that it begins (whole words in any case, without markup
    and numbering), by that section's number (`Step 3`), or by the term that it defines: the bold or `code`
    term that opens a list item or paragraph before a colon or dash. Names have at least 4 letters (code terms
    2) and at most 8 words. A mention of one word counts only if it is marked (code, bold, quoted, a link).
    Common names (`common`, in words), names of several nodes, mentions in code blocks and those of a section
    by its own nodes do not count. A node has at most 8 references, the first in its text. Time is linear in
    the text.
    """
    index = _unambiguous([*_sections(nodes, common), *_terms(nodes, common)])
    # A run of words is looked up only if a name begins with its first word.
    openings = frozenset(name[0] for name in index if isinstance(name, tuple))
    pairs: list[tuple[int, int]] = []
    for position, node in enumerate(nodes):
        if node.block == "code":
            continue
        targets: dict[int, None] = {}
        for name in _mentions(node.text, openings):
            target = index.get(name)
            if target is None or target.position == position:
                continue
            section = target.section
            if section is None or node.heading_path[: len(section)] != section:
                targets.setdefault(target.position)
        pairs += [(position, target_position) for target_position in sorted([*targets][:MOST_REFERENCES])]
    return pairs


def _unambiguous(named: Sequence[tuple[_Words | str, _Target]]) -> _Index:
    # Others are labels, such as `Cause` under each of several problems.
    index: _Index = {}
    several: set[_Words | str] = set()
    for name, target in named:
        if index.setdefault(name, target).position != target.position:
            several.add(name)
    return {name: target for name, target in index.items() if name not in several}


def _sections(nodes: Sequence[Node], common: frozenset[_Words]) -> Iterator[tuple[_Words | str, _Target]]:
    # A title above all nodes is that of the document.
    whole = len({node.heading_path[:1] for node in nodes}) == 1
    before: tuple[str, ...] = ()
    for position, node in enumerate(nodes):
        path = node.heading_path
        for depth, title in enumerate(path):
            section = path[: depth + 1]
            if before[: depth + 1] != section and not (whole and depth == 0):
                for name in _names_of_title(title, common):
                    yield name, _Target(position, section)
        before = path


def _names_of_title(title: str, common: frozenset[_Words]) -> Iterator[_Words]:
    plain = unlinked(title)
    if numbered := _NUMBERED.match(plain):
        yield _words(numbered[1])
    name = _words(_ORDINAL.sub("", plain, count=1))
    if _tells(name, common):
        yield name


def _terms(nodes: Sequence[Node], common: frozenset[_Words]) -> Iterator[tuple[_Words | str, _Target]]:
    """Yield each defined term with the node that defines it: code as written, other terms as words."""
    for position, node in enumerate(nodes):
        if node.block not in ("prose", "list_item"):
            continue
        defined = _DEFINED_WITHIN.match(node.text) or _DEFINED.match(node.text)
        if defined is None:
            continue
        code = defined.groupdict().get("code")
        words = _words(code or defined["bold"])
        if words in common:
            continue
        if code:
            yield code.strip(), _Target(position, None)
        elif _tells(words, common):
            yield words, _Target(position, None)


def _tells(name: _Words, common: frozenset[_Words]) -> bool:
    letters = sum(len(word) for word in name)
    return letters >= SHORTEST_NAME and len(name) <= LONGEST_NAME and name not in common


def _words(text: str) -> _Words:
    return tuple(COMPOUND.findall(text.lower()))


def _mentions(text: str, openings: frozenset[str]) -> list[_Words | str]:
    """Return the marked spans of a text and its runs of 2 to 8 words that begin as a name, by their place."""
    found: list[tuple[int, _Words | str]] = []
    for marked in _MARKED.finditer(text):
        if code := marked["code"]:
            found.append((marked.start(), code.strip()))
        anchor = (marked["anchor"] or "").replace("-", " ")
        spans = (marked["bold"], marked["quote"], marked["link"], anchor)
        found += [(marked.start(), _words(span)) for span in spans if span]
    if openings.isdisjoint(map(str.lower, COMPOUND.findall(text))):  # as in most texts: no place is needed
        return [name for _, name in found]
    words = [(match.start(), match[0].lower()) for match in COMPOUND.finditer(text)]
    for first, (start, word) in enumerate(words):
        if word in openings:
            run = tuple(follower for _, follower in words[first : first + LONGEST_NAME])
            found += [(start, run[:length]) for length in range(2, len(run) + 1)]
    return [name for _, name in sorted(found, key=lambda place: place[0])]


_Positions = npt.NDArray[np.intp]
# Rows of the similarity matrix that are computed at a time: 512 by 5,000 nodes take 10 MB.
_ROWS = 512
# Nodes of a document whose vectors are compared: pairs, and memory, grow with the square.
MOST_COMPARED = 5_000
SEMANTIC_THRESHOLD = 0.85
# Later nodes a node. A document of thousands of equal lines would otherwise have millions of edges.
MOST_SIMILAR = 100
# Nodes. A step further on in its section follows from other text.
FARTHEST_STEP = 12
_DEPENDENCY = re.compile(
    r"\b(?:if|when|whenever|unless|until|once|after|before|prior|must|mustn't|only|requir\w+|need\w*"
    r"|ensure|make sure|assum\w+|depends?|prerequisites?|preconditions?|installed|available|access|never"
    r"|don't|do not|cannot|should|avoid|not|no|constraints?|trigger\w*)\b"
    r"|必须|禁止|不要|前提|需要|如果|必要|場合|때",
    re.IGNORECASE,
)
# Headings over what holds for the whole skill.
_WHOLE_SKILL = re.compile(
    r"\b(?:pre-?requisites?|pre-?conditions?|before (?:you )?(?:start\w*|begin\w*))\b"
    r"|前提|先决|触发|适用|何时"
    r"|^\W*+(?:[\d.]++\s*+)?(?:system |general )?requirements?\W*$"
    r"|^\W*+(?:triggers?|activation|trigger on)\W*$"
    r"|^\W*+when (?:not )?to (?:use|apply|invoke|activate|trigger)(?: (?:this|it)\b.*+)?+\W*+$"
    r"|^\W*+use (?:this|when)\b|^\W*+when (?:not|this skill)\b|^\W*+(?:do not|don't) use\b",
    re.IGNORECASE,
)


Pair = tuple[int, int, str]  # places of source and destination, and the edge's type
InferredPair = tuple[int, int, str, str]  # a pair, and who inferred it
BY_RULES = "rules"


def infer_edges(
    nodes: Sequence[Node], vectors: Vectors | None, *, pairs: Sequence[InferredPair] | None = None
) -> list[Edge]:  # fmt: skip
    """Return the edges between the nodes of one document, given in order, by type, source and destination.

    `sequence` joins neighbours. `semantic` joins each node to at most 100 later nodes, the most similar ones
    whose cosine is above 0.85 (SkillPager's tau); its weight is the cosine. A document of over 5,000
    nodes, or without unit vectors of shape `(len(nodes), dimension)`, has none. `reference` joins a node to
    those that it mentions (see `find_references`), `condition` a precondition with a dependency cue to the
    step that it constrains, unless `pairs` says both; the weight is 1 except for `semantic`. No edge joins a
    node to itself, and no two edges have the same source, destination and type.

    Raises:
        ValueError: The nodes are of several documents, or nodes and vectors differ in number.
    """
    documents = {node.doc_id for node in nodes}
    if len(documents) > 1:
        some = ", ".join(sorted(documents)[:3])
        raise ValueError(f"nodes of {len(documents)} documents ({some}, ...); pass one document at a time")
    if vectors is not None and len(vectors) != len(nodes):
        raise ValueError(f"{len(nodes)} nodes but {len(vectors)} vectors")
    ids = [node.node_id for node in nodes]
    edges = [Edge(*neighbours, "sequence", 1.0) for neighbours in pairwise(ids)]
    if vectors is not None and len(nodes) <= MOST_COMPARED:
        edges += [Edge(ids[i], ids[j], "semantic", weight) for i, j, weight in _similar_pairs(vectors)]
    found = [(*pair, BY_RULES) for pair in text_pairs(nodes)] if pairs is None else pairs
    return edges + [Edge(ids[i], ids[j], edge_type, 1.0, by) for i, j, edge_type, by in found]


def text_pairs(nodes: Sequence[Node]) -> list[Pair]:
    """Return the references, then the conditions, that the rules find between one document's nodes."""
    references = [(i, j, "reference") for i, j in find_references(nodes)]
    return references + [(i, j, "condition") for i, j in _conditions(nodes)]


def _similar_pairs(vectors: Vectors) -> Iterator[tuple[int, int, float]]:
    """Yield `(i, j, cosine)` with i < j and the cosine above the threshold."""
    for top in range(0, len(vectors), _ROWS):
        block = vectors[top : top + _ROWS] @ vectors[top:].T
        rows, columns = np.nonzero(np.triu(block > SEMANTIC_THRESHOLD, k=1))
        # Rounding makes the product of equal unit vectors slightly larger than 1.
        cosines = np.minimum(block[rows, columns], 1.0)
        if len(rows) and np.bincount(rows).max() > MOST_SIMILAR:
            kept = _closest(rows, columns, cosines)
            rows, columns, cosines = rows[kept], columns[kept], cosines[kept]
        yield from zip((rows + top).tolist(), (columns + top).tolist(), cosines.tolist(), strict=True)


def _closest(rows: _Positions, columns: _Positions, cosines: npt.NDArray[np.float32]) -> _Positions:
    """Return the places of each row's `MOST_SIMILAR` largest cosines, the earlier column where equal."""
    order = np.lexsort((columns, -cosines, rows))
    in_order = rows[order]
    ranks = np.arange(len(rows)) - np.searchsorted(in_order, in_order)
    return np.sort(order[ranks < MOST_SIMILAR])


def _conditions(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Yield `(precondition, step)` for each precondition that has a dependency cue.

    A precondition of the whole skill constrains the first step after it, or the document's first step if no
    step comes after it; any other the next step of its section or a subsection, at most 12 nodes on.
    """
    steps = [k for k, node in enumerate(nodes) if node.node_type == "step"]
    for position, node in enumerate(nodes):
        if not steps or node.node_type != "precondition" or not _depends(node):
            continue
        after = bisect(steps, position)
        step = steps[after % len(steps)]
        section = node.heading_path
        near = 0 < step - position <= FARTHEST_STEP and nodes[step].heading_path[: len(section)] == section
        # What stands before any step, or under a heading such as `When to use`, holds for the whole skill.
        if near or after == 0 or any(map(_WHOLE_SKILL.search, section[-2:])):
            yield position, step


def _depends(node: Node) -> bool:
    return any(map(_DEPENDENCY.search, (node.text, node.lead_in or "", *node.heading_path[-1:])))
