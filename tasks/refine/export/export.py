"""The export of the clean corpus, with a datasheet: what the licence policy allows."""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import polars as pl

from storage.errors import WrongInput
from storage.partitions import PARTITIONS
from storage.root import Root
from storage.served import LicenceClass
from storage.state import aliases_table, documents_table
from tasks.refine.export.datasheet import datasheet, datasheet_markdown
from tasks.refine.export.writers import FolderWriter, JsonLinesWriter, ParquetWriter, Writer
from tasks.refine.licences.policy import (
    EXPORT_POLICY,
    LicencePolicy,
    count_classes,
    licence_classes,
    require_classes,
)
from tasks.refine.structure import MEASURES, quality_frame

Format: TypeAlias = Literal["parquet", "jsonl", "folder"]
FORMATS: tuple[Format, ...] = get_args(Format)
_WRITERS: dict[str, type[Writer]] = {
    "parquet": ParquetWriter, "jsonl": JsonLinesWriter, "folder": FolderWriter,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export holds.

    Args:
        out: The folder.
        format: `parquet`, `jsonl` or `folder`.
        documents: Documents exported, text or not.
        with_text: Those among them whose text went along.
        left_out: Documents of the corpus that are not in it, by licence class.
        classes: Documents of the corpus by licence class, every class.
    """

    out: str
    format: str
    documents: int
    with_text: int
    left_out: dict[str, int]
    classes: dict[str, int]


def export_corpus(
    root: Root,
    out: Path,
    *,
    format: Format = "parquet",  # noqa: A002 (the command's word)
    licences: Iterable[str] = ("allow",),
    policy: LicencePolicy = EXPORT_POLICY,
    now: datetime,
) -> ExportReport:
    """Export the corpus as it stands into a new folder, all or nothing, a partition at a time.

    Of a document whose licence is `metadata-only` the text stays behind: its body, its description where that
    was taken from the body, and what findings and risks cite. `deny` goes nowhere, asked for or not. Each
    document has its `licence_class` and the measures of its `quality`. Beside the documents lie the aliases
    of those exported, `DATASHEET.md` and `datasheet.json`.

    Args:
        root: Where the corpus lies.
        out: A folder that is not there yet, or is empty.
        format: `parquet`: one file; `jsonl`: an object a line; `folder`: a SKILL.md a skill, and one JSON
            lines file of metadata.
        licences: Classes that are wanted: `allow`, `metadata-only`.
        policy: Which licence is of which class.
        now: When this is.

    Raises:
        WrongInput: The format or a class is not known, `out` holds something, or cannot be written.
    """
    wanted = _wanted(licences)
    if format not in FORMATS:
        msg = f"format {format!r} is not known: choose one of {', '.join(FORMATS)}"
        raise WrongInput(msg)
    classes: Counter[str] = Counter()
    exported: list[pl.DataFrame] = []
    with _unfinished(out) as folder:
        with _WRITERS[format](folder) as writer:
            for frame in _partitions(root, policy):
                classes.update(count_classes(frame["licence"], policy))
                chosen = with_quality(frame.filter(pl.col("licence_class").is_in(sorted(wanted))))
                writer.write(without_text(chosen))
                exported.append(chosen.select("doc_id", "source", "licence", "licence_class", "language"))
        rows = pl.concat(exported)
        writer.write_aliases(_aliases(root, rows["doc_id"]))
        report = _report(out, format, rows, classes)
        sheet = datasheet(root, rows, asdict(report), policy, now)
        (folder / "datasheet.json").write_text(json.dumps(sheet, ensure_ascii=False, indent=1), "utf-8")
        (folder / "DATASHEET.md").write_text(datasheet_markdown(sheet), "utf-8")
    return report


def _wanted(licences: Iterable[str]) -> frozenset[LicenceClass]:
    wanted = require_classes(licences)
    if not wanted or "deny" in wanted:
        msg = "--licence takes allow and metadata-only: a text that is denied is never exported"
        raise WrongInput(msg)
    return wanted


def _partitions(root: Root, policy: LicencePolicy) -> Iterator[pl.DataFrame]:
    """Yield the corpus, a frame a partition, sorted by id; the first may be empty and has every column."""
    table = documents_table(root)
    yield table.read([]).with_columns(licence_class=pl.lit("", pl.String))
    for partition in range(PARTITIONS):
        frame = table.read([partition]).sort("doc_id")
        if not frame.is_empty():
            yield frame.with_columns(licence_classes(frame["licence"], policy))


def without_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return documents with null for what the class `metadata-only` keeps back.

    Args:
        frame: Documents with their `licence_class`.
    """
    kept_back = pl.col("licence_class") != "allow"
    from_body = kept_back & pl.col("inferred").list.contains("description")
    return frame.with_columns(
        body=pl.when(~kept_back).then("body"),
        description=pl.when(~from_body).then("description"),
        **{name: pl.when(~kept_back).then(name).otherwise(_uncited(name)) for name in ("findings", "risks")},
    )


def _uncited(findings: str) -> pl.Expr:
    """Return findings with their codes and severity: a message may cite the text it was found in."""
    no_message = pl.lit(None, pl.String).alias("message")
    return pl.col(findings).list.eval(pl.element().struct.with_fields(no_message))


def with_quality(frame: pl.DataFrame) -> pl.DataFrame:
    """Return documents with a struct `quality`: the measures of `tasks.refine.structure.Quality`."""
    measured = quality_frame(frame).select("doc_id", quality=pl.struct(MEASURES))
    return frame.join(measured, on="doc_id", how="left", maintain_order="left")


def _aliases(root: Root, doc_ids: pl.Series) -> pl.DataFrame:
    exported = pl.DataFrame({"survivor": doc_ids})
    known = aliases_table(root).read().select("doc_id", "survivor", "kind")
    return known.join(exported, on="survivor", how="semi").sort("doc_id")


def _report(out: Path, format: str, rows: pl.DataFrame, classes: Counter[str]) -> ExportReport:  # noqa: A002
    there = Counter(rows["licence_class"])
    left_out = {name: classes[name] - there[name] for name in sorted(classes) if classes[name] > there[name]}
    return ExportReport(
        str(out), format, rows.height, there["allow"], left_out, {k: classes[k] for k in sorted(classes)}
    )


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """Give a folder beside `out` that becomes `out` when all went well, and is removed when not."""
    beside = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            msg = f"--out {out} is no empty folder: name one that is not there yet"
            raise WrongInput(msg)
        beside.mkdir(parents=True)
        yield beside
        with contextlib.suppress(FileNotFoundError):
            out.rmdir()
        beside.rename(out)
    except OSError as error:
        msg = f"--out {out} cannot be written ({error.strerror or error})"
        raise WrongInput(msg) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
