"""The commands `skillery train ...`: models trained on a corpus of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.options import JsonOption, RootOption, print_json, require_command, root_of
from flows.settings import load_settings

train_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@train_app.callback()
def _train(context: typer.Context) -> None:
    """Train models on a corpus, and measure whether that helps."""
    require_command(context)


@train_app.command("routing")
def train_routing(
    corpus: Annotated[
        list[Path], typer.Option("--corpus", help="A root, Parquet or JSON lines of skills; repeatable.")
    ],
    out: Annotated[Path, typer.Option("--out", help="A folder, empty or of the same training.")],
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Queries to train with at most.")] = 2500,
    reranker: Annotated[
        str | None, typer.Option("--reranker", help="A cross-encoder to train too: a folder or hub id.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides all that chance does.")] = 0,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train the encoder to find skills by what their bodies say, against hard negatives."""
    from flows.printing_training import print_training  # noqa: PLC0415
    from flows.training import Wishes, train_routing  # noqa: PLC0415

    settings = load_settings()
    found = train_routing(root_of(settings, root), settings, Wishes(corpus, out, pairs, reranker, seed))
    print_json(found) if as_json else print_training(found)
