"""Kinds of claim: fact unless clearly opinion, procedure or talk about the answer itself.

A claim with a number, date or name stays FACTUAL even after "I think" or "As mentioned above",
so that it is always checked (decision D3).
"""

from __future__ import annotations

import re

from crp_integrations.language.dates import dates
from crp_integrations.language.names import names
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import fold
from crp_integrations.language.words import IMPERATIVES, VERBS, finite_verb, words
from crp_integrations.vocabulary import ClaimType

_I = re.IGNORECASE
_LONGEST = 300  # characters; refusals and courtesies are shorter
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
# The subject of a refusal: the answer, or the thing that was asked about.
_IT = r"(?:(?:it|this|that)|(?:the|this|that|your|an|such)\s+(?:answer|question|information))"
_ANSWERED = r"(?:answer(?:ed)?|determined?|f[io](?:u)?nd|provided?|tell|help|assist|say|respond)"
# Refusals: the whole claim must match, so that it contains nothing else.
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
# A greeting asserts nothing only when it is the whole claim.
_GREETING = re.compile(
    r"(?:(?:hello|hi|hey|good\s+(?:morning|afternoon|evening|day)|goodbye|bye"
    r"|have\s+a\s+(?:great|nice|good)\s+day)(?:\s+there|\s+again)?"
    r"|i(?:'m|\s+am)\s+(?:not\s+(?:entirely\s+|really\s+)?sure|unsure))\W*\Z",
    _I,
)
# Words that may follow a courtesy without asserting anything.
_FILLER = re.compile(
    r"(?:[\s,]*\b(?:if|for|to|with|about|you|your|yours|have|has|need|needs|want|would|like|any"
    r"|anything|something|else|other|another|more|further|additional|questions?|query|queries"
    r"|help|assistance|clarification|information|details?|concerns?|ask|asking|asked|me|us|i|we"
    r"|can|could|be|of|or|and|the|this|that|it|in|there|again|so|much|very|reach|out|contact"
    r"|anytime|time|today|ahead|day|understand|know|clarify|assist|all|is|are)\b)*\W*\Z",
    _I,
)


def is_silent(text: str) -> bool:
    """Whether a claim states that the source does not contain something."""
    return _SILENT.match(text.strip()) is not None


def is_talk(text: str) -> bool:
    """Whether a whole claim is a refusal or a courtesy and nothing else."""
    body = _body(text)
    if _REFUSAL.match(body):
        return True
    courtesy = _COURTESY.match(body)
    return courtesy is not None and _FILLER.match(courtesy["rest"]) is not None


def is_greeting(text: str) -> bool:
    """Whether a whole claim is a greeting, or says only that the speaker is not sure."""
    return _GREETING.match(_body(text)) is not None


def is_request(text: str) -> bool:
    """Whether a claim asks the user something, such as to clarify the question."""
    return _REQUEST.match(_body(text)) is not None


def _body(text: str) -> str:
    if len(text) > _LONGEST:
        return ""
    return " ".join(fold(text).text.split()).strip("*_# ")


