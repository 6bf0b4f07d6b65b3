"""Classes of English words that tell what a clause is: an order, a question, context, own work."""

from __future__ import annotations

import re

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")

_CLASSES = {
    # Orders that a service carries out.
    "act": """
    add adjust alert analyse analyze animate announce annotate append apply archive arrange ask assign
    attach audit back benchmark block blur book bookmark bring browse build bump burn cache calculate
    call cancel capture caption cast catch change chart check clean clear click clip clone close collect
    colour color commit compile compress compute configure connect convert copy count crawl create crop
    cross-check cut debug decode define delete deploy deposit detect diagnose dial digitise disable
    dispatch document download draft drain draw drop dump duplicate edit email embed enable encode
    encrypt enrich enter estimate evaluate examine execute expand export extend extract fetch file fill
    filter find fire fix flag flash flip follow forecast fork format forward freeze generate geocode get
    give go grab graph grant group hand hash have highlight host identify illustrate import increase
    index ingest inspect install instruct integrate invite invoice issue join keep kick label launch
    leave let light link lint list load locate lock log look lookup lower mail make map mark measure
    measure mention merge message migrate mint mirror model monitor mount move mute name navigate notify
    obtain off open optimise optimize order organise organize outline overlay package park parse pass
    paste patch pause pay pin ping plan play plot poll post predict prepare preview print process
    produce profile promote prototype provision prune publish pull purge push put query queue raise read
    rebuild reboot recommend record recover redact redirect reduce refresh refund register release
    remind remove rename render renew reopen repair replace reply report request research reschedule
    reserve reset resize resolve restart restore resume retrieve retry return reverse revoke ring roll
    rotate route run sample save scan scale schedule score scrape screenshot script search seed segment
    see sell send separate serve set share shift ship show shrink shut sign simulate sketch slice snooze
    solve sort speak spin split squeeze stage start stash step stitch stop store stream strip submit
    subscribe subtitle swap switch sync synchronise synchronize synthesise synthesize tag take test text
    text-message throw ticket time trace track trade train transcode transcribe transfer transform
    translate transpose trigger trim tune turn tweet type unblock undo unlock unpack unsubscribe update
    upgrade upload use validate vectorise verify view visit visualise visualize vote wake warn watch
    water watermark wipe wire write zip zoom
    """,
    # What an agent does by itself.
    "own": """
    choose compare consider decide describe explain guess ignore judge justify know list mind note pick
    prefer rank reason recommend rewrite rephrase remember say select sum summarise summarize suggest
    tell think wonder word
    """,
    "wish": (
        "want wants wanted need needs needed like likes would love loves must should shall ought "
        "hope hopes wish wishes deserve deserves has've requires require gets goes belongs belong"
    ),
    "ask": "who what when where why how which whose whether",
    "aux": (
        "is are was were am be been do does did has have had can could will would may might isn't "
        "aren't don't doesn't didn't won't can't couldn't hasn't haven't what's where's how's "
        "who's"
    ),
    "i": "i i'm i've i'd i'll me my mine",
    "we": "we we're we've we'd we'll us our ours let's",
    "they": "he she they he's she's they're they've his her hers their theirs him them",
    "it": ("it it's its this that these those there here both all everything each one ones lot whole same"),
    "the": "the a an any some every no another",
    "prep": (
        "in on at to from for of with without by via through into onto over under about around "
        "near between per against across towards toward within during as than like up down out "
        "off inside outside next"
    ),
    "sub": (
        "if unless when whenever once as after before until till because since although though "
        "while whilst so where provided should in"
    ),
    "order": "first then next finally afterwards later meanwhile second last lastly also too again",
    "polite": "please thanks thank hi hello hey dear kindly sorry cheers",
    "not": "not no never nothing don't without",
    "number": ("one two three four five six seven eight nine ten eleven twelve dozen hundred thousand half"),
}
_OF: dict[str, tuple[str, ...]] = {}
for _name, _words in _CLASSES.items():
    for _word in _words.split():
        _OF[_word] = (*_OF.get(_word, ()), _name)


def classes_of(word: str) -> tuple[str, ...]:
    """Return the classes of a word as written: of the lists above, else what its form tells."""
    low = word.lower().replace("’", "'")
    found = _OF.get(low)
    if found:
        return found
    if low[0].isdigit():
        return ("digit",)
    if word[0].isupper():
        return ("name",)
    for ending in ("ing", "ed", "ly", "s"):
        if low.endswith(ending) and len(low) > len(ending) + 2:
            return (f"-{ending}",)
    return ("other",)
