"""The patterns behind the cues: how texts, code, tables and headings begin, and what they contain."""

from __future__ import annotations

import re

Patterns = tuple[tuple[str, re.Pattern[str]], ...]


def _compiled(patterns: dict[str, str]) -> Patterns:
    return tuple((name, re.compile(pattern)) for name, pattern in patterns.items())


# Matched at the beginning of a text only.
OPENINGS = _compiled({
    "checkbox": r"\[[ xX]?\]",
    "bold_only": r"\*\*[^*]+\*\*[:：]?\s*$",
    "bold_term": r"\*\*[^*\n]{1,60}?(?::\*\*|\*\*\s*[:：–—(-])",
    "bold": r"\*\*",
    "label": r"(?i)\*\*(?:note|source|version|role|goal|objective|purpose|author|status|impact|file"
    r"|location|input|output|result|key)\b",
    "warning": r"(?i)(?:>\s*)?(?:⚠️?\s*)?\**(?:important|critical|warning|caution|must|required?|rule"
    r"|stop)\b",
    "code_term": r"`[^`\n]+`\s*(?:\([^)]*\))?\s*[:：–—=→(-]",
    "code_only": r"`[^`\n]+`[.,;]?\s*$",
    "code": r"`",
    "flag": r"(?:\*\*)?`?-{1,2}[a-zA-Z]",
    "constant": r"`?[A-Z][A-Z0-9]+_[A-Z0-9_]+`?",
    "path": r"`[^`\s]*(?:/|\.(?:md|py|ts|js|sh|json|ya?ml))[^`]*`",
    "link": r"\**\[[^\]]+\]\(",
    "quoted": r"[\"“'「]",
    "tick": r"[✅✓✔☑]",
    "cross": r"[❌✗✘🚫⛔]",
    "alert": r"(?:>\s*)?[⚠🚨❗]",
    "icon": r"[\U0001F300-\U0001FAFF☀-➿]",
    "blockquote": r">",
    "arrow": r"→|->|=>|➜",
    "gerund": r"(?i)\**[a-z-]{2,}ing\b",
    "user_wants": r"(?i)(?:the )?(?:user|you|working|creating|building|needs?|wants?|asked|reviewing"
    r"|setting|writing|implementing|adding|designing|debugging)\b",
    "third_person": r"(?i)\**(?!this|does|is|has|its|as|us|was|plus|class|access|process"
    r"|pass)[a-z]+s\b [a-z]",
    "if": r"(?i)\**(?:if|when|whenever|unless|where|in case)\b",
    "before": r"(?i)\**(?:before|prior to)\b",
    "after": r"(?i)\**(?:after|once)\b",
    "for": r"(?i)\**(?:for|to)\b",
    "article": r"(?i)(?:the|this|these|it|they|an?|each|all|both|most|there|we|our|skills?|your)\b",
    "you_are": r"(?i)(?:you are|act as|you're|your role|you have)\b",
    "see": r"(?i)\**(?:see|refer to|read more|consult|for (?:more|details|full|complete))\b",
    "example": r"(?i)\**(?:examples?|input|output|user|good|bad|before|after|request|response|sample|usage"
    r"|wrong|right|correct|incorrect|scenario|prompt|query)\b[^:\n]{0,20}:",
    "lowercase": r"[a-z]",
    "title": r"[A-Z][\w-]+(?: [A-Z&][\w-]*)+\s*$",
    "foreign": r"[^A-Za-z]*[^\x00-\u024f\u2000-\u2bff]",
    "foreign_term": r"\**[^\x00-\u024f:：]{1,20}\**[:：]",
})  # fmt: skip
# Searched for in the whole text.
INSIDE = _compiled({
    "colon_end": r"[:：]\**\s*$",
    "stop_end": r"[.。!]\**\s*$",
    "question_end": r"\?\s*$",
    "code": r".`[^`\n]+`",
    "command": r"`(?:npm|npx|pip|git|docker|python3?|bash|curl|make|cargo|go|uv|pnpm|yarn|kubectl|gh|brew"
    r"|/)[^`]*`",
    "link": r"\]\(|https?://",
    "quote": r".[\"“「][^\"”」\n]{2,}[\"”」]",
    "arrow": r"→|->|=>|➜|⇒",
    "placeholder": r"<[a-z][\w -]*>|\{[A-Za-z_ ]+\}|\[[A-Z][\w ]+\]",
    "shout": r"\b(?:MUST|NEVER|ALWAYS|ONLY|REQUIRED|CRITICAL|DO NOT|STOP|NOT)\b",
    "typed": r"\((?:string|str|int|bool|number|float|array|object|list|optional|required|default)",
    "parenthesis": r"\([^)]+\)",
    "enumeration": r",[^,.]+,[^,.]+",
    "lines": r"\n",
})  # fmt: skip
# The language named behind the fence tells a command to run from an example to read.
CODE = _compiled({
    "shell": r"(?i)\A[`~]{3,}\s*(?:bash|sh|shell|zsh|console|powershell|cmd)\b",
    "unnamed": r"\A[`~]{3,}\s*\n|\A(?!```|~~~)",
    "markup": r"(?i)\A[`~]{3,}\s*(?:markdown|md|text|txt|plaintext|html|xml)\b",
    "data": r"(?i)\A[`~]{3,}\s*(?:json|ya?ml|toml|ini|env|csv)\b",
    "diagram": r"\A[`~]{3,}\s*(?:mermaid|dot|plantuml)\b|[├└│┌▼↓]",
    "program": r"(?i)\A[`~]{3,}\s*(?:python|py|[jt]sx?|typescript|javascript|java|go|rust|ruby|php|c\w*"
    r"|swift|kotlin|sql)\b",
    "one_line": r"\A[^\n]*\n[^\n]*\n[^\n]*\Z",
    "few_lines": r"\A[^\n]*(?:\n[^\n]*){2,4}\Z",
    "long": r"\A[^\n]*(?:\n[^\n]*){14}",
    "comment": r"(?m)^\s*(?:#|//)",
    "verdict": r"(?i)❌|✅|\b(?:wrong|bad|good|correct)\b",
    "tasks": r"(?m)^\s*(?:(?:[Tt]ask|[Ss]kill|Agent|Read|Grep|Glob)\s*\(|\d+\.|- \[ \])",
    "if_then": r"(?mi)^\s*(?:if|when|else|step \d)\b",
    "install": r"(?i)\b(?:npm i|pip3? install|brew install|apt(?:-get)? install|uv add|go install"
    r"|cargo add)",
    "placeholder": r"<[a-z][\w -]*>|\{[A-Za-z_ ]+\}|\[[A-Z][\w ]+\]|\$[A-Z{]",
})  # fmt: skip
# The header row names what a table holds; few look into the rows.
TABLE = _compiled({
    "param": r"(?i)\A[^\n]*\b(?:flags?|options?|param|arg|fields?|variables?|propert|settings?|defaults?"
    r"|type|required|values?|keys?|env|config|token)",
    "error": r"(?i)\A[^\n]*\b(?:errors?|issues?|problems?|symptoms?|causes?|fix|solutions?|mistakes?"
    r"|pitfalls?|anti|resolution|recovery|failure|wrong|excuse|rationali|reality)",
    "step": r"(?i)\A[^\n]*\b(?:steps?|action|do|check|task|phase|then|how)\b",
    "example": r"(?i)\A[^\n]*\b(?:examples?|input|output|before|after|bad|good)\b",
    "condition": r"(?i)\A[^\n]*\b(?:when|condition|requirement|prerequisite|trigger|must|scenario"
    r"|situation)",
    "pointer": r"(?i)\A[^\n]*\b(?:file|reference|resource|skill|document|purpose|description|topic|command"
    r"|load)",
    "flags": r"`-{1,2}[a-z]",
    "constants": r"`[A-Z][A-Z0-9]+_[A-Z0-9_]+`",
})  # fmt: skip
HEADING = _compiled({
    "numbered": r"\W*(?:step|phase|stage|task|part|étape|schritt|paso|第)?\s*\d+(?:\.\d+)*[.):：\s-]",
    "step": r"(?i)\W*(?:step|phase|stage|etape|étape|schritt|paso|ステップ|단계)\s*\d",
    "gerund": r"(?i)\W*(?:\d[\d.]*[.)]?\s*)?[a-z-]{2,}ing\b",
    "code": r".*(?:`|--)",
    "icon": r".*[\U0001F300-\U0001FAFF☀-➿]",
})  # fmt: skip
