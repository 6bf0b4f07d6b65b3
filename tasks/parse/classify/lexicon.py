"""The lexicon of the local classifier: verbs, topics and patterns, by which it tells node types.

In a topic, `stem*` is any word with that stem, and `two_words` a phrase. Terms of scripts without spaces
between words are found anywhere. Of other languages than English it has the few terms that say most.
"""

from __future__ import annotations

import re


def as_words(text: str) -> frozenset[str]:
    """Return the words of a text that lists them."""
    return frozenset(text.split())


VERBS = as_words(
    """
    accept acknowledge act activate adapt add adjust adopt advise aim alert align allow analyse analyze
    anchor annotate append apply archive ask assemble assert assess assign assume attach attempt attribute
    audit augment avoid back balance base batch become begin bind block book boot borrow break bring build
    bump bundle cache calculate call cancel capture cast centralize chain challenge check choose chunk cite
    clarify classify clean clear click clone close coach collect combine come commit communicate compare
    compile compose compress compute conclude condense conduct configure confirm confront connect consider
    consolidate constrain construct consult contact continue contribute convert coordinate copy correct
    correlate count cover create cross-check cross-reference customize cut debug decide declare decline
    decompose decouple default defer define delegate delete deliver demonstrate deploy derive describe
    design detail detect determine develop dig direct disable discard discover discuss dispatch display
    distinguish divide do document double-check download draft drive drop dump duplicate echo edit elevate
    eliminate embed embrace emit emphasize enable enclose encode encourage enforce engage enrich ensure
    enter escalate escape establish estimate evaluate examine exclude execute expand expect explain explore
    export expose express extend extract favor feed fetch fill filter finalize find finish fire fix flag
    flatten focus fold follow follow-up force fork format formulate forward foster frame freeze gather
    generate get give go group guard guide halt hand handle hide highlight honor identify ignore illustrate
    implement import improve include incorporate indicate infer inform initialize inject inline insert
    insist inspect install instantiate instruct instrument integrate interpret interview introduce
    investigate invoke isolate iterate join jump justify keep kill know label launch lead lean learn leave
    let leverage limit link lint list listen load locate lock log look loop lower maintain make map mark
    match measure mention merge migrate minify minimize mirror mitigate mix mock model modify monitor mount
    move name narrow navigate nest normalize note notify number observe offer omit open opt optimize order
    organize outline output override own pack parallelize parameterize paraphrase parse partition paste
    patch pause peek perform pick pin ping place plan poll populate post practice prefer prefix preload
    prepare present preserve press prevent preview print prioritize probe proceed produce profile promote
    prompt propagate propose protect prototype prove provide provision prune publish pull pursue push put
    quantify query quote raise rank rate re-run reach react read rebase rebuild recall recheck recognize
    recommend reconcile reconsider record redirect reduce refactor refer refine reflect refresh refuse
    regenerate register reject relate release reload rely remember remove rename render reorder repeat
    rephrase replace reply report reproduce request require research reserve reset resolve respect respond
    restart restore restrict restructure retain rethink retrieve retry return reuse revert review revise
    revisit rewrite roll rotate round run sample sanitize save scaffold scale scan schedule scope score
    scroll search secure seek segment select send separate serve set share shift ship show shut sign
    simplify simulate skip solve sort source spawn speak specify spell split spot stage standardize start
    state stick stop store strip structure study submit substitute suggest summarize suppress surface survey
    swap switch sync synthesize tackle tag tailor take talk target teach tell test tie time toggle touch
    trace track transfer transform translate traverse treat trigger trim truncate trust try tune turn type
    uncomment understand undo unify uninstall unset unzip update upgrade upload upsert use validate value
    vary verify view visit wait walk want warn watch weigh work wrap write"""
)
# Words that may stand before an imperative: "then open", "always wait".
BEFORE_VERB = as_words(
    "first then next finally now always please also only optionally carefully explicitly immediately"
)
TOPICS: dict[str, str] = {
    "error": "error* fail* exception* crash* broken timeout* 错误 失败 エラー 오류",
    "trouble": "troubleshoot* debug* stuck hangs remediat* degradation contingenc* fallback* recover* retry"
    " retries rollback workaround* 故障",
    "cause": "symptom* cause* fix fixes fixed solution* issue* problem* diagnos* mitigation* 问题 解决",
    "pitfall": "pitfall* gotcha* mistake* antipattern* anti-pattern* anti_pattern red_flag wrong trap traps"
    " smell* caveat* 陷阱",
    "prerequisite": "prerequisite* pre-requisite* requirement* precondition* preflight pre-flight"
    " dependencies 前提 先决",
    "require": "require* must need needs mandatory only_if only_when only_after credential* api_key 必须"
    " 必要",
    "when": "when_to use_when use_if use_this trigger* activat* invoke_when applies_when 触发 何时 使用场景"
    " 适用",
    "when_not": "when_not not_use not_to_use don't_use not_for out_of_scope skip_if skip_when non-goal*"
    " 不适用",
    "forbid": "never must_not mustn't do_not don't don'ts cannot can't should_not shouldn't avoid forbidden"
    " prohibited not_allowed no 禁止 不要 不得 しない 금지",
    "constraint": "constraint* limitation* restriction* boundar* guardrail* safety hard_rules"
    " non-negotiable* critical important permission* 约束 限制 制約",
    "example": "example* e.g for_instance sample* demo demos snippet* such_as look_like looks_like scenario*"
    " input output user good bad 示例 例如 例子",
    "template": "template* format structure layout skeleton boilerplate pattern* 模板 格式",
    "param": "param params parameter* arg args argument* option* flag flags switch* field* setting* config"
    " configuration env environment_variable* propert* attribute* variable* inputs schema frontmatter"
    " props key keys threshold* 参数 选项 配置 字段",
    "default": "default* optional required string boolean bool int integer number array enum nullable min"
    " max minimum maximum range allowed valid_values 默认 可选",
    "steps": "step* workflow* process procedure* instruction* phase* how_to quick_start quickstart"
    " getting_started setup installation playbook* protocol stage* execution implement* task* action*"
    " 步骤 流程 操作 手順",
    "checklist": "checklist* check* verification validation verify quality review acceptance"
    " definition_of_done 检查 清单",
    "practice": "best_practice* guideline* rule* tip tips recommendation* convention* standard* dos"
    " principle* strateg* style technique* 最佳实践 原则 规范",
    "overview": "overview introduction about background purpose what concept* philosophy summary description"
    " feature* capabilit* architecture why how_it_works role identity mission goal* benefit* scope"
    " persona 概述 简介 背景 功能 概要",
    "pointer": "reference* resource* related see_also further_reading link* docs documentation learn_more"
    " bundled file files integration* skills scripts next_steps see 参考 相关 資料",
    "commands": "command* usage cli cheatsheet quick_reference syntax api endpoint* tool tools quer* 命令"
    " 用法",
    "output": "output* deliverable* result* artifact* report return* response success metric* kpi* 输出",
    "levels": "level* type* categor* tier* severit* priorit* matrix comparison decision* mode* version*"
    " changelog status history author licen*",
    "lists": "is are was were",
    "helps": "help* enable* allow* provide* offer* support* ensures mean* describes cover* contain* guides"
    " represent*",
    "reason": "because since so_that in_order_to which",
    "advice": "should shall recommended make_sure ensure always",
    "obligation": "must required requires mandatory only",
    "condition": "if when unless whenever before until once",
    "setting_up": "installed configured available running authenticated account access version",
    "possibility": "may might can could will would",
    "defect": "not_found missing unavailable invalid denied stuck empty rejected incorrect stale doesn't"
    " does_not won't isn't without too_many too_much too_large over*",
    "contrast": "instead rather just vs versus over",
    "asker": "user* customer* caller someone asks wants",
}


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
