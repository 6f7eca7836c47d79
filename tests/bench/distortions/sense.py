"""Flipped negations and dropped or added conditions."""

from __future__ import annotations

import re
from random import Random

from tests.bench.distortions.text import Edit, Pool, Sentence, capital, put, whole

_PAST = {
    "became": "become", "began": "begin", "won": "win", "wrote": "write", "took": "take",
    "led": "lead", "held": "hold", "left": "leave", "went": "go", "gave": "give", "ran": "run",
    "sang": "sing", "made": "make", "met": "meet", "lost": "lose", "sold": "sell", "came": "come",
    "grew": "grow", "spent": "spend", "taught": "teach", "fell": "fall", "kept": "keep",
    "moved": "move", "received": "receive", "released": "release", "served": "serve",
    "lived": "live", "died": "die", "married": "marry", "attended": "attend", "joined": "join",
    "played": "play", "worked": "work", "returned": "return", "appeared": "appear",
    "graduated": "graduate", "studied": "study", "founded": "found", "directed": "direct",
    "produced": "produce", "opened": "open", "started": "start", "signed": "sign",
    "retired": "retire", "continued": "continue", "remained": "remain", "featured": "feature",
    "included": "include", "reached": "reach", "provided": "provide", "showed": "show",
    "peaked": "peak", "defeated": "defeat", "recorded": "record", "published": "publish",
    "required": "require", "contained": "contain", "used": "use", "ended": "end",
    "earned": "earn", "added": "add", "developed": "develop", "performed": "perform",
}  # fmt: skip
_PRESENT = {
    "includes": "include", "contains": "contain", "supports": "support", "allows": "allow",
    "provides": "provide", "requires": "require", "returns": "return", "uses": "use",
    "consists": "consist", "features": "feature", "lives": "live", "plays": "play",
    "works": "work", "raises": "raise", "accepts": "accept", "creates": "create",
    "means": "mean", "depends": "depend", "belongs": "belong", "covers": "cover",
    "stars": "star", "follows": "follow", "runs": "run", "takes": "take", "specifies": "specify",
    "applies": "apply", "affects": "affect", "represents": "represent", "computes": "compute",
    "calls": "call", "holds": "hold", "lies": "lie", "serves": "serve", "changes": "change",
    "sets": "set", "implements": "implement", "handles": "handle", "writes": "write",
    "reads": "read", "assumes": "assume", "exists": "exist", "removes": "remove",
}  # fmt: skip
_VERB = "|".join((*_PAST, *_PRESENT))
_AUX = re.compile(rf"\b(?:is|are|was|were|can|will|should|must|has been|have been|{_VERB})\b")
# A subject of the main clause: nothing before the verb that opens another clause or counts loosely.
_LOOSE = re.compile(
    r"\b(?:who|whom|which|that|where|when|while|if|unless|although|though|because|since|as|whether|"
    r"what|how|why|not|no|never|nor|neither|none|nothing|only|some|many|most|several|few|all|"
    r"every|each|"
    r"any|both|either|often|sometimes|usually|one of|than|so|it|there|but|and|or|might|may|could|"
    r"to|"
    r"after|before|until|once|also|over|about|whose|another|other|various|alone|mostly|mainly)\b|"
    r"[;:,\"“(\d]",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:(?:In|On|At|During|By|From|Since|After|Until) [^,]{3,40}|However|Today|Currently), "
)
# What may not follow where "not" is put.
_NEXT = re.compile(
    r" (?:not|n't|also|only|often|usually|either|both|never|no|always|one|all|mainly|mostly|just|"
    r"still|"
    r"some|any|many|most|several|to|generally|typically|then|now|widely|rarely|sometimes|as|"
    r"at least|"
    r"about|approximately|around|nearly|almost|already|best|perhaps|probably|merely|currently|"
    r"said|if|"
    r"when|frequently|more|less|further|up|reported|considered)\b"
)
_NOT = re.compile(
    r"\b(?P<aux>is|are|was|were|can|could|will|would|should|must|has|have|had|does|do|did)"
    r"(?P<not> not|n't|not)(?= (?P<next>[a-z]+))"
)
_NOT_FOLLOWED = frozenset(
    "only just necessarily just all every always until yet to be because".split()
)
_NO_LONGER = re.compile(r"\b(?:is|are|was|were) (?P<w>no longer|never) ")


