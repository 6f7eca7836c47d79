"""Signs in characters and addresses: invisible text, role markers, bloat, exfiltration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crp_integrations.guard.injection.records import (
    InjectionFinding,
    InjectionSettings,
    Level,
    RuleName,
    S,
    gap,
)

# Tag characters are used in flags alone, behind a black flag.
_TAGS = re.compile("(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0000-\U000e007f]{2,4096}")
_SELECTORS = re.compile("[\U000e0100-\U000e01ef]{3,4096}|[\ufe00-\ufe0f]{3,4096}")
_ZERO = "\u200b\u200c\u200d\u2060-\u2064\u180e\ufeff\u115f\u1160\u3164\u034f"
_ZERO_RUN = re.compile(f"[{_ZERO}]{{4,4096}}")
# Joiners belong between letters of some scripts; between Latin ones they hide.
_WITHIN = re.compile(f"(?<=[A-Za-z])[{_ZERO}\u00ad]{{1,3}}(?=[A-Za-z])")
_OVERRIDES = re.compile("[\u202d\u202e]")
_ANY = re.compile(f"[\u00ad\u202d\u202e{_ZERO}\ufe00-\ufe0f\U000e0000-\U000e01ef]")

_ROLE = r"(?:system|user|assistant|developer|human|tool|function|model|ipython)"
_MARKERS = re.compile(
    r"<\|[ ]?(?:im_start|im_end|im_sep|system|user|assistant|developer|end|endoftext|begin_of_text"
    r"|start_header_id|end_header_id|eot_id|eom_id|end_of_text|end_of_turn|endofprompt|start"
    r"|message"
    r"|channel|start_of_role|end_of_role|eot|bos|eos|begin[_\u2581]of[_\u2581]sentence"
    r"|end[_\u2581]of[_\u2581]sentence|tool[_\u2581]\w{1,20}|start_of_turn|turn)[ ]?\|>"
    r"|\[/?(?:inst|system_prompt|available_tools)\]"
    r"|<</?sys>>"
    r"|</?(?:start|end)_of_turn>"
    r"|</?(?:system|assistant|developer)(?:[-_ ]?(?:prompt|message|reminder|instructions?|notice"
    r"|override|note))?(?:[ ][^>\n]{0,80})?>"
    r"|</?(?:user|retrieved|trusted|untrusted|external)[-_](?:prompt|message|input|query"
    r"|instructions?|context|content|documents?|data)>"
    r"|</(?:context|documents?|search_results?|sources?|facts?|knowledge|evidence|instructions?"
    r"|passages?|retrieved|user_data)>"
)
_HEADINGS = re.compile(
    r"(?:^|\n)[ \t>*_]{0,6}(?:#{1,6}[ \t]{0,3}|\[|\*\*|<|-{2,10}[ \t]?|={2,10}[ \t]?)[ \t]{0,3}"
    + _ROLE
    + r"(?:[ _-](?:prompt|message|instructions?|override|role|turn|response|input))?"
    + r"[ \t]{0,3}(?::|\]|\*\*|>|-{2,10}|={2,10}|(?=\n))"
    + r"|(?:^|\n)[ \t]{0,4}#{2,4}[ \t]?(?:instructions?|new instructions?|response|human"
    + r"|assistant)[ \t]{0,3}:"
)
_LABELS = re.compile(r"(?:^|\n)[ \t>*_]{0,6}(system|assistant|developer|human|user|ai)[ \t]{0,3}:")
_JSON_ROLE = re.compile(
    r"[\"']role[\"'][ \t]{0,3}:[ \t\n]{0,8}[\"'](?:system|developer|assistant)[\"']"
)
_AFTER_SYSTEM = re.compile(r"\b(?:you|your|ignore|must|instructions?|always|never|do not|prompt)\b")

_HIDDEN = re.compile(
    r"display[ ]?:[ ]?none|visibility[ ]?:[ ]?hidden|font-size[ ]?:[ ]?[01](?:px|pt|em|%)?\b"
    r"|opacity[ ]?:[ ]?0(?:\.0\d?)?\b|color[ ]?:[ ]?(?:white|#fff(?:fff)?|transparent)\b"
    r"|aria-hidden=.true|text-indent[ ]?:[ ]?-\d{3,}|left[ ]?:[ ]?-\d{3,}px"
    r"|<(?:span|div|p|font|section|li)[ ][^>\n]{0,60}?\bhidden\b"
    r"|(?:height|width|max-height)[ ]?:[ ]?0(?:px)?\b|color[ ]?:[ ]?(?:#f[ef]f[ef]f[ef]|rgba?\(255)"
    r"|clip[ ]?:[ ]?rect|z-index[ ]?:[ ]?-\d"
)
_COMMENT_ORDER = re.compile(
    r"\b(?:ai|llm|assistant|ignore|instructions?|prompt|you must|respond|always say|summari[sz]e)\b"
)
_HIDDEN_ORDER = re.compile(
    r"\b(?:ai|llms?|assistants?|chatbots?|ignore|disregard|instructions?|must|always|never|respond"
    r"|tell the|do not|the user|recommend|your (?:answer|task|response|reply))\b"
)
# Characters behind the markup within which an order is looked for.
_NEAR = 300

_TRIPLE = re.compile(r"\w+")
_RUN = re.compile(r"(?<![\x21-\x7e])[\x21-\x7e]+")
_SAME = re.compile(r"([^\s\-=_*#.~+<>|/\\0])\1{199,}")


def find_invisible(text: str, settings: InjectionSettings) -> Iterator[InjectionFinding]:
    """Characters that a reader does not see, and a model does."""
    if text.isascii() or _ANY.search(text) is None:
        return
    for pattern, reason in (
        (_TAGS, "holds tag characters outside of a flag"),
        (_SELECTORS, "holds a run of variation selectors"),
        (_ZERO_RUN, "holds a run of zero-width characters"),
    ):
        yield from _found(pattern, text, "invisible", "certain", reason, settings)
    within = [match.span() for match in _WITHIN.finditer(text)]
    if within:
        yield InjectionFinding(
            rule="invisible",
            level="clear" if len(within) >= settings.zero_width else "hint",
            reason=f"hides {len(within)} characters within words",
            start=within[0][0],
            end=within[-1][1],
        )
    yield from _found(
        _OVERRIDES, text, "invisible", "clear", "turns the direction of its letters", settings
    )


def find_role_markers(low: str, settings: InjectionSettings) -> Iterator[InjectionFinding]:
    """Words that only the frame of a conversation writes."""
    if "<" in low or "[" in low:
        yield from _found(
            _MARKERS, low, "role-marker", "clear", "holds a marker of a chat template", settings
        )
    yield from _found(_HEADINGS, low, "role-marker", "clear", "holds a heading of a role", settings)
    if "role" in low:
        yield from _found(
            _JSON_ROLE, low, "role-marker", "hint", "holds a message of a role as JSON", settings
        )
    roles: dict[str, tuple[int, int]] = {}
    for match in _LABELS.finditer(low):
        role = match[1]
        if role in ("system", "developer") and _AFTER_SYSTEM.search(
            low, match.end(), match.end() + 120
        ):
            yield InjectionFinding(
                rule="role-marker",
                level="clear",
                reason="speaks as the system at the start of a line",
                start=match.start(1),
                end=match.end(),
            )
            break
        roles.setdefault(role, (match.start(1), match.end()))
    if {"user", "human"} & set(roles) and {"assistant", "ai"} & set(roles):
        start, end = min(roles.values())
        yield InjectionFinding(
            rule="role-marker",
            level="hint",
            reason="is written as turns of a conversation",
            start=start,
            end=end,
        )


def find_hidden(low: str, settings: InjectionSettings) -> Iterator[InjectionFinding]:
    """Markup that keeps text from a reader's eyes."""
    if "<" not in low:
        return
    for number, match in enumerate(_HIDDEN.finditer(low)):
        if number == settings.most_findings:
            break
        order = _HIDDEN_ORDER.search(low, match.end(), match.end() + _NEAR)
        yield InjectionFinding(
            rule="hidden-markup",
            level="clear" if order else "hint",
            reason="hides orders by markup" if order else "holds markup that hides text",
            start=match.start(),
            end=match.end(),
        )
    end = 0
    while (start := low.find("<!--", end)) >= 0:
        end = low.find("-->", start)
        end = len(low) if end < 0 else end
        if _COMMENT_ORDER.search(low, start, end):
            yield InjectionFinding(
                rule="hidden-markup",
                level="clear",
                reason="holds a comment that speaks of models or instructions",
                start=start,
                end=end,
            )
            return


