"""Presets: the constants of a paper, set all at once as variables and options, and printed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import resources
from typing import Any

from flows.commands.console import say_aside
from storage.errors import WrongInput

Preset = Mapping[str, Any]

# By paper: `asks` says which models it asks where, which no setting chooses; `all` holds for every command,
# and the path of a command what holds for it alone. Options begin with dashes, all else are variables.
PRESETS: Mapping[str, Preset] = json.loads(
    resources.files("tasks.evaluate").joinpath("data/presets.json").read_text("utf-8")
)


def set_preset(name: str, command: str) -> dict[str, Any]:
    """Set a paper's variables that are not set, print all, and return its values of the command's options.

    Args:
        name: The paper's method.
        command: The path of the command, as `evaluate paging`.

    Raises:
        WrongInput: There is no such preset, or it says nothing of the command.
    """
    fitting = [preset for preset, told in PRESETS.items() if command in told]
    if name not in fitting:
        msg = f"--preset {name!r} says nothing of {command}: choose one of {', '.join(fitting)}"
        raise WrongInput(msg)
    preset = PRESETS[name]
    wanted = {**preset["all"], **preset[command]}
    say_aside(f"preset {name}; the paper asks {preset['asks']}")
    for key, value in wanted.items():
        text = value if isinstance(value, str) else json.dumps(value)
        own = text if key.startswith("-") else os.environ.setdefault(key, text)
        say_aside(f"  {key}={text}" if own == text else f"  {key}={own} (yours; the paper's is {text})")
    return {key.strip("-").replace("-", "_"): v for key, v in wanted.items() if key.startswith("-")}
