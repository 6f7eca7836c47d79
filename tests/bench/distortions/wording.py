"""Paraphrases and reformatted copies that keep the meaning, and additions that do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tests.bench.distortions.amounts import MONTHS, WORDS
from tests.bench.distortions.names import people_in
from tests.bench.distortions.text import Edit, Pool, Sentence, capital, whole

# Each may stand for the other wherever the pattern fits.
_SYNONYMS = (
    (r"\bbegan\b(?! in)", "started"), (r"\bstarted\b(?= (?:to|as|in|his|her|its)\b)", "began"),
    (r"\b(is|was|are) located in\b", r"\1 situated in"), (r"\balso known as\b", "also called"),
    (r"\bpurchased\b", "bought"), (r"\bapproximately\b", "about"), (r"\bprior to\b", "before"),
    (r"\bconsists of\b", "is made up of"), (r"\bdue to\b", "because of"),
    (r"\bin order to\b", "to"),
    (r"\bwas founded in\b", "was established in"), (r"\bwas established in\b", "was founded in"),
    (r"\bnumerous\b", "many"), (r"\battempted to\b", "tried to"), (r"\bassisted\b", "helped"),
    (r"\bsubsequently\b", "later"), (r"\bformerly\b", "previously"),
    (r"\bpreviously\b", "formerly"), (r"\bfilms\b", "movies"), (r"\bfilm\b(?! [A-Z])", "movie"),
    (r"\bAlthough\b", "Though"), (r"\balthough\b", "though"), (r"\bHowever, ", "Nevertheless, "),
    (r"\bthroughout the (world|country|state|region|city)\b", r"all over the \1"),
    (r"\bvia\b", "through"), (r"\butilized\b", "used"),
    (r"\bcommenced\b", "began"), (r"\bcontains\b", "holds"),
    (r"\brequires\b", "needs"), (r"\bomitted\b", "left out"), (r"\bspecified\b", "given"),
    (r"\ballows\b(?! for)", "permits"), (r"\bsimilar to\b", "much like"), (r"\bnearly\b", "almost"),
    (r"\bIn addition, ", "Also, "), (r"\bFor example, ", "For instance, "),
    (r"\bTherefore, ", "Thus, "),
    (r"\bas well as\b", "and also"), (r"\bresides in\b", "lives in"),
    (r"\bchildren\b", "kids"), (r"\bresulted in\b", "led to"), (r"\bin the vicinity of\b", "near"),
    (r"\b(is|are) sufficient to\b", r"\1 enough to"),
    (r"\b(is|are|was|were) identical to\b", r"\1 the same as"), (r"\bcomprises\b", "includes"),
    (r"\b(is|are) not\b", r"\1n't"), (r"\b(does|do|did) not\b", r"\1n't"), (r"\bcannot\b", "can't"),
    (r"\bon the basis of\b", "based on"), (r"\bdemonstrated\b", "showed"),
    (r"\bfamous\b", "well-known"), (r"\bprimarily\b", "mainly"), (r"\bnotable\b", "noteworthy"),
)  # fmt: skip
_ACTIVE = {
    "written": "wrote", "directed": "directed", "produced": "produced", "founded": "founded",
    "designed": "designed", "built": "built", "released": "released", "published": "published",
    "created": "created", "developed": "developed", "composed": "composed", "recorded": "recorded",
    "established": "established", "acquired": "acquired", "owned": "owned",
    "discovered": "discovered",
    "bought": "bought", "sponsored": "sponsored", "edited": "edited", "illustrated": "illustrated",
    "defeated": "defeated", "succeeded": "succeeded", "replaced": "replaced", "led": "led",
}  # fmt: skip
_PASSIVE_OF = {active: passive for passive, active in _ACTIVE.items()}
_AGENT = r"(?:the )?[A-Z][\w'’]+(?: (?:of |the |de )?[A-Z][\w'’]+){0,4}"
_DONE = "|".join(_ACTIVE)
_PASSIVE = re.compile(
    rf"^(?P<o>(?:The |It|A )?[^,;()]{{2,60}}?) (?P<be>was|were) (?P<v>{_DONE})"
    rf" by (?P<s>{_AGENT})"
    r"(?P<rest>(?: in \d{4}| on [A-Z]\w+ \d{1,2}, \d{4})?)\.$"
)
_DOES = re.compile(
    rf"^(?P<s>{_AGENT}) (?P<v>{'|'.join(_PASSIVE_OF)}) (?P<o>(?:the |a |"
    rf"an )[a-z][^,;()]{{4,60}}?|[A-Z][\w'’]+(?: [A-Z][\w'’]+){{0,3}})"
    r"(?P<rest>(?: in \d{4})?)\.$"
)
_LEAD = re.compile(
    r"^(?P<lead>(?:In|On|During|Since|At|From|Until|After) [^,;()]{4,45}), (?P<rest>[^;()]{15,})\.$"
)
_TIME = re.compile(
    r"^(?P<rest>[^;:,()]{15,}?) (?P<lead>(?:in|on|during|until|"
    r"since) (?:[A-Z]\w+ )?(?:\d{1,2}, )?\d{4})\.$"
)
_CLAUSE = re.compile(
    r"^(?P<word>If|When|Although|Because|While|Since|Unless|"
    r"Before) (?P<a>[^,;:()]{10,90}), (?:then )?(?P<b>[^;:()]{15,})\.$"
)
_AFTER = re.compile(
    r"^(?P<b>[^,;:()]{15,90}?),? (?P<word>if|when|although|because|unless|"
    r"before) (?P<a>[^,;:()]{12,90})\.$"
)
_RELATIVE = re.compile(r", (?:which|who|whose|whom) [^,;()]{8,90}(?:, |(?=\.))")
_BRACKETS = re.compile(
    r"(?<! of)(?<! to)(?<! by)(?<! in)(?<! with)(?<! and)(?<! or) \([^()]{3,60}\)"
)
_ADVERB = re.compile(
    r"^(?:However|Moreover|Furthermore|In addition|Additionally|Also|Finally|Therefore|Thus|Then|"
    r"For example|Indeed|Typically), (?=[A-Za-z])"
)
_BACK = re.compile(
    r"(?:and|but|or|it|its|they|their|this|that|these|those|he|she|his|her)\b", re.IGNORECASE
)
_BACK_JOIN = re.compile(r"(?:And|But|Or)\b")
_HE = re.compile(r"^(?:He|She)(?= (?:was|is|has|had|won|\w+ed|became|served|also|made|wrote)\b)")
# A small letter where a large one only began the sentence.
_COMMON = frozenset(
    "the a an it he she they this these those there its his her their in on at many most some all "
    "several both each when if one two three you we such no".split()
)


def _lower(text: str) -> str:
    first, _, rest = text.partition(" ")
    return f"{first.lower()} {rest}" if first.lower() in _COMMON else text


def _keeps_case(text: str) -> bool:
    """Whether the first word may stand inside a sentence, small or as the name that it is."""
    first = text.split()[0]
    return (
        first.lower() in _COMMON
        or re.match(r"[A-Z][\w'’]+ (?:[A-Z]|was|is|has|had|won)\b", text) is not None
    )


def _synonyms(sentence: Sentence) -> str:
    text, changes = sentence.text, 0
    for pattern, new in _SYNONYMS:
        new_text = re.sub(pattern, new, text, count=1)
        changes += new_text != text
        text = new_text
        if changes == 3:
            break
    return text


def _voice(sentence: Sentence) -> str:
    text = sentence.text
    match = _PASSIVE.match(text)
    if (
        match
        and " and " not in match.group("o")
        and not re.search(r"\b(?:that|which|who)\b|^(?:It|He|She|They|This)$", match.group("o"))
    ):
        thing = _lower(match.group("o"))
        return (
            f"{capital(match.group('s'))} {_ACTIVE[match.group('v')]} {thing}{match.group('rest')}."
        )
    match = _DOES.match(text)
    if match and not re.search(
        r"\b(?:and|to|as|for|with|his|her|its|their|by|from)\b", match.group("o")
    ):
        if re.search(r"[^s]s$", match.group("o")):
            return text
        doer = match.group("s")
        by = f"{_PASSIVE_OF[match.group('v')]} by {_lower(doer)}"
        return f"{capital(match.group('o'))} was {by}{match.group('rest')}."
    return text


def _order(sentence: Sentence) -> str:
    text = sentence.text
    if re.search(r"\b(?:otherwise|else|instead)\b", text):
        return text
    match = _LEAD.match(text)
    if (
        match
        and not _BACK.match(match.group("rest"))
        and "," not in match.group("rest")
        and " and " not in match.group("rest")
        and _keeps_case(match.group("rest"))
    ):
        lead = match.group("lead")
        return f"{capital(match.group('rest'))} {lead[:1].lower()}{lead[1:]}."
    match = _TIME.match(text)
    if match and " and " not in match.group("rest") and _keeps_case(match.group("rest")):
        return f"{capital(match.group('lead'))}, {_lower(match.group('rest'))}."
    match = _CLAUSE.match(text)
    if match and "," not in match.group("b") and not _BACK.match(match.group("b")):
        comma = "," if match.group("word") in ("Although", "While") else ""
        return (
            f"{capital(match.group('b'))}{comma} {match.group('word').lower()} {match.group('a')}."
        )
    match = _AFTER.match(text)
    if (
        match
        and not _BACK.match(match.group("a"))
        and not _BACK_JOIN.match(match.group("b"))
        and not match.group("a").startswith(("he ", "she "))
        and _keeps_case(match.group("b"))
        and not re.search(
            r"\b(?:not|only|even|except|just|and|as|but|that|years|months|days|shortly|long|soon)$",
            match.group("b"),
        )
        and not re.search(r"\b(?:that|whether|and|or)\b", match.group("b"))
    ):
        return f"{capital(match.group('word'))} {match.group('a')}, {_lower(match.group('b'))}."
    return text


def _short(sentence: Sentence) -> str:
    """The surname for a full name that the passage has whole."""
    found = people_in(sentence.text)
    if len(found) != 1:
        return sentence.text
    start, end = found[0]
    surname = sentence.text[start:end].split()[-1]
    # "Dan and Frank Carney" share a surname.
    if re.search(r"(?:\band|&|,) $", sentence.text[:start]) or re.match(
        r",? and\b", sentence.text[end:]
    ):
        return sentence.text
    if len(set(re.findall(rf"\b[A-Z][a-z]+ {surname}\b", sentence.evidence))) > 1:
        return sentence.text
    return sentence.text[:start] + surname + sentence.text[end:]


def _named(sentence: Sentence) -> str:
    """The person of the title for the pronoun that begins the sentence."""
    title = re.sub(r" \(.*\)$", "", sentence.title)
    if not people_in(title) or len(title.split()) > 3 or not sentence.passage[0].startswith(title):
        return sentence.text
    others = {sentence.evidence[a:b] for a, b in people_in(sentence.evidence)} - {title}
    return sentence.text if others else _HE.sub(title, sentence.text)


def _shorter(sentence: Sentence) -> str:
    """Without what only adds: brackets, relative clauses between commas, opening adverbs."""
    text = _BRACKETS.sub("", sentence.text)
    relative = _RELATIVE.search(text)
    if relative and not re.search(r"\b(?:not|only|no|if)\b", relative.group()):
        text = (
            text[: relative.start()]
            + (" " if relative.group().endswith(", ") else "")
            + text[relative.end() :]
        )
    plain = _ADVERB.sub("", text)
    text = capital(plain) if plain != text else text
    return text if len(text.split()) >= 6 and " ," not in text else sentence.text


_RULES = (
    ("voice", _voice),
    ("named", _named),
    ("short_name", _short),
    ("order", _order),
    ("shorter", _shorter),
    ("synonyms", _synonyms),
)


def paraphrase(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The same said otherwise, by one rule or by two."""
    found = [(rule, make(sentence)) for rule, make in _RULES]
    found = [(rule, text) for rule, text in found if text != sentence.text]
    if not found:
        return None
    # The rarer rules first, so that synonyms are not nearly all.
    rule, text = found[0] if draw.random() < 0.7 else draw.choice(found)
    if rule not in ("synonyms",) and draw.random() < 0.4:
        again = _synonyms(Sentence(sentence.title, text, sentence.passage))
        if again != text:
            return whole(again, f"{rule}+synonyms")
    return whole(text, rule)


