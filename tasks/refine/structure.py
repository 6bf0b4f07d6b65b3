"""Structural measures of a skill, after SkillFlow's figure 2: what it is made of, not whether it is right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

import polars as pl

from storage.schemas import BundledFile
from tasks.refine.text.canonical import fenced

# What a block's first word must be for its code to be something that runs.
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
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_ORDERED = re.compile(r"[ \t>]*\d{1,9}[.)][ \t]")
_BULLET = re.compile(r"[ \t>]*[-*+][ \t]")
_TABLE = re.compile(r"[ \t>]*\|.*\|[ \t]*$")
_LANGUAGE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?:`{3,}|~{3,})[ \t]*\{?\.?([\w+#-]*)")
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{0,200}\]\([^()\s]{1,500}|<https?://[^>\s]{1,500}>")
_TO_SCRIPTS = re.compile(r"(?<![\w/.-])(?:\./|[\w$}{./-]{0,60}/)?scripts/[\w./-]*\w")
_TO_REFERENCES = re.compile(r"(?<![\w/.-])(?:\./|[\w$}{./-]{0,60}/)?references?/[\w./-]*\w")


@dataclass(frozen=True, slots=True)
class Quality:
    """Structural measures of one skill; the last three are None where its bundle is unknown.

    Attributes:
        characters: Of the body.
        lines: Of the body that are not blank.
        words: Of the body, code included.
        headings: Headings (`#` form) outside code.
        heading_depth: The deepest level among them, 0 for none.
        fenced_share: Characters between code fences among all but line ends, 0 to 1.
        code_blocks: Fenced blocks.
        runnable_blocks: Those whose fence names a language that runs.
        ordered_items: Items of numbered lists outside code.
        bullet_items: Items of other lists outside code.
        table_rows: Lines of tables outside code.
        links: Links to anywhere outside code; pictures are none.
        script_mentions: Different paths below a folder `scripts/` that the body names, code included.
        reference_mentions: The same for `references/` or `reference/`.
        bundled_files: Files beside SKILL.md.
        scripts: Those among them that run, by their ending.
        reference_documents: Those among them that are text to read, SKILL.md and licences apart.
    """

    characters: int
    lines: int
    words: int
    headings: int
    heading_depth: int
    fenced_share: float
    code_blocks: int
    runnable_blocks: int
    ordered_items: int
    bullet_items: int
    table_rows: int
    links: int
    script_mentions: int
    reference_mentions: int
    bundled_files: int | None
    scripts: int | None
    reference_documents: int | None


def _type_of(hint: object) -> pl.DataType:
    return pl.Float64() if hint is float else pl.Int64()


MEASURES = tuple(field.name for field in fields(Quality))
QUALITY = pl.Schema({"doc_id": pl.String(), **{n: _type_of(h) for n, h in get_type_hints(Quality).items()}})


def _languages(lines: Sequence[str], inside: Sequence[bool]) -> list[str]:
    """Return the language each fence names, in lower case, empty where it names none."""
    opens = (i for i in range(1, len(lines)) if inside[i] and not inside[i - 1])
    matches = (_LANGUAGE.match(lines[i - 1]) for i in opens)
    return [match[1].lower() for match in matches if match]


def _of_bundle(files: Sequence[BundledFile] | None) -> tuple[int | None, int | None, int | None]:
    if files is None:
        return None, None, None
    paths = [file.path for file in files if file.path.rpartition("/")[2].lower() != "skill.md"]
    names = [(path, path.rpartition("/")[2].lower()) for path in paths]
    documents = [
        path for path, name in names if _DOCUMENT.search(path) and not name.startswith(("licen", "notice"))
    ]
    return len(paths), sum(bool(_SCRIPT.search(path)) for path in paths), len(documents)


def measure(body: str, files: Sequence[BundledFile] | None) -> Quality:
    """Return the structural measures of one skill.

    SkillFlow, section 4.3 and figure 2: length, share of fenced code, ordered lists, scripts and reference
    documents; figure 2 is a picture without definitions, so those of `Quality` are ours.

    Args:
        body: The canonical body, without front matter.
        files: Its bundle, None where it is unknown.
    """
    lines = body.split("\n")
    inside, _ = fenced(lines)
    prose = [line for line, code in zip(lines, inside, strict=True) if not code]
    in_code = sum(len(line) for line, code in zip(lines, inside, strict=True) if code)
    levels = [len(match[1]) for line in prose if (match := _HEADING.match(line))]
    languages = _languages(lines, inside)
    bundled, scripts, documents = _of_bundle(files)
    return Quality(
        characters=len(body),
        lines=sum(bool(line.strip()) for line in lines),
        words=len(body.split()),
        headings=len(levels),
        heading_depth=max(levels, default=0),
        fenced_share=in_code / max(sum(map(len, lines)), 1),
        code_blocks=len(languages),
        runnable_blocks=sum(language in _RUNNABLE for language in languages),
        ordered_items=sum(bool(_ORDERED.match(line)) for line in prose),
        bullet_items=sum(bool(_BULLET.match(line)) for line in prose),
        table_rows=sum(bool(_TABLE.match(line)) for line in prose),
        links=sum(len(_LINK.findall(line)) for line in prose if "](" in line or "<http" in line),
        script_mentions=len(set(_TO_SCRIPTS.findall(body))) if "scripts/" in body else 0,
        reference_mentions=len(set(_TO_REFERENCES.findall(body))) if "reference" in body else 0,
        bundled_files=bundled,
        scripts=scripts,
        reference_documents=documents,
    )


def _measured(documents: pl.DataFrame) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for doc_id, body, files in documents.select("doc_id", "body", "files").iter_rows():
        bundle = None if files is None else [BundledFile(**file) for file in files]
        rows.append({"doc_id": doc_id, **asdict(measure(body, bundle))})
    return pl.DataFrame(rows, schema=QUALITY)


def quality_frame(documents: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return `QUALITY`'s columns, one row a document: its doc_id and its measures.

    Bodies pass through in batches, so that memory grows with the measures alone.

    Args:
        documents: Columns doc_id, body and files at least (`storage.schemas.DOCUMENTS`); a lazy frame is read
            as a stream.
    """
    wanted = documents.lazy().select("doc_id", "body", "files")
    measured = wanted.map_batches(_measured, schema=QUALITY, streamable=True, validate_output_schema=False)
    return measured.collect(engine="streaming")