# Refusals in other languages: whole claims that say that the source has no answer.
# Spelled without accents, because `fold` removes them.
_REFUSED_ABROAD = re.compile(
    r"(?:leider,?\s+|desolee?,?\s+|lo\s+siento,?\s+(?:pero\s+)?)?(?:"
    # German
    r"(?:das|es|dazu|daruber|davon)\s+(?:weiß\s+ich|ist\s+mir)\s+(?:leider\s+)?(?:nicht|nichts)"
    r"(?:\s+bekannt)?|ich\s+wei(?:ß|ss)\s+(?:es|das)\s+(?:leider\s+)?nicht"
    r"|(?:ich\s+kann|kann\s+ich)\s+(?:leider\s+)?(?:diese|die|ihre|deine)?\s*(?:frage|das|dazu)?\s*"
    r"(?:leider\s+)?nicht(?:s)?\s+(?:beantworten|sagen)"
    r"|(?:(?:im|in\s+den|in\s+dem|aus\s+dem|aus\s+den)\s+{DE}|dazu|hierzu|daruber)\s+(?:gibt\s+es"
    r"|finden?\s+sich|stehen?|steht|liegen\s+mir|habe\s+ich)\s+(?P<de>[^.!?;:,]{0,80}?)\b"
    r"(?:nichts|kein(?:e|en|er|erlei)?\s+(?:angaben?|informationen|auskunft|hinweise?|antwort))"
    r"(?:\s+(?:vor|dazu|daruber))?"
    r"|(?:der|die|das|dieser|diese|dieses)\s+{DE}\s+(?:enthalt|enthalten|nennt|nennen|sagt|sagen"
    r"|erwahnt|erwahnen|gibt|geben|beantwortet|beantworten)\b[^.!?;:,]{0,80}?"
    r"\b(?:nicht|nichts|kein(?:e|en)?)\b[^.!?;:,]{0,80}"
    # French
    r"|je\s+ne\s+(?:le\s+)?sais\s+pas|je\s+ne\s+(?:peux|suis\s+pas\s+en\s+mesure\s+de)\s*(?:pas\s+)?"
    r"(?:y\s+)?repondre(?:\s+a\s+(?:cette|la|votre)\s+question)?"
    r"|(?:le|les|ce|ces|la|l')\s*{FR}\s+(?:fournie?s?\s+)?(?:ne|n')\s*(?:mentionn|precis|contien"
    r"|di(?:t|sent)|donn|fourni|indiqu|parl)\w*\s+(?:pas|rien|aucune?)\b[^.!?;:,]{0,120}"
    # Spanish
    r"|no\s+(?:lo\s+)?se|no\s+puedo\s+responder(?:\s+a)?(?:\s+(?:esta|la|su|tu)\s+pregunta)?"
    r"|(?:el|los|la|las|este|estos)\s+{ES}\s+(?:proporcionad[oa]s?\s+)?no\s+(?:mencion|indic|conti"
    r"|dic|especific|proporcion|ofrec|habl)\w*\b[^.!?;:,]{0,120}"
    r"|no\s+hay\s+(?:suficiente\s+)?informacion(?:\s+suficiente)?(?:\s+(?:en|sobre)\b[^.!?;:,]{0,80})?"
    r"|desolee?|lo\s+siento|es\s+tut\s+mir\s+leid|tut\s+mir\s+leid"
    r")\W*\Z".replace(
        "{DE}", r"(?:kontext|texte?n?|dokumente?n?|quellen?|unterlagen|passagen?|abschnitte?n?)"
    )
    .replace("{FR}", r"(?:contexte|textes?|documents?|sources?|passages?|extraits?)")
    .replace("{ES}", r"(?:contexto|textos?|documentos?|fuentes?|pasajes?|fragmentos?)"),
    _I,
)
_COURTESY_ABROAD = re.compile(
    r"(?:hallo|guten\s+(?:tag|morgen|abend)|gern(?:e)?\s*(?:geschehen)?|vielen\s+dank|danke"
    r"|bonjour|bonsoir|merci(?:\s+beaucoup)?|je\s+vous\s+en\s+prie|hola|buenos\s+dias|buenas\s+tardes"
    r"|gracias|muchas\s+gracias|de\s+nada"
    r"|ich\s+hoffe,?\s+das\s+hilft(?:\s+(?:ihnen|dir))?|j'espere\s+que\s+cela\s+(?:vous\s+)?aide"
    r"|espero\s+que\s+(?:esto\s+)?(?:te\s+|le\s+)?ayude)\W*\Z",
    _I,
)
_ASKS = frozenset(
    """what which who whom whose when where why how is are was were do does did can could will
    would shall should may might has have had
    wer was wann wo warum wie welche welcher welches ist sind kann konnen soll sollen mochten haben
    qui que quoi quand ou pourquoi comment quel quelle quels quelles est-ce puis-je voulez souhaitez
    que quien cuando donde como cual cuales puedo quieres desea""".split()
)
_RHETORIC = re.compile(r"did\s+you\s+know\b|who\s+knew\b", _I)
# A lead-in announces what follows but asserts nothing.
_LEAD_IN = re.compile(
    r"(?:here(?:'s|\s+(?:is|are))|below\s+(?:is|are)|(?:these|this|they|it)\s+(?:is|are)"
    r"|(?:the\s+)?(?:following|next)(?:\s+(?:is|are))?|(?:hier|das|dies)\s+(?:ist|sind)|voici|estos?\s+son"
    rf"|aqui\s+(?:esta|estan|tienes)|quot(?:ed|ing)\s+from\s+{SOURCE})\b[^:.,;]{{0,60}}:\W*\Z",
    _I,
)
# In a refusal, a separate statement may follow one of these.
_JOINED = re.compile(
    r"[;:\u2013]|\s-\s|[.!?]\s|,(?!\s*(?:sorry|unfortunately)\b)|\b(?:but|because|since|so|as|although"
    r"|though|while|whereas|however|only|except|other\s+than|beyond|and\s+(?:it|they|the|that|this)"
    r"|which|who\s+(?:is|was)|aber|sondern|weil|denn|da|nur|außer|mais|car|seulement|pero|porque|sino"
    r"|solo|solo)\b",
    _I,
)
_LEADING = re.compile(
    r"(?:(?:unfortunately|however|but|sorry|i(?:'m|\s+am)\s+(?:sorry|afraid)),?\s+)+", _I
)


