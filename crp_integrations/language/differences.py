"""Differences: whether two near-identical texts, or words in the same place, exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property, lru_cache

from crp_integrations.language.dates import DateMention, compatible, dates
from crp_integrations.language.measures import to_base, unit_of
from crp_integrations.language.memo import forgotten_with, remembered
from crp_integrations.language.names import names
from crp_integrations.language.negation import denies, polarity_differs, sense_of
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import plain
from crp_integrations.language.words import PAST_OF, STOP_WORDS, stem


class ComparedStatement:
    """A text and what in it decides whether it says something else; read once, when asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def plain(self) -> str:
        """The folded text in lower case."""
        return plain(self.text)

    @cached_property
    def values(self) -> frozenset[tuple[Decimal, str, Decimal, str]]:
        """Its quantities in base units."""
        found = quantities(self.text)
        return frozenset((*to_base(q.low, q.unit), *to_base(q.high, q.unit)) for q in found)

    @cached_property
    def dates(self) -> tuple[DateMention, ...]:
        """Its dates."""
        return tuple(dates(self.text))

    @cached_property
    def names(self) -> frozenset[str]:
        """Its names as plain text."""
        return frozenset(plain(name.text) for name in names(self.text))

    @cached_property
    def denies(self) -> bool:
        """Whether anything in it is denied."""
        return denies(self.text)

    def differs(self, other: ComparedStatement) -> bool:
        """Whether numbers, dates, names or negation differ (decision E11)."""
        if self.plain == other.plain:
            return False
        return (
            self.values != other.values
            or len(self.dates) != len(other.dates)
            or not _found(self.dates, other.dates)
            or not _found(other.dates, self.dates)
            or self.names != other.names
            or ((self.denies or other.denies) and polarity_differs(self.text, other.text))
        )


@remembered
def read_statement(text: str) -> ComparedStatement:
    """The statement of a text; what was read of it last is remembered."""
    return ComparedStatement(text)


def differ(left: str, right: str) -> bool:
    """Whether numbers, dates, names or negation of two texts differ (decision E11)."""
    return read_statement(left).differs(read_statement(right))


def _found(wanted: Sequence[DateMention], given: Sequence[DateMention]) -> bool:
    return all(any(compatible(one, other) for other in given) for one in wanted)


# Sides of one scale; words of one side do not exclude each other. A "*" adds the comparative
# and the superlative.
_SCALES = """
large* big* great* high* tall* more most maximum maximal max upper huge increased
| small* little lesser least low* short* less fewer fewest minimum minimal min tiny decreased
long* lengthy | short* brief*
old* senior elder eldest ancient | young* new* junior modern
early* former previous preceding prior | late* latter subsequent following next
first initial opening | last final closing
fast* quick* rapid | slow*
strong* | weak* faint*
heavy* | light*
wide* broad* | narrow*
deep* | shallow*
thick* dense | thin* sparse
rich* wealthy* | poor*
easy* simple* | hard* difficult complex complicated
hot* warm* | cold* cool*
near* close* | far* distant remote
good* better best | bad* worse worst
rare* uncommon seldom rarely infrequently | common* frequent often frequently usually
cheap* inexpensive | expensive costly* dear*
full* | empty*
bright* | dark* dim*
rough* | smooth*
wet* | dry*
safe* | dangerous risky* unsafe
major main primary | minor secondary
before until prior | after since following
above over atop | below under beneath underneath
inside within inner internal inward | outside beyond outer external outward
left leftmost | right rightmost
top topmost | bottom bottommost
front anterior ahead | back rear posterior behind
up upward upwards | down downward downwards
upstream | downstream
begin start commence open beginning | end finish conclude close cease stop ending
arrive enter | leave depart exit
win winner victory won | lose loser defeat lost loss
ascending | descending
horizontal | vertical
rise increase grow gain climb jump | fall decrease decline shrink drop sink
majority | minority
always | never
summer | winter
day daytime | night nighttime
morning | evening
man men | woman women
boy boys | girl girls
male | female
son sons | daughter daughters
brother brothers | sister sisters
father | mother
husband | wife
uncle | aunt
nephew | niece
king | queen
grandfather | grandmother
grandson | granddaughter
actor | actress
predecessor | successor
ancestor | descendant
parent | child children
employer | employee
buyer purchaser customer | seller vendor supplier
lender creditor | borrower debtor
landlord lessor | tenant lessee
plaintiff | defendant
sender | receiver recipient
client | server
host | guest
teacher | student pupil
master | slave
hero protagonist | villain antagonist
input | output
import | export
upload | download
read | write
encode | decode
encrypt | decrypt
compress | decompress
serialize serialise | deserialize deserialise
push | pull
send | receive
buy purchase | sell
borrow | lend
teach | learn
attack | defend
multiply | divide
add append insert | remove delete subtract drop
create | destroy delete
enable | disable
attach connect join | detach disconnect
expand | collapse contract
positive | negative
true | false
odd | even
public | private
domestic | foreign overseas
national | international
urban | rural
civilian | military
legal lawful | illegal unlawful
guilty | innocent
alive living | dead deceased
present | absent
explicit | implicit
static | dynamic
local | global remote
absolute | relative
direct | indirect
active | passive inactive
mutable | immutable
signed | unsigned
synchronous | asynchronous
directed | undirected
weighted | unweighted
uppercase | lowercase
prefix leading | suffix trailing
numerator dividend | denominator divisor
row rows | column columns
asset assets | liability liabilities
revenue income | expense expenses expenditure
profit surplus | loss deficit
supply | demand
credit | debit
optional | mandatory required compulsory
temporary | permanent
partial partially partly | complete completely fully entirely
voluntary | involuntary
acquit | convict
confirm | deny
accept approve | reject refuse
including include inclusive incl | except excluding exclude exclusive excl plus
cause causes caused causing | associated linked correlated
support favour favor | oppose
allow permit | forbid prohibit ban
success succeed | failure fail
acute | chronic
benign | malignant
oral orally | intravenous intravenously
systolic | diastolic
offensive | defensive
amateur | professional
single-player | multiplayer
clockwise | anticlockwise counterclockwise
still | no-longer
"""
# Of these each excludes every other one.
_ROUNDS = """
halve double triple quadruple
half twice thrice
north south east west northeast northwest southeast southwest
northern southern eastern western northeastern northwestern southeastern southwestern
northwards southwards eastwards westwards
northward southward eastward westward
spring summer autumn winter
gold silver bronze
red green blue yellow black white orange purple
solid liquid gaseous
daily weekly monthly quarterly annual
mayor governor senator president
hydrogen oxygen nitrogen carbon helium
mercury venus mars jupiter saturn uranus neptune
christian muslim jewish hindu buddhist
football basketball baseball cricket hockey tennis rugby
"""
_DOUBLED = frozenset("bdgmnt")
# Their stems are those of "employ" and "custom", which are no opposites of employees and vendors.
_OTHER_STEM = frozenset({"employer", "customer"})
# "m" and "in" are other words as often as they are units.
_SPELLED = 3


