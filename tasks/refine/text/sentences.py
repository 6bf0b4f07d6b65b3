"""Sentences of short texts: the breaks between them, by what is cut; documents have `segment.sentences`."""

from __future__ import annotations

import re

# A task is cut for the encoder into sentences and lines.
TASK_BREAK = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
# The same for baselines, as their papers have it: Latin marks alone, and no semicolon.
BASELINE_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
# A long node is cut for paging; a colon ends a part, since what follows can be read by itself.
NODE_BREAK = re.compile(r"(?<=[.!?;:。！？])\s+(?=\S)")
# A request is cut for paging into clauses, each of which a page has to answer.
CLAUSE_BREAK = re.compile(
    r"(?<=[.!?;:。！？；：，、])\s*|,\s+|\s+(?:and|then|but|so that|so|while|or)\s+|\s+[-—–]\s+|\n+|[()]"
)
# Ends of sentences are counted, so that no text has more nodes than can be parsed.
COUNTED_END = re.compile(r"[.!?](?= )|[。！？]")
# The end of a paragraph that is a sentence, with the marks that may close behind it.
PARAGRAPH_END = re.compile(r"[.!?。！？…][\"')\]_*”’]*$")
# Beyond such a break a negation does not reach what is matched by a rule on risks.
NEGATION_BREAK = re.compile(
    r"[.!?;]\s|, (?:but|just|then|instead|rather|please)\b|\n\s*\n|\n\s*(?:[-*+]|\d{1,3}[.)])\s"
)