def find_bloat(text: str, low: str, settings: InjectionSettings) -> Iterator[InjectionFinding]:
    """Text that fills a window and says nothing."""

    def bloat(reason: str, start: int, end: int) -> InjectionFinding:
        return InjectionFinding(rule="bloat", level="clear", reason=reason, start=start, end=end)

    same = _SAME.search(low)
    if same:
        yield bloat("repeats one character", *same.span())
    for match in _RUN.finditer(text):
        if match.end() - match.start() >= settings.unbroken:
            yield bloat("goes on without a blank", *match.span())
            break
    places = [match.span() for match in _TRIPLE.finditer(low)]
    said = [low[start:end] for start, end in places]
    run = begin = 0
    for at in range(1, len(said)):
        run = run + 1 if said[at] == said[at - 1] and not said[at].isdecimal() else 0
        begin = begin if run > 1 else at - 1
        if run + 1 >= settings.repeated_words:
            yield bloat("repeats one word", places[begin][0], places[at][1])
            break
    if len(said) >= settings.long_words:
        triples = set(zip(said, said[1:], said[2:], strict=False))
        numbers = sum(word.isdecimal() for word in said)
        if len(triples) < settings.distinct_share * len(said) and 4 * numbers < len(said):
            yield bloat("repeats the same words", places[0][0], places[-1][1])


