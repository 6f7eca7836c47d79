"""Talk about the answer itself: refusals, requests and courtesies state nothing of the world.

A source can support none of it, so none of it counts for or against an answer.
"""

from __future__ import annotations

import re

from crp_integrations.language.text import fold

_I = re.IGNORECASE
_LONGEST = 300
SOURCE = (
    r"(?:(?:the|this|your|these|any of the)\s+)?(?:(?:provided|given|supplied|available|above"
    r"|retrieved)\s+)?"
    r"(?:context|documents?|sources?|passages?|text|information|excerpts?|materials?|facts)"
    r"(?:\s+(?:provided|given|supplied|above|available))?"
)
_SILENT = re.compile(
    rf"(?:(?:unfortunately|however|but|sorry),?\s+)?(?:i\s+(?:cannot|can't|could\s+not|couldn't"
    rf"|do\s+not|don't|did\s+not)\s+(?:find|see|have|know|answer|determine)\b"
    rf"|{SOURCE}\s+(?:does|do|did)\s*(?:not|n't)\s+(?:\w+ly\s+)?(?:say|mention|contain|provide"
    rf"|specify|include|give|state|cover|describe|explain|discuss|tell|indicate|address|answer"
    rf"|support|have|list)\b"
    rf"|(?:there\s+is\s+)?(?:no|not\s+enough|insufficient)\s+(?:\w+\s+)?(?:information|mention"
    rf"|answer|details?|data)\b[^.]{{0,60}}\b(?:in|from)\s+{SOURCE}"
    rf"|nothing\s+in\s+{SOURCE}\b)",
    _I,
)
# What is said to be missing: the answer, or whatever was asked about.
_IT = r"(?:(?:it|this|that)|(?:the|this|that|your|an|such)\s+(?:answer|question|information))"
_ANSWERED = r"(?:answer(?:ed)?|determined?|f[io](?:u)?nd|provided?|tell|help|assist|say|respond)"
# These say of themselves that there is no answer: whole claims, with no room for another word.
_REFUSAL = re.compile(
    r"(?:(?:unfortunately|however|but|(?:i(?:'m|\s+am)\s+)?(?:very\s+)?(?:sorry|afraid)"
    r"|as\s+an\s+ai(?:\s+\w+){0,2}),?\s+)*(?:"
    r"i(?:'m|\s+am)\s+(?:sorry|afraid)"
    rf"|(?:i\s+apologi[sz]e|my\s+apologies|sorry|apologies)"
    r"(?:\s+for\s+(?:the|any)\s+(?:confusion|inconvenience))?"
    r"|(?:i\s+(?:cannot|can't|could\s+not|couldn't|do\s+not|don't)|(?:i(?:'m|\s+am)\s+)?"
    rf"(?:unable|not\s+able)\s+to)\s+(?:know|{_ANSWERED})"
    r"(?:\s+(?:you|it|that|this|an|the|your|any|question|answer|request|with|to))*"
    rf"(?:\s+(?:based\s+on|from|with|using|in)\s+{SOURCE})?"
    r"|(?:i\s+(?:do\s+not|don't)\s+have\s+|there\s+is\s+(?:not\s+)?)?(?:no|not?\s+enough|enough"
    r"|insufficient)\s+(?:relevant\s+)?(?:information|context|data|details)(?:\s+(?:available"
    r"|provided|found))?(?:\s+to\s+answer(?:\s+(?:the|this|your|that|it|question))*)?"
    rf"|{_IT}\s+(?:is|was)(?:\s+not|n't)\s+(?:\w+ly\s+)?(?:stated|mentioned|specified|provided"
    rf"|given|included|described|available|contained|covered|found|answered)?\s*(?:in|by|from)\s+"
    rf"{SOURCE}"
    rf"|{_IT}\s+(?:cannot|can't|can\s+not|could\s+not|couldn't)\s+be\s+(?:answered|determined"
    rf"|found)(?:\s+(?:in|from|by|with|using|based\s+on)\s+{SOURCE})?"
    rf"|(?:{_IT}|(?:this|the|that|your)\s+topic)\s+is\s+(?:out\s+of|outside|beyond)\s+(?:of\s+)?"
    rf"(?:the\s+)?(?:scope|range)(?:\s+(?:of|for)\s+{SOURCE})?"
    rf"|i\s+can\s+only\s+answer\s+questions\s+(?:about|on|from|based\s+on|using)\s+{SOURCE}"
    r"|no\s+(?:relevant\s+)?(?:facts?|documents?|results?|passages?|information|answer|matches)"
    r"\s+(?:was|were|is|are|could\s+be)\s+(?:found|available|provided|retrieved)"
    r"|n/a|unknown|unanswerable)\W*\Z",
    _I,
)
_REQUEST = re.compile(
    r"(?:(?:please|hello|hi|hey|sure|great|and|so|thanks),?!?\s+)?(?:"
    r"(?:could|can|would|will)\s+you\s+(?:please\s+)?(?:clarify|rephrase|specify|provide|share"
    r"|explain|elaborate|repeat|tell\s+me|give|confirm|be\s+more)\b"
    r"|(?:how|what|where)\s+(?:else\s+)?(?:can|may|could)\s+i\s+(?:help|assist|do)\b"
    r"|(?:is|was)\s+there\s+anything\s+else\b|do\s+you\s+mean\b|(?:would|do)\s+you\s+(?:like|want"
    r"|need)\s+(?:me\b|to\s+know\b|(?:any|more|further|additional)\s+(?:help|information|details))"
    r"|what\s+(?:exactly\s+)?do\s+you\s+mean\b|which\s+(?:one\s+)?do\s+you\s+mean\b"
    r"|(?:can|may)\s+i\s+help\b)[^.!]*\?\W*\Z",
    _I,
)
_COURTESY = re.compile(
    r"(?:and\s+|please\s+)*(?:let\s+me\s+know|feel\s+free\s+to\s+(?:ask|reach\s+out|contact\s+me)"
    r"|i\s+hope\s+(?:this|that|it)\s+(?:helps|is\s+helpful|answers)|thank\s+you|thanks"
    r"|you(?:'re|\s+are)\s+(?:very\s+)?welcome|(?:i(?:'m|\s+am)\s+)?(?:happy|glad)\s+to\s+help)"
    r"\b(?P<rest>[^.!?]*)[.!?\W]*\Z",
    _I,
)
# Nothing where they are all that is said. Before anything else they tell what kind of answer it is.
_GREETING = re.compile(
    r"(?:(?:hello|hi|hey|good\s+(?:morning|afternoon|evening|day)|goodbye|bye"
    r"|have\s+a\s+(?:great|nice|good)\s+day)(?:\s+there|\s+again)?"
    r"|i(?:'m|\s+am)\s+(?:not\s+(?:entirely\s+|really\s+)?sure|unsure))\W*\Z",
    _I,
)
# What may follow a courtesy without saying anything: who is meant, and what for.
_FILLER = re.compile(
    r"(?:[\s,]*\b(?:if|for|to|with|about|you|your|yours|have|has|need|needs|want|would|like|any"
    r"|anything|something|else|other|another|more|further|additional|questions?|query|queries"
    r"|help|assistance|clarification|information|details?|concerns?|ask|asking|asked|me|us|i|we"
    r"|can|could|be|of|or|and|the|this|that|it|in|there|again|so|much|very|reach|out|contact"
    r"|anytime|time|today|ahead|day|understand|know|clarify|assist|all|is|are)\b)*\W*\Z",
    _I,
)


