"""Addresses to which a text would have a model carry something off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crp_integrations.guard.injection.phrases import S, gap
from crp_integrations.guard.injection.records import Finding, Level

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


def carried_off(text: str) -> Iterator[Finding]:
    """Places where a text sends, or would have a model send, what is not its own.

    Args:
        text: folded; case does not matter.
    """

    def found(level: Level, reason: str, start: int, end: int) -> Finding:
        return Finding(rule="exfiltration", level=level, reason=reason, start=start, end=end)

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
