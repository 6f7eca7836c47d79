"""Changed numbers, units, magnitudes and dates."""

from __future__ import annotations

import re
from random import Random

from tests.bench.distortions.text import Edit, Pool, Sentence, has, put

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    "twenty",
)  # fmt: skip
_FIGURE = re.compile(r"(?<![\w$€£.,/:%–+()-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/:%–()-]|[.,]\d| ?%)")
_MONEY = re.compile(r"(?<=[$€£])\d+(?:,\d{3})*(?:\.\d+)?(?![\w/:%–-]|[.,]\d)")
_WORD = re.compile(rf"\b(?:{'|'.join(WORDS[2:13])})\b")
# What a counted thing is not: the next word of a number that only names, orders or belongs.
_NO_THING = frozenset(
    "and or to of in on at by for from with as is are was were has have had be been the a an but "
    "that which who when where while than per pm am times after before until since during under "
    "over into its his her their it he she they million billion trillion thousand hundred dozen "
    "degrees percent percentage th st nd rd this these those if not can may will would".split()
)
_NAMING = re.compile(
    r"(?:\b(?:[Nn]o|[Nn]umber|[Ss]ection|[Cc]hapter|[Vv]ersion|[Rr]oute|[Pp]age|[Pp]art|"
    r"[Ss]eason|[Ee]pisodes?|"
    r"[Vv]olume|[Ss]tep|[Gg]rade|[Ff]igure|[Tt]able|[Tt]ype|[Ll]evel|[Pp]hase|[Aa]rea|[Aa]xis|"
    r"[Dd]ivision|of the|"
    rf"aged?|top|{'|'.join(MONTHS)})|\b[A-Z][\w.'-]*)\.? $"
)
_MORE = re.compile(
    r"\b(?:no (?:less|fewer) than|(?<!no )(?<!not )more than|over|above|at least|"
    r"(?<!not )exceed\w*|(?<!no )greater than|minimum of) (?:an? )?[$€£]?$"
)
_LESS = re.compile(
    r"\b(?:no (?:more|greater) than|not (?:more than|exceed)|(?<!no )less than|under|below|"
    r"at most|up to|(?<!no )fewer than|within|maximum of|as many as) [$€£]?$"
)
_ABOUT = re.compile(r"\b(?:about|around|approximately|some|roughly|nearly|almost|circa) [$€£]?$")

_SINGULAR = {
    "kilometre": "mile", "kilometer": "mile", "mile": "kilometre", "metre": "foot", "meter": "yard",
    "inch": "centimetre", "centimetre": "inch", "centimeter": "inch", "millimetre": "centimetre",
    "kilogram": "pound", "tonne": "pound", "ton": "kilogram", "acre": "hectare", "hectare": "acre",
    "second": "minute", "minute": "hour", "hour": "minute", "day": "week", "week": "month",
    "month": "week", "year": "month", "decade": "year", "century": "decade", "dollar": "euro",
    "euro": "dollar", "byte": "kilobyte", "kilobyte": "megabyte", "bit": "byte",
    "millisecond": "second", "microsecond": "millisecond", "gallon": "litre", "litre": "gallon",
}  # fmt: skip
_IRREGULAR = {"foot": "feet", "inch": "inches", "century": "centuries"}
UNITS = {
    **_SINGULAR,
    **{
        _IRREGULAR.get(one, one + "s"): _IRREGULAR.get(other, other + "s")
        for one, other in _SINGULAR.items()
    },
    "feet": "metres", "km": "miles", "mi": "km", "ft": "m", "cm": "inches", "mm": "cm",
    "kg": "pounds", "mph": "km/h", "km/h": "mph", "kHz": "MHz", "MHz": "GHz", "GB": "MB",
    "MB": "KB",
    "square miles": "square kilometres", "square kilometres": "square miles",
    "square kilometers": "square miles", "square feet": "square metres", "kDa": "Da", "nM": "mM",
    "µM": "mM", "mM": "µM", "bp": "kb", "kb": "bp", "Mb": "kb", "ml": "l", "mg": "kg", "°C": "°F",
}  # fmt: skip
_COUNT = rf"(?:\d[\d,]*(?:\.\d+)?|{'|'.join(WORDS[1:])}|several|few|hundred|thousand|million)"
_UNIT = re.compile(
    rf"\b{_COUNT}[ -]({'|'.join(sorted(map(re.escape, UNITS), key=len, reverse=True))})"
    r"(?![\w/-]| \(| of age|[- ]old|['’]| later| of [A-Z])",
)
_SIGN = re.compile(r"(?<![A-Z])[$€£](?=\d)")
_PERCENT = re.compile(r"(?<![\w.,–-])(\d+(?:\.\d+)?)(?= ?%| percent\b| per cent\b)")
_SCALE = re.compile(r"(?<=\d )(?:thousand|million|billion|trillion)\b")
_SHARES = (
    ("twice", "four times"), ("doubled", "tripled"), ("tripled", "doubled"),
    ("half of", "a tenth of"),
    ("two-thirds", "one-fifth"), ("two thirds", "one fifth"), ("one-third", "three-quarters"),
    ("one third", "three quarters"), ("a third of", "a tenth of"),
    ("a quarter of", "three quarters of"),
    ("the majority of", "a small minority of"), ("most of the", "hardly any of the"),
    ("half the", "a tenth of the"), ("double the", "ten times the"),
)  # fmt: skip
# "The first half of 1989" is no share.
_BARE = (
    r"(?:(?<=about )|(?<=nearly )|(?<=almost )|(?<=over )|(?<=than )|(?<=, )|(?<=to )|(?<=is )|"
    r"(?<=for ))"
)


