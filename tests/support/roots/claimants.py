"""Claimants of ids: publishers who copy, rename, recreate and name things alike, and whose each answer is."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from flows.commands.installing import InstallSettings, install_skills
from flows.serve.answers.forms import PageArguments, ReadArguments
from flows.serve.answers.service import Service, load_serving
from flows.serve.answers.tools import page_skill, read_skill_file
from flows.settings import load_settings
from storage.errors import UnknownDocument
from storage.schemas import RawDocument
from storage.state import seen_table
from tasks.crawl.claims import publisher
from tasks.crawl.source.base import CrawlContext, Source
from tasks.crawl.sources import open_source
from tasks.refine.export.export import export_corpus
from tasks.retrieve.revisions.edition import find_row
from tests.support.crawl.crawling import settings_of
from tests.support.marketplace.repository import Repository
from tests.support.marketplace.world import World
from tests.support.roots.nights import HandSource, Nights, raw, with_files
from tests.support.roots.skill_root import Export, SkillRoot

STEPS = " ".join(f"Step {n} merges page {n} of each file." for n in range(20))
QUERY = "merge the pages"
_URL = "https://github.com/good/tools/tree/main/pdf"
_HELD = {  # by what happens: of which source, under which id, and what its row says of its place
    "folder": ("dir:/home/ann/skills", "local/skills/pdf", {}),
    "same folder name": ("dir:/home/ann/dl/skills", "local/skills/pdf", {}),
    "forge's local": ("git+https://github.com/local/skills", "local/skills/pdf", {"repo": "local/skills"}),
    "same name": ("parquet:/names", "pdf", {}),
    "second forge": ("git+https://git.example/good/tools", "git.example/good/tools/pdf", {}),
    "url": ("parquet:/urls", "good/tools/pdf", {"url": _URL, "repo": "good/tools"}),
    "id": ("parquet:/ids", "Good/Tools/pdf", {}),
}
HAPPENINGS = ("good", "copy", "near copy", "renamed", "recreated", "gone", *_HELD)
# One row's word for where it is from, written in other ways.
SAID = {
    "plain url": "http://github.com/good/tools", "url in capitals": "https://WWW.GitHub.com/GOOD/Tools/blob/x/pdf",
    "git url": "git@github.com:good/tools.git", "encoded url": "https://github.com/good/t%6Fols/tree/main/pdf",
    "url with a login": "https://github.com:443@github.com/good/tools/",
}  # fmt: skip
_HELD |= {
    what: (f"parquet:/said {what}", "good/tools/pdf", {"url": url, "repo": "good/tools"})
    for what, url in SAID.items()
}


class Claimants:
    """A root below a folder, and who publishes what; each night something `happens`.

    What a publisher holds beside SKILL.md names it, so that no bundle is equal to another's.
    """

    def __init__(self, folder: Path, export: Export, world: World, environment: dict[str, str]) -> None:
        self.served = SkillRoot.below(folder, export, {})
        self.nights, self._world = Nights(self.served.root.folder), world
        self._folder, self._settings = folder, settings_of(environment)
        self._hands: dict[str, HandSource] = {}
        self._watched: list[str] = []
        self._good: Repository | None = None
        self._names = map("good/kit{}".format, itertools.count())
        self._texts: dict[str, set[str]] = {}  # of each publisher the bodies that it has had
        self._scripts: dict[str, str] = {}
        self._owners: dict[str, str] = {}

    def happens(self, what: str) -> None:
        """Let something happen, and bring the corpus in step."""
        if what in _HELD:
            spec, doc_id, said = _HELD[what]
            self._hands[spec] = HandSource(spec, self._by_hand(spec, doc_id, STEPS, said))
        elif what == "gone":
            for spec in list(self._hands)[:1]:
                self._hands[spec] = HandSource(spec)
        elif what in ("copy", "near copy"):
            self._commit(self._repository("evil/tools"), STEPS + " Done." * (what != "copy"))
        elif self._good is None or what == "recreated":
            if self._good is not None:
                self._good.delete()
            self._good = self._repository(self._good.name if self._good else "good/tools")
            self._commit(self._good, STEPS if what != "recreated" else f"{STEPS} Then upload them.")
        elif what == "renamed":
            self._good.rename(next(self._names))
            self._commit(self._good, f"{STEPS} It has moved.")
        self.nights.run(*(self._opened(spec) for spec in self._watched), *self._hands.values())

    def _opened(self, spec: str) -> Source:
        return open_source(spec, CrawlContext(self.nights.root, self.nights.now, None, self._settings))

    def _repository(self, name: str) -> Repository:
        found = self._world.repository(name)
        if (spec := f"github:{name}") not in self._watched and not self._world.find(name)[1]:
            self._watched.append(spec)
        return found

    def _commit(self, repository: Repository, text: str) -> None:
        name = f"repository {repository.repo_id}"
        repository.commit({"pdf/SKILL.md": self._skill(name, text), "pdf/run.sh": self._script(name)})

    def _by_hand(self, spec: str, doc_id: str, text: str, said: dict[str, Any]) -> RawDocument:
        name = publisher(spec) if not spec.startswith("git+https") else spec
        found = raw(doc_id, self._skill(name, text), **said)
        return with_files(found, {"run.sh": self._script(name)})

    def _skill(self, name: str, text: str) -> bytes:
        self._texts.setdefault(name, set()).add(text)
        return f"---\nname: pdf\ndescription: Merges PDF files.\nlicense: MIT\n---\n{text}\n".encode()

    def _script(self, name: str) -> bytes:
        script = f"echo {name}\n".encode()
        self._scripts[name] = hashlib.sha256(script).hexdigest()
        return script

    def check_rows(self) -> list[str]:
        """Require that ids mean what their first publishers hold; return those that answer."""
        found = []
        for doc_id in {*self._owners, *seen_table(self.nights.root).read()["doc_id"], *self.nights.aliases()}:
            try:
                row, _ = find_row(self.nights.root, doc_id)
            except UnknownDocument:
                continue
            spec = row["source"]
            by_spec = spec if spec.startswith("git+https") else publisher(spec)
            name = f"repository {row['repo_id']}" if row["repo_id"] else by_spec
            # A row's word for where it is from is good until the forge's own document says otherwise.
            if self._owners.get(doc_id) in {_HELD[what][0] for what in ("url", *SAID)}:
                self._owners[doc_id] = name
            assert self._owners.setdefault(doc_id, name) == name, doc_id
            assert row["body"] in self._texts[name], doc_id
            assert [file["sha256"] for file in row["files"]] == [self._scripts[name]], doc_id
            # Another claim to an id is kept apart, and says so.
            codes = [finding["code"] for finding in row["findings"]]
            assert ("~" not in doc_id) or codes.count("identity.apart") == 1 or doc_id != row["doc_id"]
            found.append(doc_id)
        return sorted(found)

    def check_answers(self, *others: Callable[[str], tuple[str, str]]) -> None:
        """Require the same of what is paged, exported, installed and told by the tools.

        Args:
            others: Each returns of an id what a page says in `context`, and its script.
        """
        found = self.check_rows()
        if not self.nights.documents():
            return
        self.served.night = self.nights.night
        self.served.parse(vectors=False)
        self.served.index(nodes=False)
        service = Service(self.served.root, load_settings(), load_serving())
        try:
            for doc_id in found:
                self._require(doc_id, *self._by_tools(service, doc_id))
                self._require(doc_id, *self._installed(doc_id))
                for asked in others:
                    self._require(doc_id, *asked(doc_id))
        finally:
            service.close()
        out = self._folder / f"export-{self.nights.night}"
        export_corpus(self.nights.root, out, now=self.nights.now)
        for row in pl.read_parquet(out / "documents.parquet").to_dicts():
            self._require(row["doc_id"], row["body"], row["files"][0]["sha256"])

    def _by_tools(self, service: Service, doc_id: str) -> tuple[str, str]:
        paged = page_skill(service, PageArguments(doc_id=doc_id, request=QUERY, budget=10_000))
        read = read_skill_file(service, ReadArguments(doc_id=doc_id, path="run.sh"))
        return paged.context, hashlib.sha256((read.text or "").encode()).hexdigest()

    def _installed(self, doc_id: str) -> tuple[str, str]:
        to = self._folder / f"installed-{self.nights.night}" / hashlib.sha256(doc_id.encode()).hexdigest()[:8]
        given = f"id:{doc_id}"
        install_skills(self.nights.root, to, [given], None, [], InstallSettings(refuse=[]))
        skill = (to / "pdf/SKILL.md").read_text("utf-8")
        return skill.split("---\n")[2].strip(), hashlib.sha256((to / "pdf/run.sh").read_bytes()).hexdigest()

    def _require(self, doc_id: str, text: str, script: str) -> None:
        name = self._owners[doc_id]
        assert script == self._scripts[name], doc_id
        assert text.strip() in self._texts[name], (doc_id, text)