_MONTH = "|".join(MONTHS)
_DAY_FIRST = re.compile(rf"\b(\d{{1,2}}) ({_MONTH}) (\d{{4}})\b")
_MONTH_FIRST = re.compile(rf"\b({_MONTH}) (\d{{1,2}}), (\d{{4}})\b")
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,]|\.\d)")
_PLAIN = re.compile(r"(?<![\w.,$€£-])(?<![A-Z] )(?!1\d{3}\b|20\d\d\b)\d{4,7}(?= [a-z])")
_WORD = re.compile(rf"\b(?:{'|'.join(WORDS[2:13])})(?= [a-z]+s\b)")
_DIGIT = re.compile(r"(?<![\w.,$€£%-] )(?<![\w.,$€£-])(?:[2-9]|1[0-2])(?= [a-z]{3,}s\b)")
_UNITS = {
    "km": "kilometres", "kilometres": "km", "kilometers": "km", "kg": "kilograms",
    "mm": "millimetres",
    "cm": "centimetres", "mph": "miles per hour", "feet": "ft", "ft": "feet", "GB": "gigabytes",
    "milliseconds": "ms", "kilograms": "kg", "square miles": "sq mi",
}  # fmt: skip
_UNIT = re.compile(rf"(?<=\d )(?:{'|'.join(map(re.escape, _UNITS))})(?=[ ,.;)])")
_MILLIONS = re.compile(r"\$(\d+)(?:\.(\d{1,2}))? million\b")


