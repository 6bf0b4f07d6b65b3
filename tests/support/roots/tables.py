"""What tests read of the tables that a build left."""

from __future__ import annotations

from typing import Any

from storage.lance.tables import NODES, SKILLS
from storage.state import nodes_table, parsed_table
from tasks.retrieve.index.build import Built
from tests.support.roots.skill_root import SkillRoot
from tests.support.roots.vendor import connect, open_at


def rows(root: SkillRoot, built: Built, table: str = SKILLS) -> dict[str, dict[str, Any]]:
    version = built.skills if table == SKILLS else built.nodes
    assert version is not None
    found = open_at(connect(root.root), table, version).search().to_arrow().to_pylist()
    key = "doc_id" if table == SKILLS else "node_id"
    assert len({row[key] for row in found}) == len(found)
    return {row[key]: row for row in found}


def in_step(root: SkillRoot, built: Built) -> bool:
    """Tell whether both tables hold exactly what the corpus holds, all of it indexed."""
    corpus = nodes_table(root.root).read()
    nodes = rows(root, built, NODES)
    digests = dict(parsed_table(root.root).read().select("doc_id", "digest").iter_rows())
    skills = rows(root, built)
    return (
        {n: r["text"] for n, r in nodes.items()} == dict(corpus.select("node_id", "text").iter_rows())
        and {d: r["nodes_digest"] for d, r in skills.items()} == digests
        and all(check.passed for check in root.check(built))
    )