def negation(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """A negation put in or taken out of the main clause."""
    edit = _taken(sentence.text)
    if edit is not None:
        return edit
    text = sentence.text
    if re.search(r"\b(?:not|no|never|nor|any|ever|even|yet|rather|instead|but|until)\b|n't", text):
        return None
    lead = _LEAD.match(text)
    begin = lead.end() if lead else 0
    match = _AUX.search(text, begin)
    if match is None or match.start() == begin:
        return None
    before = text[begin : match.start()]
    subject = re.sub(r"^(?:It|There) (?=$)", "", before) if match.group() != "was" else before
    if subject and (_LOOSE.search(subject) or len(subject.split()) > 7):
        return None
    if before.startswith("There") or _NEXT.match(text, match.end()):
        return None
    verb = match.group()
    if verb in _PAST or verb in _PRESENT:
        # A participle after its noun ("the film released in"), or a noun ("the works"), is no verb.
        if re.search(r"\b(?:the|a|an|of|in|by|its|his|her|their|for|with|on)\s*$", before):
            return None
        if not re.match(
            r"(?:He|She|The [\w]+(?: \w+)*|[A-Z]\w+(?: [A-Z]\w+)*) $", before
        ) or re.match(
            r"(?:The|For|In|On|At|By|Of|From|To|With|Most|Some|This|These|It|As|A|An|Its|His|"
            r"Her) $",
            before,
        ):
            return None
        if (
            verb in _PAST
            and re.match(r" (?:by|in the|on the)\b", text[match.end() :])
            and not before.startswith(("He ", "She "))
        ):
            return None
        # One "not" for two joined verbs leaves half of the sentence as it was.
        if re.search(
            r",? and (?:[a-z]+ly )?(?:[a-z]+ed|[a-z]+s|was|is|were|are)\b", text[match.end() :]
        ):
            return None
        new = ("did not " if verb in _PAST else "does not ") + {**_PAST, **_PRESENT}[verb]
        return put(text, match.start(), match.end(), new, "do")
    if re.search(r"\b(?:was|is|were|are|has|had)\b", text[match.end() :]) and re.search(
        r"(?:, and|;| but )", text[match.end() :]
    ):
        return None
    new = {"can": "cannot", "has been": "has not been", "have been": "have not been"}.get(
        verb, f"{verb} not"
    )
    return put(text, match.start(), match.end(), new, "auxiliary")


def _taken(text: str) -> Edit | None:
    if re.search(
        r"\b(?:if|unless|whether|but|neither|nor|yet|any|either|because|until)\b", text, re.I
    ):
        return None
    found = list(_NOT.finditer(text)) + list(
        re.finditer(r"\b(?P<aux>can)(?P<not>not)(?= (?P<next>[a-z]+))", text)
    )
    if len(found) == 1 and found[0].group("next") not in _NOT_FOLLOWED:
        match = found[0]
        aux = match.group("aux")
        if aux in ("do", "does", "did"):
            return None if match.group("next") == "have" else _done(text, match)
        return put(text, match.start(), match.end(), aux, "removed")
    never = _NO_LONGER.search(text)
    if never and not found:
        new = {"no longer": "still", "never": "always"}[never.group("w")]
        return put(text, never.start("w"), never.end("w"), new, "opposite")
    return None


def _done(text: str, match: re.Match[str]) -> Edit | None:
    """The verb alone, in the form that its auxiliary had."""
    verb = match.group("next")
    forms = {base: form for form, base in {**_PRESENT, **_PAST}.items()}
    aux, end = match.group("aux"), match.end() + 1 + len(verb)
    if aux == "do":
        return put(text, match.start(), end, verb, "removed")
    if aux == "does":
        ending = "es" if verb.endswith(("s", "sh", "ch", "x", "o")) else "s"
        new = verb[:-1] + "ies" if re.search(r"[^aeiou]y$", verb) else verb + ending
    elif verb in forms and forms[verb] in _PAST:
        new = forms[verb]
    else:
        return None
    return put(text, match.start(), end, new, "removed")


_FIRST = re.compile(
    r"(?P<out>(?:Only if|Only when|If|Unless|Provided that|As long as|In the absence of|In case of|"
    r"In the event of|Except for|Except when|Assuming|When used|Subject to|With the exception of)\b"
    r"[^,;:()]{8,120}), (?:then )?(?P<in>[^;:()]{20,})\.$"
)
_LAST = re.compile(
    r"^(?P<in>[^;:()]{20,}?),? (?P<out>(?:only if|only when|but only if|but only when|"
    r"if and only if|"
    r"if|unless|provided that|as long as|so long as|except for|"
    r"except when|except in|except that|"
    r"except|with the exception of|excluding|in the absence of|in the event of|in case of|"
    r"assuming that|"
    r"subject to|only during|only after|on condition that|not including)\b"
    r"[^;:()]{6,120})\.$"
)
# A question of whether, a comparison, and what makes the remainder depend on what went.
_NO = re.compile(
    r"\b(?:even if|as if|what if|see if|know if|check if|determine if|test if|checks if|tests if|"
    r"only if not|"
    r"otherwise|whether|else|asked if|wonder\w* if|rather than|if any|if possible|if necessary|"
    r"return true if|"
    r"returns true if|true if|false if|if not|if so|checking if|as though|but if|or if|and if|"
    r"not subject to|"
    r"if it were|would|could have|might|iff|ask if|indicat\w+ if|decide if|verif\w+ if|see what|"
    r"used if|"
    r"do nothing|nothing|may|can|could|possibl[ey]|either)\b|, or ",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"^(?:and|or|it|they|he|she|this|that|these|those|then|so|both|neither|such|its|their)\b",
    re.IGNORECASE,
)
_CLAUSE_VERB = re.compile(
    r" (?:is|are|was|were|has|have|do|does|did|will|must|cannot|[a-z]{2,}(?:s|ed))\b"
)
_RULE = re.compile(r"^(?:but |so |and )?(?:only |if and only )?([a-z]+)", re.IGNORECASE)


def condition(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The claim without the condition that the evidence puts on it."""
    text = sentence.text
    if _NO.search(text):
        return None
    # What may be or can be under a condition may be or can be: these say no more without it.
    first = _FIRST.match(text)
    if first:
        rest = first.group("in")
        clause = first.group("out")
        if clause[:3] in ("If ", "Unl") and not _CLAUSE_VERB.search(clause):
            return None
        if _BACK.match(rest) or len(rest.split()) < 5:
            return None
        return _dropped(first.group("out"), f"{capital(rest)}.")
    last = _LAST.match(text)
    if last:
        rest = last.group("in").rstrip(", ")
        if len(last.group("out").split()) < 4 or re.search(
            r", |\band (?:will|on)\b", last.group("out")
        ):
            return None
        if re.search(r"\band (?:will|is|are|was|were|must|\w+s)\b", rest):
            return None
        # "If a, b" inside, an open list, or a clause that hangs on a verb of asking.
        if len(rest.split()) < 5 or re.search(
            r"\b(?:only|and|or|that|to|is|are|was|be|of|[Ii]f|except|only \w+)$", rest
        ):
            return None
        if re.search(r"\b(?:not|no|never|any|every|[Ii]f|unless)\b", rest) and "except" not in text:
            return None
        return _dropped(last.group("out"), f"{rest}.")
    return None


def _dropped(out: str, claim: str) -> Edit:
    match = _RULE.match(out)
    word = match.group(1).lower() if match else "if"
    return whole(claim, word, out)