def _found(
    pattern: re.Pattern[str],
    text: str,
    rule: RuleName,
    level: Level,
    reason: str,
    settings: InjectionSettings,
) -> Iterator[InjectionFinding]:
    for number, match in enumerate(pattern.finditer(text)):
        if number == settings.most_findings:
            return
        yield InjectionFinding(
            rule=rule, level=level, reason=reason, start=match.start(), end=match.end()
        )


_URL = r"(?:https?|hxxps?|ftp|wss?)://[^\s\"'<>)\]]{1,400}"
_PLACEHOLDER = re.compile(
    r"(?:\{\{?|\[|<|%7b|\$\{?|\bINSERT_?|\()[\w .,'+-]{0,40}?(?:conversation|chat|secret|history"
    r"|prompt|user|data|context|password|token|key|summary|answer|credential|email|mail|private|"
    r"message|session|document|content|info|name|base64|response|memory|instruction|question|query"
    r"|output|result|leak|stolen|exfil|encoded|balance|number|address|notes?|files?)",
    re.IGNORECASE,
)
_IMAGE = re.compile(
    r"!\[[^\]\n]{0,200}\]\(\s{0,4}<?(?P<url>(?:https?:)?//[^\s)]{1,600})"
    r"|<(?:img|iframe|script|link|audio|video|source|embed|object)\b[^>\n]{0,200}?"
    r"(?:src|href|data)\s?=\s?[\"']?(?P<tag>(?:https?:)?//[^>\s]{1,600})",
    re.IGNORECASE,
)
_CARRIES = re.compile(r"[?&#][\w.-]{0,40}=|/$|=$|[{\[<$]|%7b", re.IGNORECASE)
_LINK = re.compile(rf"{_URL}", re.IGNORECASE)
# Services that show whoever made the address what was sent to it.
_CATCHER = re.compile(
    r"\b(?:[\w-]{1,63}\.)?(?:webhook\.site|requestbin\.\w+|requestcatcher\.com"
    r"|ngrok(?:-free)?\.(?:io|app|dev)"
    r"|burpcollaborator\.net|oastify\.com|oast\.\w+|interact\.sh|pipedream\.net|beeceptor\.com|"
    r"hookbin\.com|dnslog\.cn|ceye\.io|canarytokens\.\w+|trycloudflare\.com|serveo\.net|"
    r"localtunnel\.me|loca\.lt|pastebin\.com/api|transfer\.sh|file\.io|attacker[\w-]{0,20}\.\w+"
    r"|evil[\w-]{0,20}\.\w+|exfil[\w-]{0,20}\.\w+|malicious[\w-]{0,20}\.\w+)",
    re.IGNORECASE,
)
_SEND = (
    r"(?:send|post|forward|upload|transmit|e?mail|exfiltrate|append|leak|report|submit|relay"
    r"|deliver"
    r"|share|copy|write|pass|put|push|transfer|attach|encode|embed|add|include|export|sync|report"
    r"|provide|log|bcc|cc|dispatch|route|redirect|stream|save)"
)
_WHAT = (
    r"(?:conversations?|chat|history|transcripts?|secrets?|passwords?|keys?|credentials?|tokens?|"
    r"system{S}prompt|instructions|prompt|context|user{S}s|users|personal|private|confidential|"
    r"sensitive|emails?|inbox|mailbox|messages?|documents?|files?|contents?|data|records?|answers?|"
    r"memory|memories|cookies?|details|results?|summary|response|information|contacts?|invoices?|"
    r"notes?|environment|query|question|everything|balance|output)"
).replace("{S}", S)
_TO = (
    (
        r"(?:https?://|hxxps?://|www\.|[\w.+-]{1,64}@[\w-]{1,63}\.[a-z]{2,}|[\w-]{1,63}\.(?:com"
        r"|net|org|io"
        r"|example|site|xyz|ru|evil|info|dev|app|co|test)\b|(?:this|the|that|following|our|my){S}"
        r"(?:{W}{S})?(?:url|address|endpoint|server|webhook|link|domain|site|number))"
    )
    .replace("{S}", S)
    .replace("{W}", r"[^\W_]{1,30}")
)
_CARRY_OFF = re.compile(rf"\b{_SEND}{S}{gap(8)}{_WHAT}(?:{S}|\b).{{0,80}}?{_TO}", re.IGNORECASE)
_FETCH = re.compile(
    rf"\b(?:fetch|visit|open|load|request|navigate|browse|click|get|curl|wget|render|display"
    rf"|retrieve"
    rf"|call|access|follow|download|ping|query|go|make|issue|show|lookup|resolve|point|trigger){S}"
    rf"(?:{gap(8)})(?={_URL}|[\w-]{{1,63}}\.)",
    re.IGNORECASE,
)
_ORDERS = re.compile(
    r"\b(?:replac\w{1,3}|substitut\w{1,3}|where|with|containing|including|append\w{0,3}"
    r"|encod\w{1,3}|"
    r"fill\w{0,3}|insert\w{0,3}|add\w{0,3}|put\w{0,4}|followed by|plus"
    r"|concatenat\w{1,3})\b[^\n]{0,60}\b(?:conversation|user|data|"
    r"secret|password|key|history|context|prompt|answer|summary|email|token|information|content)",
    re.IGNORECASE,
)
_ALL = re.compile(
    r"\b(?:all|every|entire|whole|full|complete|user'?s?|conversation|chat|secrets?|passwords?|"
    r"api[\W_]keys?|credentials?|system[\W_]prompt|inbox|private|confidential|history|any|stored"
    r"|cookies?|tokens?|environment|your|previous|session|context|contacts?|sensitive|customer'?s?"
    r"|client'?s?|patient'?s?|employee'?s?|credit[\W_]card|phone[\W_]number|personal)\b",
    re.IGNORECASE,
)
_SCHEME = re.compile(
    r"\b(?:javascript:[\w(]|data:text/html|vbscript:)|\bon(?:error|load)\s?=\s?[\"']?\w{2,20}\(",
    re.IGNORECASE,
)


