"""Structural measures of a skill, after SkillFlow's figure 2; they do not tell whether it is right."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import polars as pl

from storage.schemas import BundledFile
from tasks.refine.text.markdown import HEADING, fenced

# The languages of fences whose code runs.
_RUNNABLE = frozenset({
    "bash", "sh", "shell", "zsh", "console", "fish", "powershell", "ps1", "pwsh", "bat", "cmd",
    "python", "python3", "py", "javascript", "js", "jsx", "mjs", "node", "typescript", "ts", "tsx",
    "ruby", "rb", "perl", "php", "go", "golang", "rust", "rs", "java", "kotlin", "kt", "scala", "swift",
    "c", "cpp", "c++", "cs", "csharp", "r", "julia", "lua", "sql", "elixir", "dart"
})  # fmt: skip
_SCRIPT = re.compile(
    r"\.(?:sh|bash|zsh|fish|ps1|bat|cmd|py|js|mjs|cjs|ts|rb|pl|php|go|rs|r|jl|lua)$", re.IGNORECASE
)
_DOCUMENT = re.compile(r"\.(?:md|mdx|txt|rst|pdf|html|adoc)$", re.IGNORECASE)
_ORDERED = re.compile(r"\A[ \t>]*+\d{1,9}[.)][ \t]")
_BULLET = re.compile(r"\A[ \t>]*+[-*+][ \t]")
_TABLE = re.compile(r"\A[ \t>]*+\|.*\|[ \t]*$")
_LANGUAGE = re.compile(r"\A[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?:`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)")
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{0,200}\]\([^()\s]{1,500}|<https?://[^>\s]{1,500}>")
_TO_SCRIPTS = re.compile(r"(?<![\w/.-])(?:\./|[\w$}{./-]{0,60}/)?scripts/[\w./-]*\w")
_TO_REFERENCES = re.compile(r"(?<![\w/.-])(?:\./|[\w$}{./-]{0,60}/)?references?/[\w./-]*\w")


@dataclass(frozen=True, slots=True)
class Quality:
    """Structural measures of one skill: counts, unless said otherwise.

    Headings, list items, table rows and links count outside code only; characters, words and mentions of
    paths everywhere in the body. The last three are None where the bundle is unknown.
    """

    characters: int
    lines: int  # not blank
    words: int
    headings: int  # in the form `# title`
    heading_depth: int  # the deepest level, 0 for none
    fenced_share: float  # of the characters but line ends those between code fences, 0 to 1
    code_blocks: int  # fenced
    runnable_blocks: int  # whose fence names a language that runs
    ordered_items: int
    bullet_items: int
    table_rows: int
    links: int  # pictures are none
    script_mentions: int  # different paths below a folder `scripts/`
    reference_mentions: int  # different paths below a folder `references/` or `reference/`
    bundled_files: int | None  # without SKILL.md
    scripts: int | None  # bundled files that run, by their ending
    reference_documents: int | None  # bundled files to read, without licences and notices


MEASURES = tuple(field.name for field in fields(Quality))
QUALITY = pl.Schema({"doc_id": pl.String, **dict.fromkeys(MEASURES, pl.Int64), "fenced_share": pl.Float64})


def _languages(lines: Sequence[str], inside: Sequence[bool]) -> list[str]:
    opens = (i for i in range(1, len(lines)) if inside[i] and not inside[i - 1])
    matches = (_LANGUAGE.match(lines[i - 1]) for i in opens)
    return [match[1].lower() for match in matches if match]


def _of_bundle(files: Sequence[BundledFile] | None) -> dict[str, int | None]:
    if files is None:
        return dict.fromkeys(("bundled_files", "scripts", "reference_documents"))
    names = {file.path: file.path.rpartition("/")[2].lower() for file in files}
    paths = [path for path, name in names.items() if name != "skill.md"]
    texts = [p for p in paths if _DOCUMENT.search(p) and not names[p].startswith(("licen", "notice"))]
    scripts = sum(bool(_SCRIPT.search(path)) for path in paths)
    return {"bundled_files": len(paths), "scripts": scripts, "reference_documents": len(texts)}


def _matching(pattern: re.Pattern[str], lines: Iterable[str]) -> int:
    return sum(bool(pattern.match(line)) for line in lines)


def measure(body: str, files: Sequence[BundledFile] | None) -> Quality:
    """Return the structural measures of one skill, of its canonical body and its bundle (None: unknown).

    SkillFlow, section 4.3 and figure 2, lists length, share of fenced code, ordered lists, scripts and
    reference documents, without definitions: those of `Quality` are this project's own.
    """
    lines = body.split("\n")
    inside, _ = fenced(lines)
    prose = list(itertools.compress(lines, map(operator.not_, inside)))
    characters, outside = sum(map(len, lines)), sum(map(len, prose))
    levels = [len(match[1]) for line in prose if (match := HEADING.match(line))]
    languages = _languages(lines, inside)
    return Quality(
        characters=len(body),
        lines=sum(map(bool, map(str.strip, lines))),
        words=len(body.split()),
        headings=len(levels),
        heading_depth=max(levels, default=0),
        fenced_share=(characters - outside) / max(characters, 1),
        code_blocks=len(languages),
        runnable_blocks=sum(language in _RUNNABLE for language in languages),
        ordered_items=_matching(_ORDERED, prose),
        bullet_items=_matching(_BULLET, prose),
        table_rows=_matching(_TABLE, prose),
        # Looking for the literal first saves most searches; the patterns take far longer.
        links=sum(len(_LINK.findall(line)) for line in prose if "](" in line or "<http" in line),
        script_mentions=len(set(_TO_SCRIPTS.findall(body))) if "scripts/" in body else 0,
        reference_mentions=len(set(_TO_REFERENCES.findall(body))) if "reference" in body else 0,
        **_of_bundle(files),
    )


def _measured(documents: pl.DataFrame) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for doc_id, body, files in documents.select("doc_id", "body", "files").iter_rows():
        bundle = None if files is None else [BundledFile(**file) for file in files]
        rows.append({"doc_id": doc_id, **asdict(measure(body, bundle))})
    return pl.DataFrame(rows, schema=QUALITY)


def quality_frame(documents: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return the measures of documents in the columns of `QUALITY`, one row a document.

    They have the columns doc_id, body and files at least. A lazy frame is read as a stream, so that memory
    grows with the measures alone.
    """
    wanted = documents.lazy().select("doc_id", "body", "files")
    measured = wanted.map_batches(_measured, schema=QUALITY, streamable=True, validate_output_schema=False)
    return measured.collect(engine="streaming")
