"""Ways to reach a person or a device: e-mail, telephone, network and postal addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from crp_integrations.dpe.pii.spans import LISTS, PersonalSpan, beside, listed, span

if TYPE_CHECKING:
    from phonenumbers import PhoneNumber

_EMAIL: Final = re.compile(
    r"(?<![\w.!#$%&'*+/=?^`{|}~-])[\w!#$%&'*+/=?^`{|}~-](?:[\w.!#$%&'*+/=?^`{|}~-]{0,62}[\w+-])?"
    r"@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,6}[^\W\d_]{2,24}(?![\w-])"
)
_SPELLED: Final = re.compile(
    r"(?<![\w.])[\w.+-]{1,64} ?[\[({] ?at ?[\])}] ?[\w-]{1,63}"
    r"(?: ?(?:[\[({] ?dot ?[\])}]|\.) ?[\w-]{2,24}){1,4}(?!\w)",
    re.IGNORECASE,
)
_BRACKET: Final = re.compile(r"[\[({]")
_URL: Final = re.compile(r"(?:https?://|www\.)[^\s<>\"')\]}]{3,2000}", re.IGNORECASE)
_PERSONAL_PATH: Final = re.compile(
    r"(?:linkedin\.com/in/|facebook\.com/(?!pages|groups|business|help|events)[\w.]{3,}|(?:twitter|x)\.com/(?!search|home|intent|i/|hashtag|share)\w{2,}"
    r"|instagram\.com/(?!p/|explore|reel)[\w.]{2,}|github\.com/[\w-]{1,39}/?$|t\.me/\w{3,}"
    r"|/(?:users?|profiles?|people|members?|patients?|customers?|employees?)/[\w.@%-]{2,}|/~\w{2,}"
    r"|[?&;](?:e-?mail|user(?:name|_?id)?|phone|tel|ssn|dob|first_?name|last_?name|full_?name"
    r"|name|customer_?id|patient_?id)=[^&\s]{2,})",
    re.IGNORECASE,
)
_IPV4: Final = re.compile(r"(?<![\w.])(?<!\d-)\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{2,39}(?:\.\d{1,3}){0,3}(?:%\w{1,16})?(?![\w:])")
_VERSION: Final = listed("version")
_MAC: Final = re.compile(
    r"(?<![\w:-])(?:[0-9A-Fa-f]{2}(?P<s>[:-])(?:[0-9A-Fa-f]{2}(?P=s)){4}[0-9A-Fa-f]{2}"
    r"|[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4})(?![\w:-])"
)
_PHONE: Final = re.compile(
    r"(?<![\w/.:,$€£-])(?<!\d )(?:(?:\+|00) ?)?\(?\d[\d ()./\u00b7-]{4,22}\d(?![\w]|[.,:/-]\d)"
    r"(?:,? ?(?:x|ext\.?|extension|#) ?\d{1,6}(?!\w))?",
    re.IGNORECASE,
)
_CALLED: Final = listed("called")
_AMERICAN: Final = re.compile(
    r"(?:\+?1[ .-]?)?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])[2-9]\d{2}[ .-]\d{4}"
)
_NOT_PHONE: Final = re.compile(
    r"(?:19|20)\d{2}[ ./-]\d{1,2}[ ./-]\d{1,2}|\d{1,2}[ ./-]\d{1,2}[ ./-](?:19|20)?\d{2}"
    r"|(?:1[0-9]|20)\d{2} ?- ?(?:1[0-9]|20)?\d{2}|\d{1,3}(?:[ .]\d{3}){1,4}|\d+\.\d+"
    r"|\d{1,4} ?- ?\d{1,4}|\d{5}-\d{4}|\d{3}-\d{2}-\d{4}|\d{4}[ -]\d{4}[ -]\d{4}[ -]\d{4}"
)


def emails(plain: str) -> Iterator[PersonalSpan]:
    """Addresses with an at sign, or with "at" in brackets."""
    if "@" in plain:
        for match in _EMAIL.finditer(plain):
            yield span("email", *match.span(), "email@1", 1.0)
    for match in _SPELLED.finditer(plain) if "at" in plain and _BRACKET.search(plain) else ():
        yield span("email", *match.span(), "email-spelled@1", 0.75)


def urls(plain: str) -> Iterator[PersonalSpan]:
    """Addresses of pages about one person; other addresses are not personal data."""
    for match in _URL.finditer(plain):
        address = match.group().rstrip(".,;:!?")
        if _PERSONAL_PATH.search(address):
            yield span("url", match.start(), match.start() + len(address), "url@1", 0.80)


def ip_addresses(plain: str) -> Iterator[PersonalSpan]:
    """IP addresses, except loopback, unspecified and multicast ones, which identify no device."""
    for pattern in (_IPV4, _IPV6):
        # Skip the search in texts with too few points or colons for an address: most have.
        if plain.count("." if pattern is _IPV4 else ":") < (3 if pattern is _IPV4 else 2):
            continue
        for match in pattern.finditer(plain):
            text = match.group()
            if pattern is _IPV6 and text.count(":") < 2:
                continue
            try:
                address = ipaddress.ip_address(text.partition("%")[0])
            except ValueError:
                continue
            if address.is_loopback or address.is_unspecified or address.is_multicast:
                continue
            head = plain[max(0, match.start() - 12) : match.start()]
            if pattern is _IPV4 and _VERSION.search(head):
                continue
            yield span("ip", *match.span(), "ip@1", 0.95)


def hardware_addresses(plain: str) -> Iterator[PersonalSpan]:
    """MAC addresses."""
    if max(plain.count(":"), plain.count("-")) < 5 and plain.count(".") < 2:
        return
    for match in _MAC.finditer(plain):
        if len(set(match.group()) - set(":-.")) > 1:
            yield span("mac", *match.span(), "mac@1", 0.95)


@cache
def finds_phones() -> bool:
    """Whether the library with the numbering plans (extra `pii`) is installed."""
    return find_spec("phonenumbers") is not None


def phones(plain: str, regions: Sequence[str]) -> Iterator[PersonalSpan]:
    """Telephone numbers, checked against international numbering plans; none without the extra."""
    if not finds_phones():
        return
    for match in _PHONE.finditer(plain):
        text = match.group().rstrip(" (-./")
        start, end = match.start(), match.start() + len(text)
        if text.count("(") != text.count(")"):
            if not text.startswith("(") or ")" in text:
                continue
            start, text = start + 1, text[1:]
        digits = sum(letter.isdigit() for letter in text)
        if not 7 <= digits <= 17:
            continue
        score = _phone_score(plain, start, end, text, digits, regions)
        if score:
            yield span("phone", start, end, "phone@1", score)


def _phone_score(
    plain: str, start: int, end: int, text: str, digits: int, regions: Sequence[str]
) -> float:
    prefixed = text.startswith(("+", "00"))
    labelled = beside(plain, start, end, _CALLED)
    if prefixed:
        if _is_valid(text, None):
            return 0.95
        return (
            0.75
            if labelled and digits >= 9
            else 0.60
            if text.startswith("+") and digits > 9
            else 0.0
        )
    if _AMERICAN.fullmatch(text):
        return 0.90 if labelled else 0.75
    shaped = not text.isdigit()
    if _NOT_PHONE.fullmatch(text) and not (labelled and digits >= 9):
        return 0.55 if labelled and shaped and digits >= 7 and "." not in text else 0.0
    if labelled:
        return 0.85 if any(_is_valid(text, region) for region in regions) else 0.70
    groups = len(re.findall(r"\d+", text))
    if not shaped or digits < 9 or not 2 <= groups <= 5:
        return 0.0
    return 0.65 if any(_is_valid(text, region) for region in regions) else 0.0


def _is_valid(text: str, region: str | None) -> bool:
    return bool(_e164([_parse_phone(text, region)], valid=True))


def _parse_phone(text: str, region: str | None) -> PhoneNumber | None:
    """The number by a region's plan; imports the library only for a candidate."""
    import phonenumbers

    if text.startswith("00"):
        text = "+" + text.lstrip("+0")
    try:
        return phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None