def _values(text: str) -> list[tuple[str, str]]:
    """The text with one sort of value written otherwise, by rule."""
    found = [
        ("date", _DAY_FIRST.sub(r"\2 \1, \3", text)),
        ("date", _MONTH_FIRST.sub(r"\2 \1 \3", text)),
        ("iso_date", _MONTH_FIRST.sub(lambda m: _iso(m.group(2), m.group(1), m.group(3)), text)),
        ("iso_date", _DAY_FIRST.sub(lambda m: _iso(m.group(1), m.group(2), m.group(3)), text)),
        ("thousands", _GROUPED.sub(lambda m: m.group().replace(",", ""), text)),
        ("thousands", _PLAIN.sub(lambda m: f"{int(m.group()):,}", text)),
        ("number_word", _WORD.sub(lambda m: str(WORDS.index(m.group())), text)),
        ("number_word", _DIGIT.sub(lambda m: WORDS[int(m.group())], text)),
        ("percent", re.sub(r"(?<=\d)%", " percent", text)),
        ("percent", re.sub(r"(?<=\d) percent\b", "%", text)),
        ("unit", _UNIT.sub(lambda m: _UNITS[m.group()], text)),
        ("millions", _MILLIONS.sub(_millions, text)),
    ]
    return [(rule, new) for rule, new in found if new != text]


