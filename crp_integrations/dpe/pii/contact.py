"""Ways to reach a person or a device: e-mail, telephone, internet and hardware addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Final

from crp_integrations.dpe.pii.rules import any_of, beside
from crp_integrations.dpe.pii.spans import PersonalSpan, span

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
_VERSION: Final = any_of("version v ver release build section clause chapter firmware driver")
_MAC: Final = re.compile(
    r"(?<![\w:-])(?:[0-9A-Fa-f]{2}(?P<s>[:-])(?:[0-9A-Fa-f]{2}(?P=s)){4}[0-9A-Fa-f]{2}"
    r"|[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4})(?![\w:-])"
)
_PHONE: Final = re.compile(
    r"(?<![\w/.:,$€£-])(?<!\d )(?:(?:\+|00) ?)?\(?\d[\d ()./\u00b7-]{4,22}\d(?![\w]|[.,:/-]\d)"
    r"(?:,? ?(?:x|ext\.?|extension|#) ?\d{1,6}(?!\w))?",
    re.IGNORECASE,
)
_CALLED: Final = any_of(
    "phone phones telephone tel tel. mobile cell cellphone cellular fax call calls called calling "
    "dial dialed ring reach text texts sms message messages whatsapp signal hotline landline "
    "contact number_is phone_number answer answering answers handy telefon téléphone teléfono "
    "telefono rufnummer t: m: p: ph"
)
_AMERICAN: Final = re.compile(
    r"(?:\+?1[ .-]?)?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])[2-9]\d{2}[ .-]\d{4}"
)
_NOT_PHONE: Final = re.compile(
    r"(?:19|20)\d{2}[ ./-]\d{1,2}[ ./-]\d{1,2}|\d{1,2}[ ./-]\d{1,2}[ ./-](?:19|20)?\d{2}"
    r"|(?:1[0-9]|20)\d{2} ?- ?(?:1[0-9]|20)?\d{2}|\d{1,3}(?:[ .]\d{3}){1,4}|\d+\.\d+"
    r"|\d{1,4} ?- ?\d{1,4}|\d{5}-\d{4}|\d{3}-\d{2}-\d{4}|\d{4}[ -]\d{4}[ -]\d{4}[ -]\d{4}"
)


def emails(plain: str) -> Iterator[PersonalSpan]:
    """Addresses with an at sign, or with one that is spelled out in brackets."""
    if "@" in plain:
        for found in _EMAIL.finditer(plain):
            yield span("email", *found.span(), "email@1", 1.0)
    for found in _SPELLED.finditer(plain) if "at" in plain and _BRACKET.search(plain) else ():
        yield span("email", *found.span(), "email-spelled@1", 0.75)


def urls(plain: str) -> Iterator[PersonalSpan]:
    """Addresses of pages that are about one person; those of others are no personal data."""
    for found in _URL.finditer(plain):
        address = found.group().rstrip(".,;:!?")
        if _PERSONAL_PATH.search(address):
            yield span("url", found.start(), found.start() + len(address), "url@1", 0.80)


def ip_addresses(plain: str) -> Iterator[PersonalSpan]:
    """Internet addresses, but for those that name no device of anybody's."""
    for pattern in (_IPV4, _IPV6):
        # Looked for only where there are signs enough: mostly there are none.
        if plain.count("." if pattern is _IPV4 else ":") < (3 if pattern is _IPV4 else 2):
            continue
        for found in pattern.finditer(plain):
            text = found.group()
            if pattern is _IPV6 and text.count(":") < 2:
                continue
            try:
                address = ipaddress.ip_address(text.partition("%")[0])
            except ValueError:
                continue
            if address.is_loopback or address.is_unspecified or address.is_multicast:
                continue
            head = plain[max(0, found.start() - 12) : found.start()]
            if pattern is _IPV4 and _VERSION.search(head):
                continue
            yield span("ip", *found.span(), "ip@1", 0.95)


def hardware_addresses(plain: str) -> Iterator[PersonalSpan]:
    """MAC addresses."""
    if max(plain.count(":"), plain.count("-")) < 5 and plain.count(".") < 2:
        return
    for found in _MAC.finditer(plain):
        if len(set(found.group()) - set(":-.")) > 1:
            yield span("mac", *found.span(), "mac@1", 0.95)


def phones(plain: str, regions: Sequence[str]) -> Iterator[PersonalSpan]:
    """Telephone numbers, checked against the numbering plans of the world.

    Args:
        regions: countries whose numbers are read without a prefix.
    """
    for found in _PHONE.finditer(plain):
        text = found.group().rstrip(" (-./")
        start, end = found.start(), found.start() + len(text)
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
    told = beside(plain, start, end, _CALLED)
    if prefixed:
        if _is_valid("+" + text.lstrip("+0") if text.startswith("00") else text, None):
            return 0.95
        return (
            0.75 if told and digits >= 9 else 0.60 if text.startswith("+") and digits > 9 else 0.0
        )
    if _AMERICAN.fullmatch(text):
        return 0.90 if told else 0.75
    shaped = not text.isdigit()
    if _NOT_PHONE.fullmatch(text) and not (told and digits >= 9):
        return 0.55 if told and shaped and digits >= 7 and "." not in text else 0.0
    if told:
        return 0.85 if any(_is_valid(text, region) for region in regions) else 0.70
    groups = len(re.findall(r"\d+", text))
    if not shaped or digits < 9 or not 2 <= groups <= 5:
        return 0.0
    return 0.65 if any(_is_valid(text, region) for region in regions) else 0.0


def _is_valid(text: str, region: str | None) -> bool:
    """Whether a numbering plan has the number; the library is loaded at the first candidate."""
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, region))
    except phonenumbers.NumberParseException:
        return False