def _e164(numbers: Iterable[PhoneNumber | None], *, valid: bool) -> set[str]:
    import phonenumbers as plans

    return {
        plans.format_number(number, plans.PhoneNumberFormat.E164)
        for number in numbers
        if number is not None and (not valid or plans.is_valid_number(number))
    }


def is_same_number(shown: str, own: str, regions: Sequence[str]) -> bool:
    """Whether two texts write one telephone number, or the first the end of the second.

    >>> is_same_number("0033 1 42 68 53 00", "+33 1 42 68 53 00", ())
    True
    >>> is_same_number("(202) 555 0142", "+1 202 555-0142", ())
    True
    """
    digits = "".join(filter(str.isdigit, shown))
    if digits and "".join(filter(str.isdigit, own)).endswith(digits):
        return True
    if not finds_phones():
        return False
    return not _forms(shown, own, regions).isdisjoint(_forms(own, shown, regions))


def _forms(text: str, other: str, regions: Sequence[str]) -> set[str]:
    """A number with its country's code: its own, else by the regions and the other's country."""
    import phonenumbers

    number, abroad = _parse_phone(text, None), _parse_phone(other, None)
    if number is not None:
        return _e164([number], valid=False)
    if abroad is not None:
        regions = (*regions, phonenumbers.region_code_for_country_code(abroad.country_code or 0))
    return _e164((_parse_phone(text, region) for region in regions), valid=True)


