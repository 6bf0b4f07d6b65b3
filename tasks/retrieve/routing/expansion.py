"""Expansion: requests that a language model writes about each skill, and their vectors.

People ask by goals and symptoms, in words that a skill does not have; so requests are foretold, and indexed
beside it (Nogueira et al., "Document Expansion by Query Prediction", 2019). They are written as SkillRouter
has those written that it trains with, but five a skill and shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import polars as pl
from pydantic import AfterValidator, ValidationInfo

from storage.partitions import Manifest, partition_of
from storage.root import Root
from storage.state import EXPANSIONS, documents_table, expansions_table
from tasks.models.adapted_encoder import WIDTH
from tasks.models.llm.ask import Fallback, Llm
from tasks.models.llm.errors import Rejected
from tasks.models.llm.prompt import Answer, Prompt, Text, Values, is_last, known_of
from tasks.models.llm.quoting import shortened
from tasks.models.protocols import Vectors
from tasks.models.token_states import unit
from tasks.refine.text.words import WORD
from tasks.retrieve.routing.learned_leg import packaged_digest, packaged_retriever
from tasks.retrieve.routing.skill import Skill

_WANTED, _TRIES = 5, 2
_CHARACTERS = (6, 500)  # of a request
_BODY, _DESCRIPTION = 1_500, 750  # characters that are sent: what a skill is for stands at its beginning


def _good(requests: list[str], info: ValidationInfo) -> list[str]:
    """Return the requests that can be used, each once; of the last answer fewer than five are enough.

    One that has a name of several words knows the skill, and nobody asks so.
    """
    (least, most), name = _CHARACTERS, _words(known_of(info) or "")
    found = dict.fromkeys(" ".join(text.split()) for text in requests)
    good = [text for text in found if least <= len(text) <= most]
    good = [text for text in good if " " not in name or name not in _words(text)][:_WANTED]
    if len(good) < (1 if is_last(info) else _WANTED):
        wanted = f"{_WANTED} of {least} to {most} characters that differ and do not name the skill"
        raise Rejected(f"{len(good)} requests can be used; write {wanted}")
    return good


def _words(text: str) -> str:
    return " ".join(WORD.findall(text.casefold()))


class _Requests(Answer):
    requests: Annotated[list[Text], AfterValidator(_good)]


PROMPT: Prompt[_Requests] = Prompt("expansion-3", "tasks.retrieve/expansion_prompt.txt", _Requests)


def expand(root: Root, llm: Llm) -> dict[str, Any]:
    """Have requests written about each document of the corpus whose text, as it is, has none yet by a model.

    What could not be asked about for now is asked about by the next call; about a text on which the model
    gives nothing that can be used, nobody is asked again. Raises `LlmDenied` if the server rejects the key,
    or has no such model.

    Returns:
        `asked` (documents), `written` (requests), `unfinished` (documents), `partial`, and the keys of
        `Llm.report`.
    """
    table, corpus, counts = expansions_table(root), documents_table(root), Counter[str]()
    todo, gone = waiting(root, llm.model)
    table.replace(gone.to_list(), pl.DataFrame(schema=EXPANSIONS))
    for partition in sorted(set(map(partition_of, todo))):
        rows = corpus.read([partition], [*Skill._fields, "content_hash"])
        rows = rows.filter(pl.col("doc_id").is_in(todo.implode()))
        jobs = (
            llm.answer(PROMPT, _values(Skill(*row)), tries=_TRIES)
            for row in rows.select(Skill._fields).rows()
        )
        told = [_told(said) for said in llm.gather(jobs)]
        done = rows.select(
            *_KEY, made_by=pl.lit(_made_by(llm.model)),
            requests=pl.Series(told, dtype=EXPANSIONS["requests"]),
            vector=pl.Series(_vectors(told), dtype=EXPANSIONS["vector"]),
        ).filter(pl.col("requests").is_not_null())  # fmt: skip
        table.replace(done["doc_id"].to_list(), done)
        counts["written"] += int(done["requests"].list.len().sum())
        counts["unfinished"] += rows.height - done.height
    return {
        "asked": len(todo), "written": counts["written"], "unfinished": counts["unfinished"],
        "partial": llm.unfinished, **llm.report(),
    }  # fmt: skip


_KEY = ["doc_id", "content_hash"]


def waiting(root: Root, model: str) -> tuple[pl.Series, pl.Series]:
    """Return the ids of documents about whose text a model has not been asked, and those that are no more."""
    documents = documents_table(root).read(columns=_KEY)
    held = expansions_table(root).read(columns=[*_KEY, "made_by"])
    todo = documents.join(held.filter(made_by=_made_by(model)), on=_KEY, how="anti")
    return todo["doc_id"], held.join(documents, on="doc_id", how="anti")["doc_id"]


def _made_by(model: str) -> str:
    """Return all that a row depends on beside the text; with other weights its vector is made anew."""
    return f"{PROMPT.name}@{model} {_weights()}"


def _weights() -> str:
    return packaged_digest()[:12]


def _values(skill: Skill) -> Values:
    body, description = shortened(skill.body, _BODY), shortened(skill.description, _DESCRIPTION)
    record = {"name": skill.name, "description": description, "body": body}
    return Values("Write the five requests.", [record], (skill.doc_id,), known=skill.name)


def _told(said: _Requests | Fallback) -> list[str] | None:
    """Return the requests of an answer, none if there is no good one; None: it may yet be had."""
    if isinstance(said, Fallback):
        return None if said.early else []
    return said.requests


def _vectors(told: Sequence[list[str] | None]) -> list[list[float] | None]:
    texts = [text for requests in told for text in requests or ()]
    vectors, _ = packaged_retriever(None).requests(texts) if texts else (np.zeros((0, WIDTH), np.float32), [])
    found, at = list[list[float] | None](), 0
    for requests in told:
        own = vectors[at : at + len(requests or ())]
        found.append(unit(own.mean(axis=0, keepdims=True))[0].tolist() if len(own) else None)
        at += len(own)
    return found


def expansions_digest(root: Root) -> str | None:
    """Return what changes whenever a root's expansions do; None where it has none."""
    return Manifest(root, expansions_table(root).folder).digest() if _is_there(root) else None


def expansion_vectors(root: Root, rows: pl.DataFrame) -> Vectors | None:
    """Return the vectors of what was written about texts, by their `doc_id` and `content_hash`.

    Their shape is `(rows, 384)`; zeros stand where nothing was. None: the root has no expansions.
    """
    if not _is_there(root):
        return None
    held = expansions_table(root).read(columns=[*_KEY, "made_by", "vector"])
    held = held.filter(pl.col("made_by").str.ends_with(_weights())).drop_nulls("vector")
    told = rows.select(_KEY).with_row_index().join(held, on=_KEY)
    found = np.zeros((rows.height, WIDTH), dtype=np.float32)
    found[told["index"].to_numpy()] = np.array(told["vector"].to_list(), np.float32).reshape(-1, WIDTH)
    return found


def _is_there(root: Root) -> bool:
    return root.exists(expansions_table(root).folder)