def is_silent(text: str) -> bool:
    """Whether a claim says that its source does not say something.

    >>> is_silent("The context does not contain an answer to this question.")
    True
    """
    return _SILENT.match(text.strip()) is not None


def is_talk(text: str) -> bool:
    """Whether a whole claim is a refusal or a courtesy, with no word of anything else.

    >>> is_talk("I'm sorry"), is_talk("Let me know if you have any other questions!")
    (True, True)
    >>> is_talk("Let me know what Acme paid.")
    False
    """
    body = _body(text)
    if _REFUSAL.match(body):
        return True
    courtesy = _COURTESY.match(body)
    return courtesy is not None and _FILLER.match(courtesy["rest"]) is not None


def is_greeting(text: str) -> bool:
    """Whether a whole claim is a greeting, or says that the one who answers is not sure.

    >>> is_greeting("Hello!"), is_greeting("I'm not sure."), is_greeting("I'm sure.")
    (True, True, False)
    """
    return _GREETING.match(_body(text)) is not None


def is_request(text: str) -> bool:
    """Whether a claim asks the one who asked for something.

    >>> is_request("Could you rephrase the question?"), is_request("Did you know?")
    (True, False)
    """
    return _REQUEST.match(_body(text)) is not None


def _body(text: str) -> str:
    if len(text) > _LONGEST:
        return ""
    return " ".join(fold(text).text.split()).strip("*_# ")