def find_exfiltration(text: str) -> Iterator[InjectionFinding]:
    """Places where a text sends, or would have a model send, what is not its own."""

    def found(level: Level, reason: str, start: int, end: int) -> InjectionFinding:
        return InjectionFinding(
            rule="exfiltration", level=level, reason=reason, start=start, end=end
        )

    has_address = "://" in text or "](" in text
    if has_address or "<" in text:
        for match in _IMAGE.finditer(text):
            url = match["url"] or match["tag"]
            if _PLACEHOLDER.search(url):
                yield found("clear", "loads an address that carries data", *match.span())
            elif match["url"] and _CARRIES.search(url):
                yield found("hint", "loads a picture by an address with a question", *match.span())
            if match["url"] and _ORDERS.search(text, match.end(), match.end() + 200):
                yield found("clear", "says what an address is to carry", *match.span())
    if has_address:
        for match in _LINK.finditer(text):
            if _PLACEHOLDER.search(match.group() + text[match.end() : match.end() + 40]):
                yield found("hint", "holds an address with a place for data", *match.span())
            if _ORDERS.search(text, match.end(), match.end() + 120):
                yield found("hint", "says what goes behind an address", *match.span())
    for match in _CATCHER.finditer(text):
        yield found("clear", "names a service that records requests", *match.span())
    if has_address or "@" in text or "." in text:
        for match in _CARRY_OFF.finditer(text):
            level: Level = "clear" if _ALL.search(match.group()) else "hint"
            yield found(level, "has data sent to an address", *match.span())
    if has_address:
        for match in _FETCH.finditer(text):
            tail = text[match.end() : match.end() + 300]
            if _PLACEHOLDER.search(tail) or _ORDERS.search(tail):
                yield found("clear", "has an address opened that carries data", *match.span())
    if ":" in text or "=" in text:
        for match in _SCHEME.finditer(text):
            yield found("hint", "holds an address that runs code", *match.span())
