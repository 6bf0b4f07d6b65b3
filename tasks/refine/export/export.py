"""The export of the clean corpus, as far as the licence policy allows, with a datasheet."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from glob import escape
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import polars as pl

from storage.blobs import BlobStore
from storage.errors import WrongInput
from storage.lance.served import LicenceClass
from storage.partitions import PARTITIONS
from storage.root import Root
from storage.schemas import SCHEMA_VERSION
from storage.state import aliases_table, corpus_counts, documents_table, read_runs
from tasks.crawl.source.identity import shown_spec
from tasks.refine import STAGE_VERSION
from tasks.refine.export.writers import FolderWriter, JsonLinesWriter, ParquetWriter
from tasks.refine.known_files import routing_lines, wanted_blobs
from tasks.refine.licences.policy import (
    EXPORT_POLICY,
    LicencePolicy,
    count_classes,
    licence_classes,
    require_classes,
)
from tasks.refine.plan import rule_digests
from tasks.refine.structure import MEASURES, quality_frame

_NOTE = (
    "Every text is its author's and third-party data: source, commit and licence stand in its row."
    " Risk findings are hints; no finding does not mean safe."
)


def _counts(column: pl.Series) -> dict[str, int]:
    counted = column.fill_null("unknown").value_counts(name="n")
    return dict(counted.sort(["n", column.name], descending=[True, False]).iter_rows())


def datasheet(
    root: Root, exported: pl.DataFrame, report: Mapping[str, Any], policy: LicencePolicy, now: datetime
) -> dict[str, Any]:
    """Return the datasheet as a JSON object, with all of the `ExportReport` but `out`.

    `exported` has the columns source, licence, licence_class and language of the documents exported.
    """
    runs = read_runs(root, last=1)
    by_class = exported.group_by("licence_class").agg("licence").sort("licence_class")
    return {
        "made_at": now.isoformat(), "run_id": runs[0]["run_id"] if runs else None,
        **{key: value for key, value in report.items() if key != "out"},
        "sources": _counts(exported["source"]), "languages": _counts(exported["language"]),
        "licences": {str(name): _counts(pl.Series("licence", found)) for name, found in by_class.iter_rows()},
        "dropped": corpus_counts(root).dropped, "policy": asdict(policy),
        "versions": {"schema": SCHEMA_VERSION, "refine": STAGE_VERSION, **rule_digests()},
    }  # fmt: skip


def _cell(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _table(title: str, what: str, counts: Mapping[str, object]) -> str:
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in counts.items()]
    return "\n".join([f"## {title}", "", f"| {what} | documents |", "|---|---|", *(rows or ["| none | 0 |"])])


def datasheet_markdown(sheet: Mapping[str, Any]) -> str:
    """Return a datasheet as Markdown."""
    by_class = {
        f"{name}: {licence}": n for name, found in sheet["licences"].items() for licence, n in found.items()
    }
    size = f"{sheet['documents']:,} documents, {sheet['with_text']:,} of them with their text"
    versions = ", ".join(f"{name} {_cell(version)}" for name, version in sheet["versions"].items())
    policy = sheet["policy"]
    allowed, denied = ", ".join(policy["allow"]), ", ".join(policy["deny"])
    others = f"any other is {policy['other']}, unknown is {policy['unknown']}"
    parts = [
        "# Datasheet of a corpus of agent skills",
        f"{size}; made {sheet['made_at']} after run {_cell(sheet['run_id'])}. {_NOTE}",
        _table("Sources", "source", sheet["sources"]),
        _table("Licences exported", "class: licence", by_class),
        _table("The corpus by licence class, when exported", "class", sheet["classes"]),
        _table("Left out by licence class", "class", sheet["left_out"]),
        _table("Languages", "language", sheet["languages"]),
        _table("Not in the corpus, by reason", "reason", sheet["dropped"]),
        "## Rules",
        f"Versions: {versions}.",
        f"Licence policy: allowed are {allowed}; denied are {denied}; {others}.",
    ]
    return "\n\n".join(parts) + "\n"


Format: TypeAlias = Literal["parquet", "jsonl", "folder"]
FORMATS: tuple[Format, ...] = get_args(Format)
_WRITERS: dict[str, type[JsonLinesWriter]] = {
    "parquet": ParquetWriter, "jsonl": JsonLinesWriter, "folder": FolderWriter,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The folder, the format and the counts of an export."""

    out: str
    format: str
    documents: int  # exported, with or without their text
    with_text: int
    left_out: dict[str, int]  # documents of the corpus not exported, by licence class
    classes: dict[str, int]  # documents of the corpus by licence class, 0 included