_UPPER: Final = "A-ZÀ-ÖØ-ÞĀĂĄĆČĎĐĒĘĚĞĢĪİĶĹĽŁŃŅŇŌŐŒŔŘŚŞŠŢŤŪŮŰŹŻŽ"
_WORD: Final = rf"[{_UPPER}][\w'.-]{{0,30}}"
_NUMBER: Final = r"\d{1,5}(?:[ -]?[A-Za-z](?!\w))?(?:[/-]\d{1,4}[A-Za-z]?(?!\w))?"
# English words for a street, which follow its name.
_WAYS: Final = f"(?:{'|'.join(LISTS['ways'])})"
_FIRST_NUMBER: Final = re.compile(
    rf"(?<![\w.,$€£/-]){_NUMBER},? (?:(?:[NSEW]|North|South|East|West)\.? )?"
    rf"(?:(?:{_WORD}|\d{{1,3}}(?:st|nd|rd|th)) ){{1,4}}?(?i:{_WAYS})\.?(?!\w)"
)
# Words for a street before its name: in Romance and Slavic languages, and German prepositions.
_LEADING: Final = re.compile(
    rf"(?<!\w)(?:(?:(?i:via|viale|piazza|corso|vicolo|largo|rue|avenue|boulevard|place|chemin|allée|quai"
    rf"|impasse|route|calle|avenida|avda|av|paseo|plaza|carrer|rua|travessa|praça|ul|ulica|aleja|al"
    rf"|osiedle|strada|bulevardul|ulitsa|trg|jalan|jl|rúa))\.? (?:(?i:de la|de l'|della|delle|degli|dei"
    rf"|del|di|de|do|da|dos|des|du|la|le|les|los|las) ?)?(?:{_WORD} ?){{1,4}}"
    rf"|(?:Am|An der|Auf der|Im|In der|Zum|Zur|Unter den|Alte[rn]?) (?:{_WORD} ?){{1,2}})"
    rf",? {{0,1}}(?:n[°ºr]?\.? ?)?(?!\d{{5}}){_NUMBER}(?!\w)(?![.,]\d)"
)
# A number before the word for a street, as in French.
_FRENCH: Final = re.compile(
    rf"(?<![\w.,$€£/-]){_NUMBER},? (?:bis |ter )?(?i:rue|avenue|boulevard|place|chemin|allée|quai|impasse|route|via"
    rf"|calle|rua)\.? (?:(?i:de la|de l'|del|di|de|do|da|des|du|la|le|les) ?)?{_WORD}(?: {_WORD}){{0,3}}"
)
# Words for a street at the end of a compound, such as "Hauptstraße".
_COMPOUND: Final = f"(?:{'|'.join(LISTS['grown_ways'])})"
_COMPOUND_AFTER: Final = re.compile(
    rf"(?<!\w)(?=[^\W\d_]{{4,40}})(?:{_WORD} ){{0,2}}[^\W\d_][\w'-]{{1,30}}(?i:{_COMPOUND}) {_NUMBER}(?!\w)(?![.,]\d)"
)
_COMPOUND_BEFORE: Final = re.compile(
    rf"(?<![\w.,$€£/-])\d{{1,5}} (?:{_WORD} ){{0,2}}[{_UPPER}][\w'-]{{1,30}}{_COMPOUND}(?!\w)"
)
_BOX: Final = re.compile(
    r"(?<!\w)(?:P\.? ?O\.? ?Box|Post Office Box|Postfach|Apartado|Casilla|Boîte Postale|PMB)"
    r" ?#? ?\d{1,7}(?!\w)",
    re.IGNORECASE,
)
_MILITARY: Final = re.compile(
    r"(?<!\w)(?:(?:PSC|CMR|Unit) ?\d{1,5},? {0,2}(?:Box ?\d{1,5})|US(?:NS|CGC|S) [A-Z]\w{1,20}),?\s{0,3}"
    r"(?:APO|FPO|DPO)[ ,]{1,2}(?:AA|AE|AP) ?\d{5}(?:-\d{4})?(?!\w)",
    re.IGNORECASE,
)
_NEAR: Final = listed("address")
_LIVES: Final = listed("lives")
# A number this long without a word for a street is seldom a house; orders and flights have such.
_LONG_NUMBER: Final = re.compile(r"\d{4}")
_LOOSE: Final = re.compile(
    rf"(?<![\w.,$€£/-])(?:{_NUMBER} (?:{_WORD} ?){{1,4}}(?<! )|(?:{_WORD} ){{1,4}}{_NUMBER})(?!\w)(?![.,:%]\d)"
)
_UNIT: Final = re.compile(
    r"[,\s]{1,3}(?:(?:apt|apartment|suite|ste|unit|floor|fl|room|rm|flat|building|bldg|no|lot|door|#)"
    r"\.? ?#?[\w-]{1,6}|#\d{1,5})(?!\w)",
    re.IGNORECASE,
)
# A line or part that may continue an address: a place, a state, a postcode, a country.
_PART: Final = re.compile(
    rf"[,\s]{{1,4}}(?:\d{{4,6}}(?:-\d{{3,4}})?|\d{{3}} ?\d{{2}}|\d{{4}} ?[A-Z]{{2}}|[{_UPPER}]{{1,2}}-?\d{{1,5}}[A-Z]?(?: \d[A-Z]{{2}})?"
    rf"|[{_UPPER}][\w'.-]{{1,30}}|[{_UPPER}]{{2}}|(?:de|of|la|le|los|am|an|der|upon|del|di))(?!\w)"
)
_HOUSE: Final = re.compile(r"(?<![\w.,$€£/-])(?P<n>\d{1,5}),? \Z")
# The place that follows a postcode, where the postcode comes first.
_PLACE: Final = re.compile(rf" [{_UPPER}][\w'-]{{2,30}}(?=[\s.,;:!?]|$)")
_CODE: Final = re.compile(
    r"\d{4,6}(?:-\d{3,4})?|\d{3} \d{2}|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|\d{4} ?[A-Z]{2}"
)
_MOST_PARTS: Final = 10
_NOT_STREETS: Final = frozenset(LISTS["no_streets"])