def _iso(day: str, month: str, year: str) -> str:
    return f"{year}-{MONTHS.index(month) + 1:02}-{int(day):02}"


def _millions(match: re.Match[str]) -> str:
    return f"${int(match.group(1)) * 1_000_000 + int((match.group(2) or '').ljust(6, '0')):,}"


def _bold(text: str) -> str:
    words = text[:-1].split()
    middle = len(words) // 2
    return " ".join((*words[:middle], f"**{words[middle]}**", *words[middle + 1 :])) + text[-1]


def _both(sentence: Sentence) -> list[str]:
    return [sentence.text, sentence.after] if sentence.after else [sentence.text]


_LAYOUT: tuple[tuple[str, Callable[[Sentence], str]], ...] = (
    ("bullets", lambda one: "\n".join(f"- {text}" for text in _both(one))),
    ("numbered", lambda one: "\n".join(f"{n}. {text}" for n, text in enumerate(_both(one), 1))),
    ("table", lambda one: "| No. | Statement |\n| --- | --- |\n" + "\n".join(
        f"| {n} | {text} |" for n, text in enumerate(_both(one), 1))),
    ("quote", lambda one: f"> {one.text}"),
    ("bold", lambda one: _bold(one.text)),
    ("italic", lambda one: f"*{one.text}*"),
    ("upper", lambda one: one.text.upper()),
    ("lower", lambda one: one.text.lower()),
    ("spaces", lambda one: re.sub(r" ", "  ", one.text, count=5)),
    ("lines", lambda one: _wrapped(one.text)),
    ("no_stop", lambda one: one.text[:-1]),
    ("dashes", lambda one: one.text.replace("–", "-").replace("—", "-")),
    ("quotes", lambda one: re.sub(r'"([^"]*)"', r"“\1”", one.text)),
    ("apostrophe", lambda one: one.text.replace("'", "’")),
    ("two", lambda one: "\n\n".join(_both(one))),
)  # fmt: skip


