"""Changed names and exchanged roles."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

from tests.bench.distortions.amounts import MONTHS
from tests.bench.distortions.text import Edit, Pool, Sentence, has, put

COUNTRIES = tuple(
    "Argentina,Australia,Austria,Bangladesh,Belgium,Bolivia,Brazil,Bulgaria,Canada,Chile,China,"
    "Colombia,Croatia,Cuba,Denmark,Egypt,Ethiopia,Finland,France,Germany,Ghana,Greece,Hungary,"
    "Iceland,India,Indonesia,Iran,Iraq,Ireland,Israel,Italy,Jamaica,Japan,Kenya,Lebanon,Malaysia,"
    "Mexico,Morocco,Nepal,New Zealand,Nigeria,Norway,Pakistan,Peru,Poland,Portugal,Romania,Russia,"
    "Scotland,Serbia,Singapore,South Africa,South Korea,Spain,Sri Lanka,Sweden,Switzerland,Syria,"
    "Thailand,Tunisia,Turkey,Uganda,Ukraine,Uruguay,Venezuela,Vietnam,Wales,Zimbabwe,England".split(
        ","
    )
)
THE = ("the United States", "the United Kingdom", "the Netherlands", "the Philippines")
STATES = tuple(
    "Alabama,Alaska,Arizona,Arkansas,California,Colorado,Connecticut,Delaware,Florida,Idaho,"
    "Illinois,Indiana,Iowa,Kansas,Kentucky,Louisiana,Maine,Maryland,Massachusetts,Michigan,"
    "Minnesota,Mississippi,Missouri,Montana,Nebraska,Nevada,New Hampshire,New Jersey,New Mexico,"
    "North Carolina,North Dakota,Ohio,Oklahoma,Oregon,Pennsylvania,Rhode Island,South Carolina,"
    "South Dakota,Tennessee,Texas,Utah,Vermont,Virginia,West Virginia,Wisconsin,Wyoming".split(",")
)
CITIES = tuple(
    "London,Paris,Berlin,Madrid,Rome,Vienna,Moscow,Tokyo,Beijing,Shanghai,Mumbai,Delhi,Sydney,"
    "Melbourne,Toronto,Montreal,Vancouver,Chicago,Boston,Los Angeles,San Francisco,Seattle,Dallas,"
    "Houston,Atlanta,Miami,Detroit,Philadelphia,Pittsburgh,Cleveland,Cincinnati,Denver,Phoenix,"
    "Nashville,Memphis,Baltimore,Milwaukee,Minneapolis,St. Louis,Kansas City,New Orleans,New "
    "York City,"
    "Manchester,Liverpool,Birmingham,Leeds,Glasgow,Edinburgh,Dublin,Amsterdam,Brussels,Copenhagen,"
    "Stockholm,Oslo,Helsinki,Warsaw,Prague,Budapest,Athens,Istanbul,Cairo,Lagos,Nairobi,Cape Town,"
    "Johannesburg,Barcelona,Milan,Venice,Munich,Hamburg,Frankfurt,Zurich,Geneva,Lisbon,Brisbane,"
    "Perth,Adelaide,Auckland,Buenos Aires,Santiago,Lima,Mexico City,Havana,Seoul,Bangkok,Jakarta,"
    "Manila,Hong Kong,Karachi,Tehran,Baghdad,Tampa,Orlando,San Diego,Portland,Austin,Buffalo".split(
        ","
    )
)
PEOPLES = tuple(
    "American,Argentine,Australian,Austrian,Belgian,Brazilian,British,Bulgarian,Canadian,Chinese,"
    "Croatian,Czech,Danish,Dutch,Egyptian,English,Finnish,French,German,Greek,Hungarian,Indian,"
    "Indonesian,Iranian,Irish,Israeli,Italian,Japanese,Korean,Mexican,Norwegian,Pakistani,Polish,"
    "Portuguese,Romanian,Russian,Scottish,Serbian,Spanish,Swedish,Swiss,Turkish,Ukrainian,Welsh".split(
        ","
    )
)
# A demonym that contains or stands within another's is no opposite of it.
KIN = (
    {"British", "English", "Scottish", "Welsh", "Irish"},
    {"United Kingdom", "England", "Scotland", "Wales", "Ireland"},
)
MEN = frozenset(
    "James John Robert Michael William David Richard Joseph Thomas Charles Christopher Daniel "
    "Matthew Anthony Mark Donald Steven Paul Andrew George Kenneth Edward Brian Ronald Kevin Jason "
    "Gary Timothy Jeffrey Ryan Eric Stephen Jonathan Larry Scott Frank Brandon Raymond Gregory "
    "Benjamin Samuel Patrick Jack Dennis Alexander Jerry Tyler Henry Peter Adam Douglas Nathan "
    "Walter "
    "Arthur Harold Albert Carl Roger Lawrence Ralph Eugene Russell Louis Philip Harry Fred Alan "
    "Ian "
    "Simon Martin Graham Neil Colin Keith Stuart Bruce Craig Jim Tom Bob Bill Mike Steve Chris "
    "Tony "
    "Jim Joe Dan Ben Sam Max Leo Oscar Hugo Karl Hans Franz Johann Pierre Jean Carlos Juan Jose "
    "Luis Antonio Marco Giovanni Ivan Vladimir Boris Nikolai Ray Roy Lee Glenn Howard "
    "Norman".split()
)
WOMEN = frozenset(
    "Mary Patricia Jennifer Linda Elizabeth Barbara Susan Jessica Sarah Karen Nancy Lisa Margaret "
    "Betty Sandra Ashley Dorothy Kimberly Emily Donna Michelle Carol Amanda Melissa Deborah "
    "Stephanie "
    "Rebecca Laura Sharon Cynthia Kathleen Amy Angela Anna Ruth Brenda Pamela Nicole Katherine "
    "Samantha Christine Catherine Virginia Rachel Janet Emma Maria Heather Diane Julie Joyce "
    "Evelyn "
    "Joan Victoria Kelly Christina Lauren Frances Martha Judith Cheryl Megan Andrea Olivia Ann "
    "Jean "
    "Alice Jacqueline Hannah Doris Kathryn Gloria Teresa Sara Janice Marie Julia Grace Judy "
    "Theresa "
    "Rose Beverly Denise Marilyn Amber Danielle Brittany Diana Abigail Jane Helen Kate Lucy "
    "Charlotte".split()
)
_FIRST_NAMES = MEN | WOMEN
# For documents without people.
_SPARE = (
    "Henry Lockwood", "Thomas Ashby", "Walter Crane", "Peter Halloran", "George Whitfield",
    "Alice Merton", "Margaret Doyle", "Helen Prescott", "Susan Ackerman", "Ruth Delaney",
)  # fmt: skip
_FULL_NAME = re.compile(r"\b([A-Z][a-z]+) (?:[A-Z]\. )?([A-Z][a-z]{2,}(?:-[A-Z][a-z]+)?)\b")
# Behind a first name, these are no surnames.
_NOT_SURNAME = frozenset(
    "Street Road Avenue County City University College School Park River Lake Island Prize Award "
    "Stadium Airport Church Cathedral Museum Hospital Company House Hall Bridge Bay Castle Parish "
    "Cup Trophy Medal Theatre Theater Line Act Gallery Library Institute Foundation Band Records "
    "Glacier Land Islands Mountains Peak Falls Beach Point Cape Range Forest Sound Ocean Sea Gulf "
    "Airlines Motors Radio Magazine Press Times News Awards Festival Party Army War Club League "
    "Court Station Township Creek Valley Mountain Hills Beach Heights Square Tower Palace "
    "Ballet".split()
)
_SPAN = re.compile(r"[A-Z][\w.'’-]*$")
_GAZETTEER = {
    "country": COUNTRIES,
    "state": STATES,
    "city": CITIES,
    "people": PEOPLES,
    "the": tuple(one[4:] for one in THE),
}
_SORT_OF = {name: sort for sort, names in _GAZETTEER.items() for name in names}
_ANY = re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, _SORT_OF), key=len, reverse=True))})\b")


def people_in(text: str) -> list[tuple[int, int]]:
    """Where full names of people stand, told by their first names."""
    return [
        match.span()
        for match in _FULL_NAME.finditer(text)
        if match.group(1) in _FIRST_NAMES
        and match.group(2) not in _NOT_SURNAME
        and match.group(2) not in _FIRST_NAMES
        and not re.search(
            r"(?:[A-Z][\w.'’-]*|\b(?:de|van|von|del|of the)|[-\"“&]) ?$",
            text[: match.start()].rstrip("( "),
        )
        and not re.match(
            r"(?:[-’']|,? (?:Jr|Sr)\b| (?:[A-Z]|de |van |von |& |and [A-Z]|of )|[\"”])",
            text[match.end() :],
        )
    ]


def places_in(text: str) -> list[tuple[int, int, str]]:
    """Where countries, states, cities and demonyms stand by themselves, and which of these."""
    found = []
    for match in _ANY.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        sort = _SORT_OF[match.group()]
        # "New York Times", "Bank of China", "South-American" are names of other things.
        if re.match(r"(?:['’-]|, [A-Z]\.| [A-Z&]|\"|” )", after):
            continue
        if re.search(
            r"(?:[A-Z][\w.'’-]*,? |[A-Z][\w.'’-]* (?:of|for|in|the|de) (?:the )?|[-\"“]|, |and |"
            r"or )$",
            before,
        ):
            continue
        if sort == "people" and not re.match(r" [a-z]{3,}", after):
            continue
        if sort == "people" and re.match(
            r" (?:language|and|or|for|to|in|of|is|was|word|name)\b", after
        ):
            continue
        if sort == "the" and not before.endswith("the "):
            continue
        found.append((match.start(), match.end(), sort))
    return found


def pool_of(texts: Iterable[str]) -> Pool:
    """The names that occur in these texts."""
    people = {text[start:end] for text in texts for start, end in people_in(text)}
    return Pool(tuple(sorted(people | set(_SPARE))))


def entity(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """A person, place or people put for another that the passage does not know."""
    found: list[tuple[int, int, str, str]] = []
    for start, end in people_in(sentence.text):
        old = sentence.text[start:end]
        first = old.split()[0]
        like = MEN if first in MEN else WOMEN
        for _ in range(12):
            new = draw.choice(pool.people)
            known = any(has(sentence.evidence, part) for part in new.split())
            if new.split()[0] in like and not known:
                found.append((start, end, new, "person"))
                break
    for start, end, sort in places_in(sentence.text):
        old = sentence.text[start:end]
        for _ in range(12):
            new = draw.choice(_GAZETTEER[sort])
            kin = any(old in group and new in group for group in KIN)
            if new == old or kin or new in sentence.evidence or old in new or new in old:
                continue
            left = start
            if sort == "people":
                article = re.search(r"\b([Aa])n? $", sentence.text[:start])
                if article:
                    left = article.start()
                    new = f"{article.group(1)}{'n' if new[0] in 'AEIOU' else ''} {new}"
            found.append((left, end, new, sort))
            break
    found = [
        one for one in found if sentence.text.count(sentence.text[one[0] : one[1]].split()[-1]) == 1
    ]
    return put(sentence.text, *draw.choice(found)) if found else None


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