def _forms(word: str) -> list[str]:
    if not word.endswith("*"):
        return [word]
    base = word[:-1]
    root = base.removesuffix("e")
    if base.endswith("y"):
        root = f"{base[:-1]}i"
    elif base[-1] in _DOUBLED and base[-2] in "aeiou" and base[-3] not in "aeiou":
        root = f"{base}{base[-1]}"
    return [base, f"{root}er", f"{root}est"]


def _base(word: str) -> str:
    singular = word.removesuffix("s")
    return singular if singular in _OTHER_STEM else stem(PAST_OF.get(word, word))


def _sides() -> dict[str, dict[int, int]]:
    sides: dict[str, dict[int, int]] = {}
    scales = [r.split("|") for r in _SCALES.replace("\n|", " |").strip().splitlines()]
    rounds = [r.split() for r in _ROUNDS.strip().splitlines()]
    for number, row in enumerate((*scales, *rounds)):
        for side, group in enumerate(row):
            for word in group.split():
                for form in _forms(word):
                    sides.setdefault(_base(form), {}).setdefault(number, side)
    return sides


_SIDES = _sides()


@lru_cache(maxsize=16_384)
def words_exclude(one: str, other: str) -> bool:
    """Whether two words cannot both be right in the same place.

    >>> words_exclude("largest", "smallest"), words_exclude("largest", "biggest")
    (True, False)
    >>> words_exclude("north", "west"), words_exclude("days", "weeks")
    (True, True)
    >>> words_exclude("lawful", "unlawful"), words_exclude("sons", "daughter")
    (True, True)
    """
    first, second = _base(one), _base(other)
    if first == second:
        return False
    mine, theirs = _SIDES.get(first, {}), _SIDES.get(second, {})
    shared = mine.keys() & theirs.keys()
    if shared:
        return all(mine[scale] != theirs[scale] for scale in shared)
    if one in STOP_WORDS or other in STOP_WORDS:
        return False
    (sense, denied), (another, also) = sense_of(one), sense_of(other)
    if sense == another:
        return denied != also
    return other_units(one, other)


def other_units(one: str, other: str) -> bool:
    """Whether two words are units that measure the same otherwise, as "days" and "weeks"."""
    if min(len(one), len(other)) < _SPELLED:
        return False
    own, unit = unit_of(one), unit_of(other)
    if own is None or unit is None or own.name == unit.name:
        return False
    return own.dimension == unit.dimension or {own.dimension, unit.dimension} == {"time", "span"}


forgotten_with(words_exclude.cache_clear)