def asserts_nothing(text: str, *, heading: bool = False) -> bool:
    """Whether a claim's form alone shows that it asserts nothing and needs no check.

    Uses closed lists: greetings, courtesies, offers of help, refusals, questions, headings
    without a verb, lead-ins with a colon. A figure, date or name makes the text a claim, except
    in a refusal, which may name what it does not know. Opinions, procedures and advice are claims.

    Args:
        text: one claim.
        heading: whether it is a heading.
    """
    body = _body(text)
    if not body:
        return not text.strip()
    rest = without_opener(body) or body
    if _REFUSAL.match(rest) or _REFUSED_ABROAD.match(rest):
        return True
    led = _LEADING.match(rest)
    bare = rest[led.end() :] if led is not None else rest
    if _SILENT.match(bare) and not _JOINED.search(bare):
        return True
    tokens = words(body)
    if quantities(body) or dates(body):
        return False
    if heading and ":" not in body.rstrip(":"):
        return finite_verb(tokens, 1) is None
    if is_talk(body) or is_greeting(body) or is_request(body) or _COURTESY_ABROAD.match(body):
        return True
    if _OPENER.fullmatch(body) and not re.match(r"(?:yes|no|absolutely|certainly|of)\b", body, _I):
        return True
    if names(body):
        return False
    if body.rstrip("\"'”)*_ ").endswith("?"):
        first = re.match(r"[¿\W]*([\w-]+)", body)
        asks = first is not None and first[1].lower() in _ASKS and not _RHETORIC.match(body)
        return asks and not re.search(r"[.!]\s|[,;]\s*(?:and|but)\b", body)
    if body.endswith(":"):
        return _LEAD_IN.match(body) is not None or finite_verb(tokens) is None
    return False


_OPENER = re.compile(
    rf"(?:as\s+(?:mentioned|noted|discussed|described|stated|explained|shown|outlined)"
    rf"(?:\s+(?:above|below|earlier|previously|before|in\s+{SOURCE}))?"
    rf"|(?:based\s+on|according\s+to|given|from)\s+{SOURCE}"
    r"|in\s+(?:summary|conclusion|short|brief)|to\s+(?:summari[sz]e|conclude|sum\s+up|recap)"
    r"|overall"
    r"|(?:yes|no|sure|certainly|of\s+course|absolutely|great\s+question|good\s+question)"
    r")\s*(?:[,:;.!\u2013-]\s*|\Z)",
    _I,
)
_META = re.compile(
    r"(?:here(?:'s|\s+(?:is|are))\b|below\s+(?:is|are)\b|the\s+following\s+(?:is|are|list|table"
    r"|sections?|answer)\b"
    rf"|quot(?:ed|ing)\s+from\s+{SOURCE}"
    r"|i\s+hope\b|let\s+me\s+know\b|feel\s+free\b|(?:please\s+)?let\s+me\b|if\s+you\s+(?:have|need"
    r"|want|would\s+like)\b"
    r"|i(?:'m|\s+am)\s+(?:sorry|unable|not\s+able|happy|glad|an?\s+ai)\b|i\s+apologi[sz]e\b|sorry\b"
    r"|i\s+(?:cannot|can't|can\s+not|could\s+not|couldn't|do\s+not|don't|did\s+not"
    r"|didn't)\s+(?:answer|find|determine|know|have|see|provide|say|tell)\b"
    r"|i\s+(?:will|shall|'ll|have|can)\s+(?:now\s+)?(?:explain|describe|summari[sz]e|outline"
    r"|answer|list|help)\w*\b"
    r"|(?:this|the|my)\s+(?:answer|response|summary|list|overview|section)\s+(?:is|was|covers"
    r"|describes|summari[sz]es|quotes|uses|only|does|will|below|above)\b"
    r"|i\s+(?:quote|answered|summari[sz]ed|used)\b|thank\s+you\b|thanks\b|you(?:'re"
    r"|\s+are)\s+welcome\b)",
    _I,
)
# A statement about the response itself, if a plain object follows: "This answer covers three laws".
_SPEAKS = re.compile(
    r"(?:this|my|the(?:\s+following)?)\s+(?:answer|response|summary|list|overview|section)\s+"
    r"(?:only\s+)?(?:covers|describes|summari[sz]es|quotes|uses)\b",
    _I,
)
_CITES = re.compile(r"(?:sources?|references?|citations?|see)\W*(?:\[\^?\w{1,16}\]\W*)+\Z", _I)
_OPINION = re.compile(
    r"(?:\b(?:i|we)\s+(?:personally\s+|really\s+|would\s+)?(?:think|believe|feel|suspect|guess"
    r"|reckon|recommend|suggest|prefer|like|love|argue|say)\b"
    r"|\bin\s+my\s+(?:\w+\s+)?(?:opinion|view|experience)\b|\barguably\b|\bpersonally\b"
    r"|\bto\s+my\s+mind\b"
    r"|\b(?:you|one|we|it)\s+(?:should|could|might\s+want\s+to"
    r"|may\s+want\s+to)\s+(?:\w+ly\s+)?consider\b|\bworth\s+(?:considering|noting|trying)\b"
    r"|\b(?:it|this|that|these|they)(?:'s|\s+(?:is|are|was|were|seems?|looks?"
    r"|feels?))\s+(?:\w+ly\s+|very\s+|quite\s+|a\s+|an\s+|the\s+|such\s+)*"
    r"(?:best|better|worst|great|excellent|beautiful|ugly|interesting|impressive|remarkable"
    r"|wonderful|terrible|awful|amazing|good|bad|nice|sad|exciting|disappointing|lovely"
    r"|fascinating|important|useful|helpful|sensible|wise|unfortunate)\b)",
    _I,
)
_PURPOSE = re.compile(
    r"(?:(?:first|next|then|finally|now|second|third|lastly|afterwards|please|also|once\s[^,]{1,80}"
    r"|to\s+[a-z][^,]{1,80}|in\s+order\s+to\s[^,]{1,80}|if\s[^,]{1,80}|when\s[^,]{1,80}"
    r"|after\s[^,]{1,80}"
    r"|before\s[^,]{1,80}),?\s+)",
    _I,
)
_MAX_OPENERS = 3  # openers in a row that are removed


