"""Known files of a skill, as facts: the requests of its tests, its card, and its benchmark."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from tasks.models.fields import without_surrogates
from tasks.refine import signatures
from tasks.refine.text.encodings import decode

_EVALS = re.compile(r"evals/[^/]+\.json|eval/[^/]+\.json|benchmark/evals\.json", re.IGNORECASE)
_CARDS = {"skill-card.md": "card", "benchmark.md": "benchmark"}
_MOST_EVALS, _MOST_CHARS, _MOST_SECTIONS = 1_000, 2_000, 40


class EvalRequest(NamedTuple):
    """A request of a skill's own tests; `wanted` tells whether the skill is for it."""

    eval_id: str
    question: str
    wanted: bool


def is_known_file(path: str) -> bool:
    """Tell whether a file beside a SKILL.md is one whose facts are read."""
    return path.lower() in (*_CARDS, *signatures.NAMES) or _EVALS.fullmatch(path) is not None


def eval_requests(contents: Mapping[str, bytes]) -> list[EvalRequest]:
    """Return the requests in a skill's files; what has another form is left out.

    They are objects `{id, question, expected_skill}`, the last null where the skill is not for the request.
    """
    found: dict[str, EvalRequest] = {}
    for path in sorted(path for path in contents if _EVALS.fullmatch(path)):
        try:
            rows = json.loads(contents[path])
        except (ValueError, RecursionError):
            continue
        for number, row in enumerate(rows[:_MOST_EVALS] if isinstance(rows, list) else []):
            question = row.get("question") if isinstance(row, dict) else None
            if isinstance(question, str) and question.strip() and "expected_skill" in row:
                eval_id = f"{path}#{str(row.get('id', number))[:100]}"
                text, wanted = question.strip()[:_MOST_CHARS], row["expected_skill"] is not None
                eval_id, text = without_surrogates(eval_id), without_surrogates(text)
                found.setdefault(eval_id, EvalRequest(eval_id, text, wanted))
    return list(found.values())


def known_facts(contents: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the facts in known files: `evals` counted, and what each heading of the others says."""
    requests = eval_requests(contents)
    facts: dict[str, Any] = {}
    if requests:
        wanted = sum(request.wanted for request in requests)
        facts["evals"] = {"queries": wanted, "negatives": len(requests) - wanted}
    for path in sorted(contents):
        if (kind := _CARDS.get(path.lower())) and (sections := _sections(decode(contents[path])[0])):
            facts.setdefault(kind, sections)
    return facts


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"(?m)^#{1,6}[ \t]+(\S[^\n]*?)[ \t#]*$", text)
    below = {h[:100]: " ".join(said.split()) for h, said in zip(parts[1::2], parts[2::2], strict=True)}
    filled = {heading: said[:_MOST_CHARS] for heading, said in below.items() if said}
    return dict(list(filled.items())[:_MOST_SECTIONS])


def routing_lines(doc_id: str, contents: Mapping[str, bytes]) -> dict[str, list[dict[str, Any]]]:
    """Return a skill's requests as the lines of a routing bench, by the names of its files."""
    lines: dict[str, list[dict[str, Any]]] = {"queries.jsonl": [], "qrels.jsonl": [], "negatives.jsonl": []}
    for request in eval_requests(contents):
        line = {"query_id": f"{doc_id}#{request.eval_id}", "text": request.question}
        if request.wanted:
            lines["queries.jsonl"].append(line)
            lines["qrels.jsonl"].append({"query_id": line["query_id"], "doc_id": doc_id, "relevance": 1})
        else:
            lines["negatives.jsonl"].append({**line, "not_doc_id": doc_id})
    return lines


def wanted_blobs(blobs: Collection[Mapping[str, Any]] | None) -> dict[str, str]:
    """Return the digests of the known files among those that are kept, by path."""
    return {blob["path"]: blob["sha256"] for blob in blobs or () if is_known_file(blob["path"])}
