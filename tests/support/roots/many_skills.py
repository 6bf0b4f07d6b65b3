"""Skills in any number, written by rule: each has things of its own to say, in words that others lack."""

from __future__ import annotations

from tests.support.roots.hand_written import skill

_TRADES = {
    "baker": ("dough", "oven", "sourdough starter"), "beekeeper": ("hive", "smoker", "queen bee"),
    "potter": ("clay", "kiln", "celadon glaze"), "sailor": ("mainsail", "winch", "anchor chain"),
    "gardener": ("compost", "pruning shears", "tomato seedling"), "cobbler": ("sole", "awl", "waxed thread"),
    "brewer": ("malt", "mash tun", "hop pellet"), "weaver": ("warp", "loom", "linen yarn"),
    "farrier": ("hoof", "anvil", "horseshoe nail"), "printer": ("ink", "press", "lead type"),
    "glazier": ("pane", "glass cutter", "putty"), "cooper": ("stave", "hoop driver", "oak barrel"),
}  # fmt: skip
_TASKS = {
    "mend": ("repair a broken {0}", "Warm the {0} before you touch its crack with the {1}."),
    "choose": ("choose a good {0}", "Hold the {0} against the light and look for flaws beside the {2}."),
    "store": ("store a {0} over winter", "Wrap the {0} in dry paper and keep the {1} away from frost."),
    "clean": ("clean a dirty {0}", "Scrub the {0} with lukewarm soda water, never with the {2}."),
    "measure": ("measure a {0} exactly", "Lay the caliper across the {0} twice and note the larger number."),
}  # fmt: skip


def many_skills(count: int, *, edition: str = "first") -> dict[str, str]:
    """Return `count` skills by name, at most 60; another edition changes every text a little."""
    pairs = [(trade, task) for task in _TASKS for trade in _TRADES]
    return {f"{trade}-{task}": _written(trade, task, edition) for trade, task in pairs[:count]}


def _written(trade: str, task: str, edition: str) -> str:
    things = _TRADES[trade]
    purpose, advice = (text.format(*things) for text in _TASKS[task])
    body = f"""# How a {trade} will {task}

{advice}

## Steps

1. Put the {things[1]} and the {things[2]} of the {trade} on a clean bench.
2. Ask whoever owns the {things[0]} how old it is before you {task} it.
- If the {things[2]} is worn then order another one from the {trade} guild.

This is the {edition} edition of what every {trade} should know about {things[0]} work.
"""
    return skill(f"{trade}-{task}", f"How to {purpose}, for a {trade}", body)
