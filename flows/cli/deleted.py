"""Deleted commands, options and settings: whoever uses one is told what to use instead; exit code 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.errors import WrongInput

# What to use instead of deleted commands, by the words of one, such as "train pairs".
_COMMANDS: dict[str, str] = {
    "evaluate look-alikes": "near copies are folded by `skillery run`; `skillery search` shows them under "
    "`folded`, and nothing acted on skills that only mean nearly the same",
    "train pairs": "`skillery train routing` makes its queries from the bodies of skills, or reads "
    "requests that you have with --requests FOLDER (its `pairs.parquet`)",
}
# By the words of a command and an option of it.
_OPTIONS: dict[tuple[str, str], str] = {
    ("bench compose", "--llm"): "leave it out: the LLM that is set up writes each request",
}
_SETTINGS: dict[str, str] = {
    "SKILLERY_ENCODER_PRECISION": "leave it out: the encoder computes in bf16 where the processor does, else "
    "in float32",
    "SKILLERY_INDUCE_CHROMIUM": "name the browser with `--verify 'command:python -m "
    "tasks.induce.replay.chromium URL --chromium PROGRAM'`",
    "SKILLERY_TRAINING_DISTILLED": "leave it out: `skillery train routing` trains on queries with hard "
    "negatives; teaching the encoder the default's scores gained nothing for the default",
}


def refuse_deleted_command(arguments: Sequence[str]) -> None:
    """Raise `WrongInput` if the arguments, without the program's name, use a deleted command or option."""
    line = " ".join(arguments)
    for command, instead in _COMMANDS.items():
        if f"{line} ".startswith(f"{command} "):
            raise WrongInput(f"the command `{command}` was deleted: {instead}")
    for (command, option), instead in _OPTIONS.items():
        given = any(word == option or word.startswith(f"{option}=") for word in arguments)
        if given and f"{line} ".startswith(f"{command} "):
            raise WrongInput(f"{option} of `{command}` was deleted: {instead}")


def refuse_deleted_settings(environment: Mapping[str, str]) -> None:
    """Raise `WrongInput` if a setting that was deleted is among the environment variables."""
    for setting in sorted(_SETTINGS.keys() & environment.keys()):
        raise WrongInput(f"{setting} was deleted: {_SETTINGS[setting]}")