def _wrapped(text: str) -> str:
    words = text.split(" ")
    return " ".join(words[: len(words) // 2]) + "\n" + " ".join(words[len(words) // 2 :])


def reformatted(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The sentence laid out otherwise, or with its values written otherwise."""
    values = _values(sentence.text)
    if values and draw.random() < 0.8:
        rule, text = draw.choice(values)
        return whole(text, rule)
    rule, layout = draw.choice(_LAYOUT)
    text = layout(sentence)
    return whole(text, rule) if text != sentence.text else None


def verbatim(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The sentence as it stands, at times with the next one."""
    if sentence.after and draw.random() < 0.25:
        return whole(f"{sentence.text} {sentence.after}", "two")
    return whole(sentence.text, "one")


_CLAUSES = (
    ", at a cost of {million} million dollars",
    ", which was later confirmed by an independent audit",
    ", a figure that had been disputed in court for {small} years",
    ", as reported by {person}",
    ", after a long quarrel with {person}",
    ", and was criticised for it by {person}",
    ", with the financial help of {person}",
    ", although a committee of {small} experts had advised against it",
)
_SENTENCES = (
    " A team led by {person} came to the same result in {city}.",
    " This was financed by a private donor from {city}.",
    " It received an award for this from the city of {city}.",
    " The decision was later reversed by a court in {city}.",
    " {person} later described this as the biggest mistake of the decade.",
    " About {percent} percent of those who were asked opposed it.",
    " The original documents were destroyed in a fire in {city}.",
    " A survey by {person} found {percent} complaints about it.",
    " It was abandoned after {small} unsuccessful attempts.",
    " The costs rose to {million} million dollars within a year.",
)
# For documentation of software.
_TECHNICAL = (
    " This behaviour was removed in version {small}.{percent}.",
    " It is about {percent} percent slower on Windows.",
    " At most {percent} of them can be open at the same time.",
    " The result is cached on disk for {small} hours.",
    " A warning is sent to the administrator by e-mail.",
    " This needs a licence key from the vendor.",
    " It was first proposed by {person}.",
    " On failure the call is repeated {small} times with a pause of {percent} seconds.",
    " The data is encrypted with a key that is stored in the user's home folder.",
)
_CITIES = ("Antwerp", "Bremen", "Tallinn", "Salzburg", "Aarhus", "Porto", "Turin", "Lyon", "Basel")
_SUBJECT = re.compile(r"^(?:[A-Z][\w'’-]+|The|He|She|It|In)\b")


def addition(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The sentence with a clause or a further sentence of which the passage says nothing."""
    text = sentence.text
    if not _SUBJECT.match(text) or not text.endswith(".") or text.endswith('".'):
        return None
    technical = not sentence.title
    templates = _TECHNICAL if technical else (*_CLAUSES, *_SENTENCES)
    template = draw.choice(templates)
    added = template.format(
        person=draw.choice(pool.people),
        city=draw.choice(_CITIES),
        small=draw.randint(3, 9),
        million=f"{draw.randint(2, 70)}.{draw.randint(1, 9)}",
        percent=draw.randint(11, 79),
    )
    if any(word in sentence.evidence for word in re.findall(r"[A-Z]\w{3,}|\d{2,}", added)):
        return None
    if template.startswith(","):
        if "," in text or not re.search(r"\b(?:was|were|won|built|became|founded|\w+ed)\b", text):
            return None
        return Edit("clause", f"{text[:-1]}{added}.", len(text) - 1, len(text) - 1 + len(added))
    return Edit("sentence", text + added, len(text) + 1, len(text) + len(added))