def number(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """A figure or number word that counts something, changed."""
    found = [m for m in _FIGURE.finditer(sentence.text) if _counts(sentence.text, m)]
    found += list(_MONEY.finditer(sentence.text))
    found += [m for m in _WORD.finditer(sentence.text) if _counts(sentence.text, m, word=True)]
    draw.shuffle(found)
    for match in found:
        old = match.group()
        if len(re.findall(rf"(?<!\w){re.escape(old)}(?!\w)", sentence.text)) > 1:
            continue
        for _ in range(8):
            new = _other(old, sentence.text[: match.start()], draw)
            if new and not _stands(sentence.evidence, new):
                rule = "word" if old.isalpha() else "figure"
                return put(sentence.text, match.start(), match.end(), new, rule)
    return None


def unit(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The unit or currency of an amount, changed, its figure kept."""
    found = [
        (m.start(1), m.end(1), UNITS[m.group(1)], "unit") for m in _UNIT.finditer(sentence.text)
    ]
    signs = list(_SIGN.finditer(sentence.text))
    if len(signs) == 1:
        (sign,) = signs
        new = draw.choice([one for one in "$€£" if one != sign.group()])
        found.append((sign.start(), sign.end(), new, "currency"))
    draw.shuffle(found)
    for start, end, new, rule in found:
        if new in sentence.text or sentence.text[start:end] in sentence.text[end:]:
            continue
        # A conversion in brackets is a second statement of the same.
        if re.search(r"\([^)]*$", sentence.text[:start]):
            continue
        if rule == "currency" and new in sentence.evidence:
            continue
        if rule == "unit" and has(sentence.evidence, new):
            continue
        return put(sentence.text, start, end, new, rule)
    return None


def magnitude(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """A percentage, scale or share that is far off."""
    found = []
    for match in _PERCENT.finditer(sentence.text):
        before = sentence.text[: match.start()]
        value = float(match.group(1))
        places = len(match.group(1).partition(".")[2])
        low = [value * share for share in (0.2, 0.3, 0.4, 0.5)]
        high = [value * share for share in (1.7, 2.0, 2.5, 3.0) if value * share < 99]
        if _MORE.search(before):
            low = []
        if _LESS.search(before):
            high = []
        values = [f"{one:.{places}f}" for one in low + high]
        values = [one for one in values if float(one) > 0 and not _stands(sentence.evidence, one)]
        if values:
            found.append((match.start(), match.end(), draw.choice(values), "percentage"))
    for match in _SCALE.finditer(sentence.text):
        new = {"thousand": "million", "million": draw.choice(("billion", "thousand"))}.get(
            match.group(), "million"
        )
        if not has(sentence.evidence, new):
            found.append((match.start(), match.end(), new, "scale"))
    for old, new in _SHARES:
        match_ = re.search(
            rf"{_BARE if old.startswith('half') else ''}\b{re.escape(old)}\b", sentence.text
        )
        if (
            match_
            and not re.search(r"\b(?:no|not|never)\b", sentence.text)
            and not has(sentence.evidence, new)
        ):
            found.append((match_.start(), match_.end(), new, "share"))
    return put(sentence.text, *draw.choice(found)) if found else None


def _counts(text: str, match: re.Match[str], *, word: bool = False) -> bool:
    old, before = match.group(), text[: match.start()]
    if re.fullmatch(r"1[0-9]\d\d|20[0-4]\d", old) or old in ("0", "1"):
        return False
    following = re.match(r" (?:[a-z]+-[a-z]+|[a-z]{3,})\b", text[match.end() :])
    if following is None or following.group().strip() in _NO_THING:
        return False
    if word and not re.match(
        r"(?: [a-z-]+){0,3} [a-z]+s\b|.* (?:children|men|women|people)", text[match.end() :]
    ):
        return False
    if word and before.rstrip().endswith(
        ("the", "these", "those", "its", "his", "their", "other", "last", "first")
    ):
        return False
    return not _NAMING.search(before) or not before.strip()


def _other(old: str, before: str, draw: Random) -> str:
    if old.isalpha():
        value = WORDS.index(old)
        others = [
            n for n in (value - 2, value - 1, value + 1, value + 2, value + 3) if 2 <= n <= 20
        ]
        value_new = float(draw.choice(_towards(others, value, before)))
        return WORDS[int(value_new)]
    places = len(old.partition(".")[2])
    value_old = float(old.replace(",", ""))
    if value_old <= 12 and not places:
        near = [value_old + step for step in (-3, -2, -1, 1, 2, 3, 4) if value_old + step >= 2]
        if _ABOUT.search(before):
            near = [value_old + 4, value_old * 2]
        options = near
    else:
        shares = (0.55, 0.7, 0.82, 1.17, 1.35, 1.6, 1.9)
        options = [value_old * share for share in shares]
    value_new = draw.choice(_towards(options, value_old, before))
    zeros = len(old) - len(old.rstrip("0")) if not places and value_old >= 100 else 0
    if zeros:
        value_new = round(value_new, -max(0, min(zeros, len(f"{int(value_old)}") - 2)))
    text = f"{value_new:,.{places}f}" if "," in old else f"{value_new:.{places}f}"
    return "" if float(text.replace(",", "")) in (value_old, 0, 1) else text


def _towards(options: list[float] | list[int], value: float, before: str) -> list[float]:
    """The options that a bound before the number does not make true."""
    if _MORE.search(before):
        return [one for one in options if one > value] or [value]
    if _LESS.search(before):
        return [one for one in options if one < value] or [value]
    return list(options)


def _stands(evidence: str, value: str) -> bool:
    plain = value.replace(",", "")
    forms = {value, plain}
    if plain.isdigit() and int(plain) < len(WORDS):
        forms.add(WORDS[int(plain)])
    if value in WORDS:
        forms.add(str(WORDS.index(value)))
    return any(has(evidence, form) for form in forms)


_MONTH = "|".join(MONTHS)
_YEAR = r"(?:1[5-9]\d\d|20[0-2]\d)"
_FULL = re.compile(
    rf"\b(?:(?P<d>\d{{1,2}}) (?P<m>{_MONTH}) (?P<y>{_YEAR})|"
    rf"(?P<m2>{_MONTH}) (?P<d2>\d{{1,2}}),? (?P<y2>{_YEAR})|"
    rf"(?P<m3>{_MONTH}) (?P<y3>{_YEAR})|(?P<m4>{_MONTH}) (?P<d4>\d{{1,2}})(?!\d|,? \d|[-–]))\b"
)
_ALONE = re.compile(
    rf"\b(?P<word>[Ii]n|[Ss]ince|[Uu]ntil|[Bb]y|[Ff]rom|[Bb]efore|[Aa]fter|[Dd]uring|of|between|"
    rf"the) "
    rf"(?P<y>{_YEAR})(?![-–/\w'’%]|[.,]\d)"
)
_DECADE = re.compile(r"\bthe (?:early |late |mid-)?(?P<y>1[6-9]\d0|20[01]0)s\b")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAY = re.compile(rf"\bon (?:a )?(?P<w>{'|'.join(_DAYS)})\b(?! [A-Z])")
_LATEST = 2025


def date(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """A day, month or year, moved."""
    found: list[tuple[int, int, str, str]] = []
    taken: set[int] = set()
    for match in _FULL.finditer(sentence.text):
        taken.update(range(match.start(), match.end()))
        names = [name for name, value in match.groupdict().items() if value]
        name = draw.choice(names)
        if name[0] == "y":
            new = _year(match.group(name), draw, "")
        elif name[0] == "m":
            new = draw.choice([one for one in MONTHS if one != match.group(name)])
        else:
            new = str(draw.choice([n for n in range(1, 29) if n != int(match.group(name))]))
        changed = sentence.text[match.start() : match.start(name)] + new
        changed += sentence.text[match.end(name) : match.end()]
        # The month alone may stand elsewhere, the changed date as a whole may not.
        known = name[0] != "d" and has(sentence.evidence, new)
        if not known and not has(sentence.evidence, changed):
            found.append((match.start(name), match.end(name), new, "full"))
    for match in _ALONE.finditer(sentence.text):
        if match.start("y") not in taken:
            new = _year(match.group("y"), draw, match.group("word").lower())
            if not has(sentence.evidence, new):
                found.append((match.start("y"), match.end("y"), new, "year"))
    for match in _DECADE.finditer(sentence.text):
        new = str(int(match.group("y")) + draw.choice((-40, -30, -20, 10)))
        if f"{new}s" not in sentence.evidence and int(new) < _LATEST:
            found.append((match.start("y"), match.end("y"), new, "decade"))
    for match in _WEEKDAY.finditer(sentence.text):
        new = draw.choice([one for one in _DAYS if one != match.group("w")])
        if not has(sentence.evidence, new):
            found.append((match.start("w"), match.end("w"), new, "weekday"))
    found = [one for one in found if sentence.text.count(sentence.text[one[0] : one[1]]) == 1]
    return put(sentence.text, *draw.choice(found)) if found else None


def _year(old: str, draw: Random, word: str) -> str:
    """Another year, on the side that the word before it does not make true."""
    steps = [-31, -20, -12, -7, -4, -3, -2, -1, 1, 2, 3, 5, 9, 14]
    if word in ("since", "after", "from", "by", "before"):
        steps = [step for step in steps if step < 0]
    if word == "until":
        steps = [step for step in steps if step < 0]
    return str(draw.choice([int(old) + step for step in steps if int(old) + step <= _LATEST]))
