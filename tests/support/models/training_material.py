"""Trades written for the tests of training: a skill each, of which no two say the same."""

from __future__ import annotations

import polars as pl

from tasks.retrieve.routing.skill import Skill, digest_of
from tasks.train.queries import PAIRS
from tests.support.roots.hand_written import skill

_TRADES = """
baker oven dough crust|smith anvil iron spark|cooper barrel oak hoop|weaver loom wool knot
potter kiln clay glaze|tanner vat hide lime|miller stone grain dust|mason trowel mortar joint
glazier cutter glass edge|joiner plane board shaving|dyer kettle linen stain|saddler awl leather strap
brewer tun malt froth|chandler mould tallow wick|fletcher jig feather shaft|tinker patch kettle solder
thatcher rake reed ridge|wheelwright spoke ash rim|farrier rasp hoof nail|binder press paper spine
cobbler last sole heel|gardener spade compost root|beekeeper smoker comb swarm|vintner crusher grape must
"""


def trades() -> list[Skill]:
    """Return 24 skills, whose bodies say what their descriptions do not."""
    rows = [words.split() for line in _TRADES.strip().splitlines() for words in line.split("|")]
    return [trade(*row) for row in rows]


def trade(name: str, tool: str, material: str, care: str) -> Skill:
    """Return the skill of one trade."""
    body = (
        f"# {name}\n\nSet the {tool} level, {material} slides off it otherwise.\n\n"
        f"- Damp {material} ruins every {care} within one short day.\n"
        f"- Wipe your {tool} dry, old {care} sticks to new {material} at once.\n\n"
        f"Whoever hurries {material} gets a cracked {care} and a blunt {tool}.\n"
    )
    return Skill(f"guild/{name}", name, f"Does the daily work of a {name}", body)


_CARE = (
    "# Care {n}\n\nKeep the {tool} dry, or rust will eat it{n} within a single winter in the shed.\n\n"
    "## When to use\n\n- Cleaning a {tool} with an amber{n} whetstone\n"
)
_MORE = "- Storing a {tool} over winter in a crate of cedar{n}\n"


def tools(*, occasions: int = 1) -> list[dict[str, str]]:
    """Return records of 320 skills, whose authors name one or two occasions to use them in the body."""
    body = _CARE + _MORE * (occasions - 1)
    names = ["scythe", "chisel", "drawknife", "sickle", "gouge", "adze", "billhook", "spokeshave"] * 40
    return [
        {
            "doc_id": f"guild/{tool}-{n}/care",
            "content": skill(
                f"care-{n}", f"Cares for a {tool}{n} from the market of village {n}.",
                body.format(n=n, tool=f"{tool}{n}"),
            ),
        }
        for n, tool in enumerate(names)
    ]  # fmt: skip


def pairs_of(skills: list[Skill]) -> pl.DataFrame:
    """Return pairs of these tools with their occasions as requests; three in twenty are validated on."""
    rows = []
    for n, tool in enumerate(skills):
        for line in (line for line in tool.body.splitlines() if line.startswith("- ")):
            start = tool.body.index(line) + 2
            cut = "body", start, start + len(line) - 2
            split = "validation" if n % 20 < 3 else "train"
            rows.append((line[2:], tool.doc_id, digest_of(tool), f"house{n % 20}", *cut, split))
    return pl.DataFrame(rows, PAIRS, orient="row")
