"""A root on which one skill has left its text in every place that there is, and a look into each of them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from storage.answers import Answers, KeptAnswer
from storage.lance.versions import table_names
from storage.parquet import write_frame
from storage.root import Root
from storage.schemas import LISTINGS, Listing, to_frame
from tasks.crawl.backfill import replay_seen
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.corpus import parse_partitions, plan_parse, rules_digest
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tests.support.roots.hand_written import BEES, BIKE, skill
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at

# A word for each text that the skill has held: no stemmer or compression makes another of it.
FIRST, SECOND, LAST, HEAD = "qzxvkrusten", "wqjxzlaibe", "zvqxjteige", "kxqzwbrote"
WORDS = (FIRST, SECOND, LAST, HEAD)
TARGET, COPY = "local/market/rye", "local/market/copy-of-rye"
OTHERS = {"bees": BEES, "bike": BIKE}


def rye(word: str) -> str:
    return skill(
        "rye",
        f"Bakes rye bread from {HEAD}",
        f"""# Rye

Feed the sourdough called {word} the evening before.

1. Mix rye flour with warm water and {word}.
2. Bake it until a {word} sounds hollow.

If {word} smells of vinegar then feed it twice a day.
""",
    )


def copy_of(word: str) -> str:
    return rye(word).replace("name: rye", "name: copy of rye")


def fill(root: SkillRoot) -> None:
    """Publish three versions, rebuild a past day, and stop a fourth night before its index."""
    for name, text in {**OTHERS, "rye": rye(FIRST)}.items():
        root.write(name, text)
    root.publish()
    _rebuild(root)
    root.write("rye", rye(SECOND))
    root.write("copy-of-rye", copy_of(SECOND))
    root.publish()
    root.write("bike", BIKE.replace("sandpaper", "emery cloth"))
    root.publish()
    for name, text in (("rye", rye(LAST)), ("copy-of-rye", copy_of(LAST))):
        root.write(name, text)
    root.crawl()
    root.parse()
    _strew(root.root)


def refined_past(root: SkillRoot) -> Root:
    """Refine the day of the last night again, into the tables of that day, and return their root."""
    day = f"{root.now:%Y-%m-%d}"
    past, limits = Root(root.root.at(f"backfill/date={day}")), FilterLimits()
    replay_seen(root.root, day, past)
    for parts in plan_refine(past, limits).batches:
        refine_batch(past, parts, run_id="past", limits=limits, raw=root.root)
    update_corpus(past, run_id="past", now=root.now)
    return past


def _rebuild(root: SkillRoot) -> None:
    past = refined_past(root)
    rules = rules_digest("rules", "tokens", None)
    for partitions in plan_parse(past, rules).batches:
        parse_partitions(
            past, partitions, rules=rules, classifier=LocalClassifier(), tokenizer=root.encoder, encoder=None
        )


def _strew(root: Root) -> None:
    """Put it where other stages may: an archive, a list, an answer, a killed write's rest, any table."""
    with Answers(root) as answers:
        for doc_id, said in ((TARGET, LAST), (COPY, SECOND), ("local/market/bees", "hum")):
            answers.keep(KeptAnswer(doc_id, "m", "p", 0, said, None, 1, 1, "2025-03-01"), [doc_id])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("market/rye/SKILL.md", rye(LAST))
    root.write("state/crawl/archives/market.zip", buffer.getvalue())
    (root.folder / "documents" / "part-07.parquet.0123abcd.tmp").write_text(rye(LAST), "utf-8")
    novel = pl.DataFrame({"node_id": [f"{TARGET}#3", "local/market/bees#0"], "said": [LAST, "hum"]})
    write_frame(root, "state/novelty/part-00.parquet", novel, novel.schema)
    listed = [Listing("skillsmp", TARGET, description=HEAD), Listing("skillsmp", "bees", description="hum")]
    frame = to_frame(listed, LISTINGS)
    write_frame(root, "raw/listings/date=2025-03-01/run=x/part-00.parquet", frame, LISTINGS)


def holding(root: Root, words: tuple[str, ...] = WORDS) -> set[str]:
    """Return every file and table version below the root that holds one of the words."""
    files = [p for p in root.folder.rglob("*") if p.is_file() and "models" not in p.parts]
    names = {p.relative_to(root.folder).as_posix(): p for p in files}
    found = {name for name, path in names.items() if _says(path, words)}
    db = connect(root)
    for name in table_names(root):
        for version in [int(v["version"]) for v in db.open_table(name).list_versions()]:
            rows = open_at(db, name, version).search().to_arrow().drop_columns(["vector"]).to_pylist()
            if any(word in str(rows) for word in words):
                found.add(f"{name}@{version}")
    return found


def _says(path: Path, words: tuple[str, ...]) -> bool:
    text = path.read_bytes().decode("latin-1")
    if path.suffix == ".parquet":
        # What is compressed shows when it is read, and binary columns as bytes.
        text += str(pq.read_table(path).to_pylist())
    return any(word in text for word in words)
