"""Swapped roles: who did what to whom, which value belongs to what, which way a relation runs."""

from __future__ import annotations

import re
from random import Random

from tests.bench.distortions.amounts import MONTHS
from tests.bench.distortions.case import Edit, Pool, Sentence, put
from tests.bench.distortions.names import people_in

_NAME = r"(?:[A-Z][\w'’]+(?: (?:of |the |de |von |van )?[A-Z][\w'’]+){0,3})"
_VERB = (
    r"(?:defeated|succeeded|replaced|acquired|founded|directed|produced|wrote for|beat|preceded|"
    r"married into|"
    r"appointed|signed|bought|purchased|sued|criticized|criticised|influenced|taught|killed|"
    r"discovered|"
    r"conquered|invaded|attacked|joined|influenced|coached|managed|trained|interviewed|"
    r"represents|owns|"
    r"overlooks|contains|borders on|supports|calls|wraps|inherits from|extends|overrides|uses|"
    r"precedes|"
    r"(?:is|was|were|are) (?:also )?(?:\w+ed|written|led|won|built|drawn|held|made|sung|taught|"
    r"overseen) by|"
    r"(?:is|was) (?:the |a |an )?(?:son|daughter|father|mother|pupil|student|subsidiary|part|"
    r"suburb|"
    r"capital|successor|predecessor|wife|husband|member|division|tributary|district) of|"
    r"(?:is|was|lies) (?:located )?(?:north|south|east|west|northeast|northwest|southeast|"
    r"southwest|in the \w+ part) of)"
)
_TWO = re.compile(
    rf"^(?P<a>(?:The )?{_NAME}) (?P<v>{_VERB}) (?P<b>(?:the )?{_NAME})(?=[.,]| (?:in|on|at|by|"
    rf"for|from|with|as|during|after|before|to|who|which|when)\b)"
)
# One of two people does something to the other, and they are not named side by side.
_ACTS = re.compile(r"\b(?:was|is|by|of|to|for|[a-z]+ed|wrote|won|beat|led)\b")
_ALIKE = re.compile(
    r"\b(?:and|or|with|married|between|versus|starring|stars|featuring|including|alongside|met|"
    r"like|&|fought)\b|[;(]"
)
_MOVES = re.compile(
    r"\b(?:renam\w*|mov\w+|flows?|flew|travel\w*|relocat\w*|transfer\w*|went|chang\w*|return\w*|"
    r"migrat\w*|"
    r"trip|sail\w*|promot\w*|convert\w*|emigrat\w*|march\w*|switch\w*)\b"
)
_FROM_TO = re.compile(
    r"\bfrom (?P<a>[A-Z][\w'’]+(?: [A-Z][\w'’]+)?|\$?\d[\d,.]*\d(?: million| billion)?%?|\d) "
    r"to (?P<b>[A-Z][\w'’]+(?: [A-Z][\w'’]+)?|\$?\d[\d,.]*\d(?: million| billion)?%?|\d)(?=[ .,;)])"
)
_YEARS = re.compile(r"\b(?P<p>[Ii]n) (?P<y>1[5-9]\d\d|20[0-2]\d)(?![-–/\w])")
_OPPOSITES = (
    ("north", "south"), ("east", "west"), ("northern", "southern"), ("eastern", "western"),
    ("higher", "lower"), ("larger", "smaller"), ("greater", "less"), ("increased", "decreased"),
    ("increases", "decreases"), ("increase", "decrease"), ("before", "after"),
    ("largest", "smallest"),
    ("highest", "lowest"), ("longest", "shortest"), ("older", "younger"), ("oldest", "youngest"),
    ("earlier", "later"), ("above", "below"), ("more than", "less than"), ("rose", "fell"),
    ("first", "last"), ("faster", "slower"), ("won", "lost"), ("maximum", "minimum"),
    ("husband", "wife"), ("father", "mother"), ("son", "daughter"), ("brother", "sister"),
    ("ascending", "descending"), ("input", "output"), ("left", "right"), ("encoded", "decoded"),
)  # fmt: skip
_PAIRS = {**dict(_OPPOSITES), **{other: one for one, other in _OPPOSITES}}
_WORD = re.compile(rf"\b(?:{'|'.join(sorted(_PAIRS, key=len, reverse=True))})\b")
# Words whose opposite is another sense, in what stands beside them.
_ORDER = re.compile(
    r"^ (?:book|film|album|season|single|novel|game|match|wife|president|time|element|argument|"
    r"item|line|character|column|axis|row|dimension|word|entry)\b"
)
_CONTEST = re.compile(r"^ (?:the (?:match|game|election|final|seat|case|battle|race|war)|by|to)\b")
_EVENT = re.compile(
    r"^ (?:the|a|an|it|he|she|any|calling|being|moving|joining|becoming|returning|his|her|its)\b"
)
_SENSE = {
    "left": re.compile(r"(?!)"),
    "right": re.compile(r"(?!)"),
    "first": _ORDER,
    "last": _ORDER,
    "before": _EVENT,
    "after": _EVENT,
    "increase": re.compile(r"^ (?:in|of|the)\b"),
    "decrease": re.compile(r"^ (?:in|of|the)\b"),
    "above": re.compile(r"^ (?:the|\d|sea)"),
    "below": re.compile(r"^ (?:the|\d|sea)"),
    "less": re.compile(r"^ than (?!or)"),
    "greater": re.compile(r"^ than (?!or)"),
    "more than": re.compile(r"^ (?:\d|a |an |half|twice)"),
    "less than": re.compile(r"^ (?:\d|a |an |half|twice)"),
    "lower": re.compile(r"^ than\b"), "higher": re.compile(r"^ than\b"),
    "north": re.compile(r"^ of\b"), "south": re.compile(r"^ of\b"),
    "east": re.compile(r"^ of\b"), "west": re.compile(r"^ of\b"),
    "won": _CONTEST,
    "lost": _CONTEST,
    "rose": re.compile(r"^ (?:to|by|from)\b"), "fell": re.compile(r"^ (?:to|by|from)\b"),
    "father": re.compile(r"^ of\b"), "mother": re.compile(r"^ of\b"),
    "son": re.compile(r"^ of\b"), "daughter": re.compile(r"^ of\b"),
    "husband": re.compile(r"^ of\b"), "wife": re.compile(r"^ of\b"),
    "brother": re.compile(r"^ of\b"), "sister": re.compile(r"^ of\b"),
    "earlier": re.compile(r"^ than\b"), "later": re.compile(r"^ than\b"),
    "input": re.compile(r"^ (?:array|file|string|graph|stream|tensor)\b"),
    "output": re.compile(r"^ (?:array|file|string|graph|stream|tensor)\b"),
}  # fmt: skip


