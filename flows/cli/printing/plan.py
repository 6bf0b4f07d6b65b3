"""Print a plan for a person: its steps in order, what serves each, and what was left out."""

from __future__ import annotations

from typing import Any

from flows.cli.printing.run import origin, shortened
from flows.commands.console import say
from tasks.retrieve.compose.compose import chosen_candidate

_UNSURE, _OTHERS = 0.5, 3  # confidence under which a person is told other candidates, and how many
_TEXT = 300  # characters of a step, or of a part that was left out
_INDENT, _BAR = 4, "    │ "
_REASONS = {
    "context": "it asks for nothing",
    "no-request": "it asks for nothing",
    "own-work": "it needs nothing served",
    "beyond-max-steps": "there are more steps than --max-steps allows",
    "too-long": "the task is too long to be read to its end",
    "no-words": "it holds no words",
}


def print_plan(plan: dict[str, Any]) -> None:
    """Print a plan as a numbered list, then what stands in no step."""
    if not plan["steps"]:
        say("no step: nothing here can be searched for", style="bold")
    beside = {n: [m for m in group if m != n] for group in plan["groups"] for n in group}
    for step in plan["steps"]:
        _print_step(step, beside[step["step"]])
    for part in plan["left_out"]:
        why = _REASONS.get(part["reason"], part["reason"])
        say(f"left out, as {why}: {shortened(part['text'], _TEXT)}", indent=2, mark="")
    for number, one in enumerate(plan.get("trace", ())):
        said = "" if one["jaccard"] is None else f", Jaccard of hints {one['jaccard']:.2f}"
        say(f"round {number}: {_counted(len(one['steps']), 'step')}{said}")
    _print_end(plan)


def _print_step(step: dict[str, Any], beside: list[int]) -> None:
    say(shortened(step["text"], _TEXT), style="bold", indent=_INDENT, mark=f"{step['step']:>2}. ")
    when = [f"after {_listed(step['after'])}"] if step["after"] else []
    when += [f"side by side with {_listed(beside)}"] if beside else []
    if when:
        say("; ".join(when), indent=_INDENT)
    if step["condition"]:
        say(f"only {step['condition']}", indent=_INDENT)
    if step["gap"]:
        say("nothing served fits this step", style="red", indent=_INDENT)
    else:
        say(step["doc_id"], indent=_INDENT)
        chosen = chosen_candidate(step)
        whose = f", {origin(chosen, chosen['source'])}" if chosen else ""
        say(f"{step['confidence']:.0%} sure{whose}", indent=_INDENT)
    if step["gap"] or step["confidence"] < _UNSURE:
        others = [one["doc_id"] for one in step["candidates"] if one["doc_id"] != step["doc_id"]]
        for other in others[:_OTHERS]:
            say(f"{'nearest' if step['gap'] else 'or'}: {other}", indent=_INDENT)
    _print_page(step)


def _print_page(step: dict[str, Any]) -> None:
    """Print the page of a step, marked as what somebody else wrote."""
    if "page_error" in step:
        say(f"no page: {step['page_error']}", style="red", indent=_INDENT)
    page = step.get("page")
    if not page:
        return
    chosen = chosen_candidate(step)
    whose = f" {origin(chosen, chosen['url'] or chosen['source'])}" if chosen else ""
    cost = f"{page['tokens']} of {page['document_tokens']} tokens"
    say(f"third-party text of {step['doc_id']}{whose}, {cost}:", indent=_INDENT)
    for line in page["context"].expandtabs(4).split("\n"):
        say(line, indent=_BAR)


def _print_end(plan: dict[str, Any]) -> None:
    if "out" in plan:
        say(f"drawn to {plan['out']}")
    tokens = plan["tokens"]
    paged = f", their pages {tokens['pages']:,}" if tokens["pages"] else ""
    chosen = f"what is chosen has {tokens['chosen']:,} tokens{paged}, all that is served {tokens['all']:,}"
    say(f"{plan['took_ms']:.0f} ms; {chosen}")


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
