"""Drives the stages' cores over a folder of skills, as the flows do, without Prefect."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from storage.lance.served import Served, require_served
from storage.root import Root
from storage.schemas import Dropped, RawDocument
from tasks.crawl.collect import collect
from tasks.crawl.local.directory import DirectorySource
from tasks.models.cached_encoder import KeptEncoder
from tasks.models.encoder import OnnxEncoder
from tasks.models.protocols import Vectors
from tasks.parse.classify.local import LocalClassifier
from tasks.parse.classify.protocol import Classifier
from tasks.parse.corpus import parse_partitions, plan_parse, rules_digest
from tasks.parse.edges.linker import Linker
from tasks.refine.batch import refine_batch
from tasks.refine.filters import FilterLimits
from tasks.refine.licences.policy import SERVE_POLICY
from tasks.refine.plan import plan_refine
from tasks.refine.update import update_corpus
from tasks.retrieve.index.build import Built, build
from tasks.retrieve.index.gate import Check, check_index, require_passed
from tasks.retrieve.index.licence_classes import classify_licences
from tasks.retrieve.served_index import ServedIndex
from tasks.retrieve.versions.publish import publish

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
SPEC = "dir:market"
_KNOWN: dict[str, tuple[Vectors, bytes]] = {}
_SEEN: Counter[Hashable] = Counter()
PUBLISHED = "ROOTS_PUBLISHED_BY_TESTS"  # names the folder of published roots that all workers of a run copy
_MODELS = shutil.ignore_patterns("models")
_FIRST_NIGHT = datetime(2025, 3, 1, 2, 0, tzinfo=UTC)


class Export(NamedTuple):
    """A folder with an export, and which training libraries the process that asked for it had loaded."""

    folder: Path
    loaded: list[str]


@functools.cache
def _loaded(folder: Path) -> OnnxEncoder:
    return OnnxEncoder(folder)


class CountingEncoder(OnnxEncoder):
    """The real encoder; notes every text it is given, and works out the vector of each once a session."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._real, self.encoded = _loaded((folder / "model.onnx").resolve().parent), list[str]()

    def encode(self, texts: Sequence[str]) -> Vectors:
        return self.encode_states(texts)[0]

    def encode_states(self, texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
        self.encoded.extend(texts)
        new = list({text for text in texts if text not in _KNOWN})
        _KNOWN.update(zip(new, zip(*self._real.encode_states(new), strict=True), strict=True))
        vectors = np.stack([_KNOWN[text][0] for text in texts]) if texts else self._real.encode([])
        return vectors, [_KNOWN[text][1] for text in texts]


class MarketSource(DirectorySource):
    """A folder of skills whose rows do not say where the folder lies, so that a root can be copied."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._uri, self.spec = Path(path).as_uri(), SPEC

    def read(self) -> Iterator[RawDocument | Dropped]:
        for item in super().read():
            if isinstance(item, RawDocument) and item.url:
                yield replace(item, url=item.url.replace(self._uri, "file:///market"))
            else:
                yield item


class SkillRoot:
    """A folder of skills and the root they are crawled into; ids are `local/market/<name>`."""

    def __init__(self, market: Path, root: Path | str, export: Path) -> None:
        self.market, self.root, self.night = market, Root(root), 0
        self.policy = SERVE_POLICY
        self._nights: tuple[Hashable, ...] = ()  # of this root, as far as all were published here
        self._left: list[tuple[str, int, int]] = []  # its files after the last of them
        self.source: type[DirectorySource] = MarketSource
        models = self.root.folder / "models"
        models.mkdir(parents=True)
        # Under its own name, by which the command finds it too.
        (models / export.name).symlink_to(export)
        self.model = f"models/{export.name}"
        self.root.send(self.model)
        self.use_encoder(CountingEncoder(models / export.name))

    @classmethod
    def below(cls, folder: Path, export: Export, skills: Mapping[str, str]) -> SkillRoot:
        """Return a root below a folder, with nothing in it yet, beside a folder of skills."""
        root = cls(folder / "market", folder / "root", export.folder)
        for name, text in skills.items():
            root.write(name, text)
        return root

    def copied(self, folder: Path) -> SkillRoot:
        """Return a copy of this root and its folder of skills below a folder, for one test to change."""
        copy = object.__new__(SkillRoot)
        copy.__dict__.update(self.__dict__)
        copy.market, copy.root = folder / "market", Root(folder / "root")
        shutil.copytree(self.market, copy.market)
        shutil.copytree(self.root.folder, copy.root.folder, symlinks=True)
        copy.use_encoder(CountingEncoder(copy.root.folder / self.model))
        return copy

    def use_model(self, name: str, revision: str) -> None:
        """Go over to an encoder with the same weights under another name and revision."""
        old, new = Path(self.root.at(self.model)), Path(self.root.at(f"models/{revision}"))
        shutil.copytree(old, new, copy_function=lambda a, b: Path(b).symlink_to(Path(a).resolve()))
        card = {**self.encoder.card, "name": name, "revision": revision}
        (new / "encoder.json").unlink()
        Root(new).write_json("encoder.json", card)
        self.model = f"models/{revision}"
        self.use_encoder(CountingEncoder(new))

    def use_encoder(self, encoder: CountingEncoder) -> None:
        """Encode with this one, and keep its vectors below the root as runs do."""
        self.encoder, self.kept = encoder, KeptEncoder(encoder, self.root)

    def write(self, name: str, text: str) -> None:
        (self.market / name).mkdir(parents=True, exist_ok=True)
        (self.market / name / "SKILL.md").write_text(text, "utf-8")

    def write_file(self, name: str, path: str, content: bytes) -> None:
        """Write a file beside a SKILL.md."""
        file = self.market / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.market / name)

    @property
    def now(self) -> datetime:
        return _FIRST_NIGHT + timedelta(days=self.night)

    @property
    def run_id(self) -> str:
        return f"{self.now:%Y%m%dT%H%M%S}"

    def crawl(self) -> None:
        """Bring the corpus in step with the folder."""
        self.night += 1
        limits = FilterLimits()
        collect(self.source(str(self.market)), self.root, run_id=self.run_id, now=self.now)
        for parts in plan_refine(self.root, limits).batches:
            refine_batch(self.root, parts, run_id=self.run_id, limits=limits)
        update_corpus(self.root, run_id=self.run_id, now=self.now)

    def parse(
        self, *, vectors: bool = True, classifier: Classifier | None = None, linker: Linker | None = None
    ) -> dict[str, int]:
        """Bring nodes and edges in step with the corpus; return what was done."""
        types: Classifier = classifier or LocalClassifier()
        revision = self.encoder.card["revision"]
        rules = rules_digest(
            types.name + (linker.name if linker else ""), revision, revision if vectors else None
        )
        done: Counter[str] = Counter(documents=0, nodes=0, edges=0, vectors=0)
        for partitions in plan_parse(self.root, rules).batches:
            done.update(
                parse_partitions(
                    self.root,
                    partitions,
                    rules=rules,
                    classifier=types,
                    tokenizer=self.encoder,
                    encoder=self.kept if vectors else None,
                    linker=linker,
                )
            )
        return dict(done)

    def build(self, *, nodes: bool = True, anew: bool = False) -> Built:
        return build(self.root, encoder=self.kept, with_nodes=nodes, anew=anew)

    def check(self, built: Built) -> list[Check]:
        return check_index(self.root, built, encoder=self.encoder)

    def publish(self, *, nodes: bool = True) -> Built:
        """Run a whole night, publish where anything changed, return what was built.

        A root to which nothing was done but this is copied from an earlier one with the same nights, so a
        test that patches what a night does calls `crawl`, `parse` and `index` instead.
        """
        usual = (
            type(self.encoder) is CountingEncoder and self.source is MarketSource and PUBLISHED in os.environ
        )
        untouched = self._files() == self._left if self._nights else not self.root.files("raw")
        if not (usual and untouched and self.root.uri == str(self.root.folder)):
            return self._publish(nodes)
        files = sorted(f for f in self.market.rglob("*") if f.is_file())
        skills = tuple((f.relative_to(self.market).as_posix(), f.read_bytes()) for f in files)
        self._nights = key = (*self._nights, (nodes, self.policy, self.model, skills))
        place = Path(os.environ[PUBLISHED], hashlib.sha256(repr(key).encode()).hexdigest())
        if place.exists():
            built = self._copy(place)
        else:
            before = len(self.encoder.encoded)
            built = self._publish(nodes)
            _SEEN[key] += 1
            if len(key) == 1 or _SEEN[key] == 2:  # most later nights are those of one test alone
                self._keep(place, built, self.encoder.encoded[before:])
        self._left = self._files()
        return built

    def _keep(self, place: Path, built: Built, encoded: list[str]) -> None:
        new = place.with_name(uuid.uuid4().hex)
        shutil.copytree(self.root.folder, new / "root", ignore=_MODELS)
        (new / "built").write_bytes(pickle.dumps((built, encoded)))
        with contextlib.suppress(OSError):  # the other worker kept it first
            new.rename(place)

    def _copy(self, kept: Path) -> Built:
        built: Built
        built, encoded = pickle.loads((kept / "built").read_bytes())  # noqa: S301 - this run wrote it
        for child in self.root.folder.iterdir():
            if child.name != "models":
                shutil.rmtree(child) if child.is_dir() else child.unlink()
        shutil.copytree(kept / "root", self.root.folder, dirs_exist_ok=True)
        self.encoder.encoded.extend(encoded)
        self.night += 1
        return built

    def _files(self) -> list[tuple[str, int, int]]:
        files = (f for f in self.root.folder.rglob("*") if f.is_file() and not f.is_symlink())
        stats = ((str(f), f.stat()) for f in files)
        return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)

    def _publish(self, nodes: bool) -> Built:
        self.crawl()
        self.parse(vectors=nodes)
        return self.index(nodes=nodes)

    def index(self, *, nodes: bool = True) -> Built:
        """Build, check and publish as the index flow does; return what was built."""
        built = self.build(nodes=nodes)
        classify_licences(self.root, built.skills, self.policy)
        if built.changed:
            require_passed([asdict(check) for check in self.check(built)])
            card = self.encoder.card
            publish(self.root, built, card=card, path=self.model, run_id=self.run_id, now=self.now)
        return built

    def served(self) -> Served:
        return require_served(self.root)

    def ask(self) -> ServedIndex:
        return ServedIndex(self.root, encoder=self.encoder.card["name"])


Make = Callable[[dict[str, str]], SkillRoot]
