"""Crawl each kind of registry, again, and with 1 % of its skills changed: requests and seconds.

Run by hand: `python -m tests.benchmarks.crawl_registries [KIND]...`; ClawHub lists 5,000 skills, others 500.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tasks.crawl.registries.discovery import OLDER_FOLDER, OLDER_INDEX, older_index_json
from tests.support.crawl.crawling import Crawler, grows, settings_of
from tests.support.crawl.registries import Garden, Hub, Site
from tests.support.crawl.zip_files import zipped
from tests.support.marketplace.server import Marketplace
from tests.support.marketplace.world import World

SKILLS = 500
# A spec, what its crawler's environment has, and what writes skills of a text by their numbers.
Registry = tuple[str, Mapping[str, str], Callable[[Iterable[int], str], None]]


@contextmanager
def clawhub() -> Iterator[Registry]:
    with Hub() as hub:
        hub.pages["/api/v1/download"] = hub.download

        def put(numbers: Iterable[int], text: str) -> None:
            for number in numbers:
                hub.put(f"skill-{number}", grows(f"skill-{number}", text))

        yield "clawhub", {"SKILLERY_CLAWHUB_URL": hub.url}, put


@contextmanager
def well_known() -> Iterator[Registry]:
    skills = dict[str, bytes]()
    with Garden() as site:

        def put(numbers: Iterable[int], text: str) -> None:
            skills.update({f"skill-{number}": grows(f"skill-{number}", text) for number in numbers})
            site.plant(skills)

        yield f"well-known:{site.url}", {}, put


@contextmanager
def well_known_older() -> Iterator[Registry]:
    names = [f"skill-{number}" for number in range(SKILLS)]
    with Site() as site:

        def put(numbers: Iterable[int], text: str) -> None:
            for name in [names[number] for number in numbers]:
                site.pages[f"/{OLDER_FOLDER}/{name}/SKILL.md"] = grows(name, text)

        site.pages[f"/{OLDER_INDEX}"] = older_index_json((name, "", ["SKILL.md"]) for name in names)
        yield f"well-known:{site.url}", {}, put


@contextmanager
def archives() -> Iterator[Registry]:
    plugins = dict[str, dict[str, object]]()
    with Site() as site:

        def put(numbers: Iterable[int], text: str) -> None:
            for name in [f"skill-{number}" for number in numbers]:
                content = zipped({f"skills/{name}/SKILL.md": grows(name, text)})
                site.pages[f"/{name}.zip"] = content
                digest = hashlib.sha256(content).hexdigest()
                source = {"source": "archive", "url": f"{site.url}/{name}.zip", "sha256": digest}
                plugins[name] = {"name": name, "source": source}
            site.pages["/m.json"] = {"name": "m", "owner": {"name": "A"}, "plugins": [*plugins.values()]}

        yield f"marketplace:{site.url}/m.json", {}, put


@contextmanager
def repository(each: int = SKILLS) -> Iterator[Registry]:
    """Plugins in folders of the marketplace's repository, or `each` of them in a repository of its own."""
    world, own = World(), each == SKILLS
    world.github.anonymous_limit = 5_000
    with Marketplace(world) as market:

        def put(numbers: Iterable[int], text: str) -> None:
            for at in sorted({number // each for number in numbers}):
                of = [n for n in numbers if n // each == at]
                made = world.repository("ann/sea" if own else f"bob/pack-{at}")
                made.commit({f"p/s{n}/skills/s{n}/SKILL.md": grows(f"s{n}", text) for n in of})

        def source(number: int) -> object:
            path = f"p/s{number}"
            url = f"bob/pack-{number // each}"
            return f"./{path}" if own else {"source": "git-subdir", "url": url, "path": path}

        plugins = [{"name": f"s{number}", "source": source(number)} for number in range(SKILLS)]
        manifest = {"name": "sea", "owner": {"name": "A"}, "plugins": plugins}
        world.repository("ann/sea").commit({".claude-plugin/marketplace.json": json.dumps(manifest).encode()})
        yield "marketplace:ann/sea", market.environment(), put


KINDS = {
    "well-known 0.2.0": well_known, "well-known 0.1.0": well_known_older, "marketplace of archives": archives,
    "marketplace with its plugins": repository, "marketplace of 100 repositories": lambda: repository(5),
    "clawhub": clawhub,
}  # fmt: skip


def main() -> None:
    """Print a line a night."""
    for kind in sys.argv[1:] or KINDS:
        size = 5_000 if kind == "clawhub" else SKILLS
        with KINDS[kind]() as (spec, environment, put), tempfile.TemporaryDirectory() as folder:
            put(range(size), "Water it at dawn.")
            crawler = Crawler(Path(folder), settings_of(environment))
            for night in ("first", "unchanged", "1 % changed", "7 days later"):
                if night == "1 % changed":
                    put(range(0, size, 100), "Water it at dusk.")
                began, processor = time.monotonic(), time.process_time()
                report = crawler.crawl(spec, days=7 if night == "1 % changed" else 1)
                counted = f"{report.new} new, {report.changed} changed, {report.unchanged} unchanged"
                took = (
                    f"{time.monotonic() - began:.1f} s ({time.process_time() - processor:.1f} of processor)"
                )
                sys.stdout.write(f"{kind}, {night}: {report.requests} requests, {took}, {counted}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