def kind_of(text: str, *, heading: bool = False, numbered: bool = False) -> ClaimType:
    """The kind of one claim.

    Spec: CRP-SPEC-005 §3.3

    Args:
        text: the claim.
        heading: whether it is a heading.
        numbered: whether it is an item of a numbered list.
    """
    body = fold(text).text.strip().strip("*_# ").strip()
    rest = without_opener(body)
    opened = rest != body
    if not any(character.isalnum() for character in rest):
        return ClaimType.META
    if _CITES.match(rest):
        return ClaimType.META
    tokens = words(rest)
    if (is_silent(rest) and not _second_clause(rest)) or is_talk(rest):
        return ClaimType.META
    counted = quantities(rest)
    firm = bool(counted or dates(rest))
    named = bool(names(rest))
    if not firm and _imperative(rest, numbered):
        return ClaimType.PROCEDURAL
    # "Here are the 3 points:" only counts what follows.
    bare = not firm or (len(counted) == 1 and counted[0].kind == "number" and not dates(rest))
    spoken = _SPEAKS.match(rest)
    spoken_of = rest[spoken.end() :].rstrip(".:") if spoken else ""
    if spoken_of and bare and finite_verb(words(spoken_of)) is None and "," not in spoken_of:
        return ClaimType.META
    if firm:
        announces = bare and rest.endswith(":") and _META.match(rest) is not None
        return ClaimType.META if announces else ClaimType.FACTUAL
    if (heading and finite_verb(tokens, 1) is None) or rest.endswith("?"):
        return ClaimType.META
    if rest.endswith(":") and (finite_verb(tokens) is None or _META.match(rest)):
        return ClaimType.META
    if named:
        return ClaimType.FACTUAL
    if _META.match(rest):
        return ClaimType.META
    if opened and len(tokens) < 2:
        return ClaimType.META
    return ClaimType.OPINION if _OPINION.search(rest) else ClaimType.FACTUAL


def without_opener(text: str) -> str:
    """The text without openers such as "Yes,", "Overall," and "Based on the context,"."""
    for _ in range(_MAX_OPENERS):
        match = _OPENER.match(text)
        if match is None or match.end() == 0:
            break
        text = text[match.end() :]
    return text


def _second_clause(text: str) -> bool:
    """Whether a clause with its own verb follows a comma, colon or dash."""
    for match in re.finditer(r"[,;:\u2013]\s|\s-\s|\.\s", text):
        tail = words(text[match.end() : match.end() + 200])
        if len(tail) > 2 and finite_verb(tail, 1) is not None:
            return True
    return False


_AFTER_NOUN = frozenset("of is was are were has have had can will rose fell".split())


def _imperative(text: str, numbered: bool) -> bool:
    for _ in range(_MAX_OPENERS):
        first = words(text[:40])
        if first and first[0].lower in IMPERATIVES:
            break
        match = _PURPOSE.match(text)
        if match is None:
            break
        text = text[match.end() :]
    tokens = words(text[:160])
    if not tokens:
        return False
    lower = tokens[0].lower
    if lower not in IMPERATIVES and not (numbered and lower in VERBS):
        return False
    # "Use of the tool is free" and "Test results are in" are not commands.
    after = tokens[1].lower if len(tokens) > 1 else ""
    if after in _AFTER_NOUN:
        return False
    return finite_verb(tokens[:4], 1) is None or after in ("the", "a", "an", "your", "it", "this")