_COMPOUND_ENDS: Final = tuple(end.replace("\\", "") for end in LISTS["grown_ways"])
_BLANK_NUMBER: Final = re.compile(r" \d")
_LONGEST_COMPOUND: Final = 12


def _may_be_compound(plain: str) -> bool:
    """Whether a word before a number ends like a street: cheaper than `_COMPOUND_AFTER`."""
    return any(
        plain[max(0, at - _LONGEST_COMPOUND) : at].lower().endswith(_COMPOUND_ENDS)
        for at in (match.start() for match in _BLANK_NUMBER.finditer(plain))
    )


def street_addresses(plain: str) -> Iterator[PersonalSpan]:
    """Street addresses with a house number, post-office boxes, and military addresses."""
    for pattern, score in (
        (_FIRST_NUMBER, 0.80),
        (_LEADING, 0.80),
        (_FRENCH, 0.80),
        (_COMPOUND_AFTER, 0.75),
        (_COMPOUND_BEFORE, 0.70),
        (_BOX, 0.75),
        (_MILITARY, 0.95),
        (_LOOSE, 0.0),
    ):
        if pattern is _COMPOUND_AFTER and not _may_be_compound(plain):
            continue
        for match in pattern.finditer(plain):
            start, end = match.span()
            end = start + len(match.group().rstrip(" ,."))
            if not score and (not beside(plain, start, end, _NEAR) or _not_street(match.group())):
                continue
            sure = score or 0.60
            loose = not score
            number = _HOUSE.search(plain, max(0, start - 8), start)
            if number and pattern not in (_MILITARY, _BOX):
                start = number.start("n")
            longer, coded = (end, False) if pattern is _MILITARY else _address_end(plain, end)
            if loose and not coded and not _lives_there(plain, start, end):
                # "Order 4417 was shipped" has no street word, and no one is said to live there.
                continue
            if coded and pattern is not _MILITARY:
                sure = min(0.95, sure + 0.10)
            yield span("street_address", start, longer, "address@1", sure)


def _address_end(plain: str, end: int) -> tuple[int, bool]:
    """The end of the address, after its unit or its postcode, and whether it has a postcode."""
    unit = _UNIT.match(plain, end)
    if unit:
        end = unit.end()
    last, at = end, end
    coded = False
    for _ in range(_MOST_PARTS):
        part = _PART.match(plain, at)
        if part is None:
            break
        # An empty line or a full stop ends an address.
        if part.group().count("\n") > 1 and not part.group().replace("\n", "").strip(" ,"):
            break
        at = part.end()
        if _CODE.search(part.group()):
            last, coded = at, True
            place = _PLACE.match(plain, at)
            if place and part.group()[-4:].isdigit():
                last = place.end()
    return last, coded


def _lives_there(plain: str, start: int, end: int) -> bool:
    """Whether the text says that someone lives at a name with a house number."""
    short = _LONG_NUMBER.search(plain, start, end) is None
    return short and beside(plain, start, end, _LIVES)


def _not_street(text: str) -> bool:
    return any(word.lower().strip(".,") in _NOT_STREETS for word in text.split())