def role(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """Two names, two values or a direction the other way round."""
    text = sentence.text
    found = [one for one in (_two(text), _people(text), _from_to(text), _years(text)) if one]
    opposite = _opposite(sentence, draw)
    if opposite and (not found or draw.random() < 0.15):
        return opposite
    return draw.choice(found) if found else None


def _two(text: str) -> Edit | None:
    match = _TWO.match(text)
    if match is None:
        return None
    a, b = match.group("a"), match.group("b")
    if a.split()[0] in ("He", "She", "It", "They", "This", "In", "There", "We") or a in b or b in a:
        return None
    if a.startswith("The ") and b.startswith("the "):
        first, second = b[4:], a[4:]
        new = f"The {first} {match.group('v')} the {second}"
    elif a.startswith("The "):
        new = f"{b} {match.group('v')} the {a[4:]}"
    elif b.startswith("the "):
        new = f"The {b[4:]} {match.group('v')} {a}"
    else:
        new = f"{b} {match.group('v')} {a}"
    return put(text, match.start(), match.end(), new, "names")


def _people(text: str) -> Edit | None:
    found = people_in(text)
    if len(found) != 2:
        return None
    (a, b), (c, d) = found
    middle = text[b:c]
    if not _ACTS.search(middle) or _ALIKE.search(middle) or text[a:b] == text[c:d]:
        return None
    return put(text, a, d, text[c:d] + middle + text[a:b], "people")


def _from_to(text: str) -> Edit | None:
    match = _FROM_TO.search(text)
    if match is None or match.group("a") == match.group("b"):
        return None
    a, b = match.group("a"), match.group("b")
    figures = [one for one in (a, b) if one.lstrip("$")[0].isdigit()]
    if len(figures) == 1 or re.fullmatch(r"1\d{3}|20\d\d", a) or re.fullmatch(r"1\d{3}|20\d\d", b):
        return None
    # A range has no direction, a change has.
    if figures and not re.search(
        r"\b(?:rose|fell|grew|increas\w+|decreas\w+|reduc\w+|drop\w*|chang\w+|expand\w+|rais\w+|"
        r"lower\w*|went|cut|moved)\b",
        text,
    ):
        return None
    if not figures and (a in MONTHS or not _MOVES.search(text)):
        return None
    return put(text, match.start(), match.end(), f"from {b} to {a}", "from_to")


def _years(text: str) -> Edit | None:
    found = list(_YEARS.finditer(text))
    if len(found) != 2 or found[0].group("y") == found[1].group("y"):
        return None
    one, two = found
    middle = text[one.end("y") : two.start("y")]
    if len(middle) < 12 or not re.search(r"\b(?:and|but)\b", middle):
        return None
    new = two.group("y") + middle + one.group("y")
    return put(text, one.start("y"), two.end("y"), new, "years")


def _opposite(sentence: Sentence, draw: Random) -> Edit | None:
    text = sentence.text
    found = []
    for match in _WORD.finditer(text):
        old, new = match.group(), _PAIRS[match.group()]
        sense = _SENSE.get(old)
        after, before = text[match.end() :], text[: match.start()]
        if sense is not None and not sense.search(after):
            continue
        if re.match(r"[-’']| (?:and|or) ", after) or re.search(
            r"(?:-|\b(?:and|or|at|not|no|one of the|the two|long|named|look\w*|day|soon|shortly|"
            r"much|even|were|are|was|far) )$",
            before,
        ):
            continue
        if old in ("north", "south", "east", "west") and re.search(r"(?:north|south)-?$", before):
            continue
        article = re.search(r"\ban? $", before)
        if article and (old[0] in "aeiou") != (new[0] in "aeiou"):
            continue
        if re.search(rf"\b{new}\b", sentence.evidence, re.IGNORECASE):
            continue
        found.append(put(text, match.start(), match.end(), new, "opposite"))
    return draw.choice(found) if found else None