def export_corpus(
    root: Root,
    out: Path,
    *,
    format: Format = "parquet",  # noqa: A002 (the command's word)
    licences: Iterable[str] = ("allow",),
    policy: LicencePolicy = EXPORT_POLICY,
    now: datetime,
) -> ExportReport:
    """Export the corpus into a new folder, all or nothing, a partition at a time.

    A document of class `metadata-only` goes without its text: its body, its description if that was taken
    from the body, and the messages of findings and risks, which may cite it. The class `deny` is never
    exported. Each document has its `licence_class` and its `quality`. The folder also holds the aliases of
    the documents exported, `DATASHEET.md` and `datasheet.json`, and `routing/` where skills hold requests
    that they were tested with (`evals/evals.json`). The format is `parquet`: one file; `jsonl`: an object a
    line; `folder`: a folder a skill, with its bundled files, and one JSON lines file of metadata.

    Raises:
        WrongInput: The format or a class is not known, `out` holds something, or cannot be written.
        StorageError: A bundled file is missing or damaged.
    """
    wanted = _wanted(licences)
    if format not in FORMATS:
        raise WrongInput(f"format {format!r} is not known: choose one of {', '.join(FORMATS)}")
    classes: Counter[str] = Counter()
    exported: list[pl.DataFrame] = []
    with _unfinished(out) as folder:
        with contextlib.closing(_WRITERS[format](folder, BlobStore(root))) as writer:
            for frame in _partitions(root, policy):
                classes.update(count_classes(frame["licence"], policy))
                chosen = with_quality(frame.filter(pl.col("licence_class").is_in(sorted(wanted))))
                writer.write(without_text(chosen))
                _write_requests(folder / "routing", chosen, BlobStore(root))
                exported.append(chosen.select("doc_id", "source", "licence", "licence_class", "language"))
        rows = pl.concat(exported)
        aliases = aliases_table(root).read().select("doc_id", "survivor", "kind")
        aliases = aliases.join(rows, left_on="survivor", right_on="doc_id", how="semi")
        writer.write_aliases(aliases.sort("doc_id"))
        report = _report(out, format, rows, classes)
        sheet = datasheet(root, rows, asdict(report), policy, now)
        (folder / "datasheet.json").write_text(json.dumps(sheet, ensure_ascii=False, indent=1), "utf-8")
        (folder / "DATASHEET.md").write_text(datasheet_markdown(sheet), "utf-8")
    return report


def _write_requests(folder: Path, frame: pl.DataFrame, store: BlobStore) -> None:
    for row in frame.filter(licence_class="allow").select("doc_id", "blobs").iter_rows(named=True):
        contents = {path: store.read(digest) for path, digest in wanted_blobs(row["blobs"]).items()}
        for name, lines in routing_lines(row["doc_id"], contents).items():
            if lines:
                folder.mkdir(exist_ok=True)
                with (folder / name).open("a", encoding="utf-8") as file:
                    file.writelines(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def _wanted(licences: Iterable[str]) -> frozenset[LicenceClass]:
    wanted = require_classes(licences)
    if not wanted or "deny" in wanted:
        raise WrongInput("--licence takes allow and metadata-only: a text that is denied is never exported")
    return wanted


def _partitions(root: Root, policy: LicencePolicy) -> Iterator[pl.DataFrame]:
    table = documents_table(root)
    # A writer takes its columns from the first frame, and an empty corpus has no other.
    yield table.read([]).with_columns(licence_class=pl.lit("", pl.String))
    for partition in range(PARTITIONS):
        frame = table.read([partition]).sort("doc_id")
        if not frame.is_empty():
            sources = pl.col("source").replace({spec: shown_spec(spec) for spec in frame["source"].unique()})
            yield frame.with_columns(licence_classes(frame["licence"], policy), sources)


def without_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return documents with null for the text of those whose `licence_class` is not `allow`."""
    kept_back = pl.col("licence_class") != "allow"
    from_body = kept_back & pl.col("inferred").list.contains("description")
    # A finding's message may cite the text it was found in; its code and severity do not.
    no_message = pl.element().struct.with_fields(pl.lit(None, pl.String).alias("message"))
    uncited = {
        name: pl.when(~kept_back).then(name).otherwise(pl.col(name).list.eval(no_message))
        for name in ("findings", "risks")
    }
    return frame.with_columns(
        body=pl.when(~kept_back).then("body"), description=pl.when(~from_body).then("description"), **uncited
    )


def with_quality(frame: pl.DataFrame) -> pl.DataFrame:
    """Return documents with a struct `quality`: the measures of `tasks.refine.structure.Quality`."""
    measured = quality_frame(frame).select("doc_id", quality=pl.struct(MEASURES))
    return frame.join(measured, on="doc_id", how="left", maintain_order="left")


def _report(out: Path, format: str, rows: pl.DataFrame, classes: Counter[str]) -> ExportReport:  # noqa: A002
    there = Counter(rows["licence_class"])
    # Counter's difference keeps what is positive: the classes of which something stayed behind.
    left_out, by_class = (dict(sorted(counts.items())) for counts in (classes - there, classes))
    return ExportReport(str(out), format, rows.height, there["allow"], left_out, by_class)


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """Lend a folder beside `out` that is renamed to `out` on success and removed on failure.

    What a killed export left there goes first: nobody holds a lock on it any more.
    """
    beside = out.with_name(f".{out.name}.{uuid.uuid4().hex[:8]}.tmp")
    with contextlib.ExitStack() as held:
        try:
            if out.exists() and (not out.is_dir() or any(out.iterdir())):
                raise WrongInput(f"--out {out} is no empty folder: name one that is not there yet")
            out.parent.mkdir(parents=True, exist_ok=True)
            with _locked(out.parent):
                for left in out.parent.glob(f".{escape(out.name)}.????????.tmp"):
                    with contextlib.suppress(OSError), _locked(left, fcntl.LOCK_NB):
                        shutil.rmtree(left, ignore_errors=True)
                beside.mkdir()
                held.enter_context(_locked(beside))
            yield beside
            with contextlib.suppress(FileNotFoundError):
                out.rmdir()
            beside.rename(out)
        except OSError as error:
            raise WrongInput(f"--out {out} cannot be written ({error.strerror or error})") from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _locked(folder: Path, or_fail: int = 0) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | or_fail)
        yield
    finally:
        os.close(descriptor)
