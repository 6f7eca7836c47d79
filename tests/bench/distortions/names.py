"""Names: which there are in a text, and others of the same sort."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

from tests.bench.distortions.case import Edit, Pool, Sentence, has, put

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
