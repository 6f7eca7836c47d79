"""Numbers that identify a person, an account or a card, and data that narrows down a person."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.dpe.pii import checksums
from crp_integrations.dpe.pii.spans import LISTS, PersonalSpan, Rule, any_of, beside, listed, span

_SSN: Final = listed("ssn")
_TAX: Final = listed("tax_number")
_PASSPORT: Final = listed("passport")
_LICENCE: Final = listed("driving_licence")
_NATIONAL: Final = listed("national_id")


def _ssn(digits: str) -> bool:
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    if area in ("000", "666") or area[0] == "9" or group == "00" or serial == "0000":
        return False
    return len(set(digits)) > 1 and digits not in ("123456789", "078051120")


def _itin(digits: str) -> bool:
    return digits[0] == "9" and 50 <= int(digits[3:5]) <= 99 and digits[3:5] not in ("89", "93")


def _has_digits(text: str) -> bool:
    return sum(letter.isdigit() for letter in text) >= max(3, len(text) // 2 - 1)


def _numbers(pattern: str) -> re.Pattern[str]:
    """A pattern for a number that is not part of a longer word or number; ignores case."""
    return re.compile(rf"(?<![\w-])(?<!\d[.,])(?:{pattern})(?!-?\w)(?![.,]\d)", re.IGNORECASE)


def _after(words: str, number: str) -> re.Pattern[str]:
    """A pattern for a number after a word, with at most a few signs and "is" or "no" between."""
    return re.compile(
        rf"(?<!\w)(?:{words})(?:[\s:#=.,'()-]{{0,4}}(?:is|was|no|nr|num|number|nº|n°|id|code|card)"
        rf"(?!\w)){{0,3}}[\s:#=.'()-]{{0,4}}(?P<n>{number})(?!-?\w)",
        re.IGNORECASE,
    )


_ALPHANUMERIC: Final = r"[A-Z0-9](?:[ -]?[A-Z0-9]){4,17}"

STATE_RULES: Final[tuple[Rule, ...]] = (
    Rule("ssn", "us-ssn@1", _numbers(r"\d{3}([- .])\d{2}\1\d{4}"), _ssn, _SSN, 0.85, 1.0, digits=9),
    Rule("ssn", "us-ssn@1", _numbers(r"\d{9}"), _ssn, _SSN, 0.0, 0.9, digits=9),
    Rule("itin", "us-itin@1", _numbers(r"9\d{2}[- ]\d{2}[- ]\d{4}"), _itin, _TAX, 0.85, 1.0, digits=9),
    Rule("itin", "us-itin@1", _numbers(r"9\d{8}"), _itin, _TAX, 0.0, 0.9, digits=9),
    Rule("passport", "passport@1", _after("passport|passeport|reisepass|pasaporte|passaporto|paspoort", r"[A-Z]{0,3}[ -]?\d{6,9}[A-Z]?|[CFGHJK][A-Z0-9]{8}"), _has_digits, None, 0.9, digits=3),
    Rule("passport", "passport@1", _numbers(r"[A-Z]{1,2}\d{6,8}"), _has_digits, _PASSPORT, 0.0, 0.75, digits=6),
    Rule("driving_licence", "driving-licence@1", _after(r"(?:driver'?s?|driving)[ -]{1,2}(?:licen[cs]e|permit)|führerschein(?:nummer)?|permis de conduire", _ALPHANUMERIC), _has_digits, None, 0.85, digits=3),
    Rule("driving_licence", "uk-driving-licence@1", _numbers(r"[A-Z9]{5}\d{6}[A-Z9]{2}\d[A-Z]{2}"), lambda text: 1 <= int(text[6:8]) % 50 <= 12, _LICENCE, 0.85, 1.0, digits=7),
    Rule("driving_licence", "us-driving-licence@1", _numbers(r"[A-Z]{1,2}\d{5,12}|\d{7,12}"), _has_digits, _LICENCE, 0.0, 0.7, digits=5),
    Rule("national_id", "uk-nino@1", _numbers(r"(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]"), words=_NATIONAL, bare=0.85, digits=6),
    Rule("national_id", "uk-nhs@1", _numbers(r"\d{3}[ -]\d{3}[ -]\d{4}|\d{10}"), checksums.nhs, any_of("nhs health_number patient_number"), 0.0, 1.0, digits=10),
    Rule("national_id", "de-tax-id@1", _numbers(r"\d{2} ?\d{3} ?\d{3} ?\d{3}"), checksums.german_tax, _TAX, 0.0, 1.0, digits=11),
    Rule("national_id", "es-nif@1", _numbers(r"\d{8}-?[A-Z]|[XYZ]-?\d{7}-?[A-Z]"), checksums.spanish, _NATIONAL, 0.85, 1.0, digits=7),
    Rule("national_id", "it-fiscal-code@1", _numbers(r"[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z]"), checksums.italian, _NATIONAL, 1.0, digits=7),
    Rule("national_id", "fr-nir@1", _numbers(r"[12][ .]?\d{2}[ .]?(?:0[1-9]|1[0-2]|[2-9]\d)[ .]?(?:\d{2}|2[AB])[ .]?\d{3}[ .]?\d{3}[ .]?\d{2}"), checksums.french, _NATIONAL, 0.95, 1.0, digits=14),
    Rule("national_id", "au-tfn@1", _numbers(r"\d{3} ?\d{3} ?\d{3}"), checksums.australian_tax, any_of("tfn tax_file tax_file_number"), 0.0, 1.0, digits=9),
    Rule("national_id", "au-abn@1", _numbers(r"\d{2} ?\d{3} ?\d{3} ?\d{3}"), checksums.australian_business, any_of("abn business_number"), 0.0, 0.9, digits=11),
    Rule("national_id", "in-aadhaar@1", _numbers(r"[2-9]\d{3}[ -]\d{4}[ -]\d{4}|[2-9]\d{11}"), checksums.verhoeff, any_of("aadhaar aadhar uidai uid"), 0.0, 1.0, digits=12),
    Rule("national_id", "pl-pesel@1", _numbers(r"\d{11}"), checksums.polish, any_of("pesel"), 0.0, 1.0, digits=11),
    Rule("national_id", "nl-bsn@1", _numbers(r"\d{9}"), checksums.dutch, any_of("bsn burgerservicenummer sofinummer"), 0.0, 1.0, digits=9),
    Rule("national_id", "br-cpf@1", _numbers(r"\d{3}\.\d{3}\.\d{3}-\d{2}|\d{11}"), checksums.brazilian, any_of("cpf"), 0.0, 1.0, digits=11),
    Rule("national_id", "br-cpf@1", _numbers(r"\d{3}\.\d{3}\.\d{3}-\d{2}"), checksums.brazilian, None, 0.95, digits=11),
    Rule("national_id", "ca-sin@1", _numbers(r"\d{3}[ -]\d{3}[ -]\d{3}|\d{9}"), checksums.luhn, any_of("sin social_insurance social_insurance_number"), 0.0, 1.0, digits=9),
    Rule("national_id", "se-personnummer@1", _numbers(r"(?:\d{2})?\d{6}[-+]\d{4}"), lambda text: checksums.luhn(text[-10:]), any_of("personnummer personal_number personal_identity"), 0.0, 1.0, digits=10),
    Rule("national_id", "fi-hetu@1", _numbers(r"[0-3]\d[01]\d{3}[-+A]\d{3}[0-9A-FHJ-NPR-Y]"), lambda text: len(text) in (10, 11) and _hetu(text), _NATIONAL, 0.9, 1.0, digits=9),
    Rule("national_id", "ch-ahv@1", _numbers(r"756[. ]?\d{4}[. ]?\d{4}[. ]?\d{2}"), checksums.swiss, _NATIONAL, 0.95, 1.0, digits=13),
    Rule("national_id", "cn-resident@1", _numbers(r"[1-9]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])[0-3]\d\d{3}[0-9X]"), checksums.chinese, _NATIONAL, 0.95, 1.0, digits=17),
)  # fmt: skip


def _hetu(text: str) -> bool:
    """Check a Finnish code; its sign may have been removed with the separators."""
    signed = text if len(text) == 11 else text[:6] + "-" + text[6:]
    return checksums.finnish(signed)


_CARD: Final = listed("card")
_ACCOUNT: Final = listed("account")
_ROUTING: Final = any_of("routing aba routing_number transit rtn")
_SORT: Final = any_of("sort_code sortcode bank account sort")
# Length of an IBAN by country.
_IBAN_LENGTHS: Final = dict(pair.split(":") for pair in LISTS["iban_lengths"])
_IBAN: Final = re.compile(r"(?<![^\W_])[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){10,30}", re.IGNORECASE)
_SALARY: Final = listed("salary")
_PERSON_NEAR: Final = listed("person_near")
_MONEY: Final = re.compile(
    r"(?<![\w.,])(?:(?:US|A|C)?[$€£¥₹]\s?\d{1,3}(?:[,. ]?\d{3}){0,3}(?:\.\d{1,2})?\s?[kK]?"
    r"|(?:USD|EUR|GBP|CHF|INR|AUD|CAD)\s?\d{1,3}(?:[,. ]?\d{3}){0,3}(?:\.\d{1,2})?\s?[kK]?"
    r"|\d{1,3}(?:[,. ]?\d{3}){0,3}(?:\.\d{1,2})?\s?[kK]?\s?(?:[€£]|USD|EUR|GBP|CHF|dollars|euros"
    r"|pounds|rupees))(?!\w)(?![.,]\d)(?!\s?(?:million|billion|bn|trillion|m\b))"
)


def _card(digits: str) -> bool:
    return len(set(digits)) > 1 and checksums.luhn(digits)


def _issued(digits: str) -> bool:
    """Whether a card network uses these first digits and this length, and the checksum holds."""
    length, head = len(digits), int(digits[:4])
    known = (
        (digits[0] == "4" and length in (13, 16, 19))
        or ((5100 <= head <= 5599 or 2221 <= head <= 2720) and length == 16)
        or (digits[:2] in ("34", "37") and length == 15)
        or ((digits[:2] in ("36", "38", "39") or 3000 <= head <= 3059) and length in (14, 16, 19))
        or (digits[:2] in ("60", "62", "64", "65") and 16 <= length <= 19)
        or (3528 <= head <= 3589 and 16 <= length <= 19)
        or (digits[:2] in ("50", "56", "57", "58", "63", "67") and 12 <= length <= 19)
    )
    return known and _card(digits)


_DIGITS: Final = r"(?<![\w])(?<!\d[ .,-])\d(?:[ -]?\d){11,18}(?![ .,-]?\d)(?!\w)"
FINANCIAL_RULES: Final[tuple[Rule, ...]] = (
    Rule("credit_card", "card@1", re.compile(_DIGITS), _issued, _CARD, 0.80, 1.0, digits=12),
    Rule("credit_card", "card@1", re.compile(_DIGITS), _card, _CARD, 0.0, 0.95, digits=12),
    Rule("bank_account", "account@1", re.compile(r"(?<![\w.,-])\d(?:[ -]?\d){5,16}(?![\w]|[.,-]\d)"), lambda digits: len(set(digits)) > 1, _ACCOUNT, 0.0, 0.60, digits=6),
    Rule("bank_account", "us-routing@1", re.compile(r"(?<![\w.,-])\d{9}(?![\w]|[.,-]\d)"), checksums.american_routing, _ROUTING, 0.0, 0.90, digits=9),
    Rule("bank_account", "uk-sort-code@1", re.compile(r"(?<![\w.,-])\d{2}-\d{2}-\d{2}(?![\w]|[.,-]\d)"), words=_SORT, labelled=0.80, digits=6),
)  # fmt: skip

_BASE58: Final = re.compile(r"(?<!\w)[13LMD][1-9A-HJ-NP-Za-km-z]{25,34}(?!\w)")
_BECH32: Final = re.compile(r"(?<!\w)(?:bc1|ltc1|tb1)[02-9ac-hj-np-z]{11,71}(?!\w)", re.IGNORECASE)
_ETHEREUM: Final = re.compile(r"(?<!\w)0x[0-9a-fA-F]{40}(?!\w)")


def ibans(plain: str) -> Iterator[PersonalSpan]:
    """Account numbers of ISO 13616 with their country's length and a valid checksum."""
    for match in _IBAN.finditer(plain):
        length = int(_IBAN_LENGTHS.get(match.group()[:2].upper(), 0))
        end, seen = match.start(), 0
        # The pattern may run into the next word; the country's length gives the end.
        for letter in match.group():
            if seen == length:
                break
            seen += letter not in " -"
            end += 1
        text = re.sub(r"[ -]", "", plain[match.start() : end]).upper()
        follows = plain[end : end + 1]
        if seen == length and length and not follows.isalnum() and checksums.iban(text):
            yield span("iban", match.start(), end, "iban@1", 1.0)


def crypto_addresses(plain: str) -> Iterator[PersonalSpan]:
    """Addresses with a valid checksum, and Ethereum addresses by their form."""
    for match in _BASE58.finditer(plain):
        if checksums.base58check(match.group()):
            yield span("crypto", *match.span(), "base58check@1", 1.0)
    for match in _BECH32.finditer(plain):
        if checksums.bech32(match.group().lower()):
            yield span("crypto", *match.span(), "bech32@1", 1.0)
    for match in _ETHEREUM.finditer(plain):
        yield span("crypto", *match.span(), "ethereum@1", 0.80)


def salaries(plain: str) -> Iterator[PersonalSpan]:
    """Sums of money near a word for earning and a word for a person."""
    for match in _MONEY.finditer(plain):
        start, end = match.span()
        if beside(plain, start, end, _SALARY) and beside(plain, start, end, _PERSON_NEAR):
            yield span("salary", start, end, "salary@1", 0.70)


_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE: Final = re.compile(
    rf"(?<![\w./-])(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\.? (?:of )?{_MONTH}\.?,? \d{{4}}"
    rf"|{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}|{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\.? (?:of )?{_MONTH})(?!\w)(?![./-]\d)",
    re.IGNORECASE,
)
_BORN: Final = listed("born")
_AGES: Final = (
    # In order: "5 years old", "aged 5", "5 years of age", "turned 5", "she is 5".
    re.compile(r"(?<![\w.,$€£-])(?P<n>\d{1,3})(?: ?-?years?[ -]?olds?| ?-?yrs?\.?[ -]old| ?y/?o\b| ?yo\b)", re.I),
    re.compile(r"(?<!\w)(?:aged?(?: is)?|years of age|my age)[ :=]{1,3}(?:of )?(?P<n>\d{1,3})(?![\w%]|[.,:/-]\d)", re.I),
    re.compile(r"(?<!\w)(?P<n>\d{1,3})[ -]years? of age(?!\w)", re.I),
    re.compile(r"(?<!\w)(?:just |will |'ll |recently |soon )?turn(?:ed|s|ing)?(?: the age of)? (?P<n>\d{1,3})(?! ?(?:%|per|degrees|km|miles|times|into|points|pages|°))(?![\w%]|[.,:/-]\d)", re.I),
    re.compile(r"(?<!\w)(?:i'm|i am|he is|she is|he's|she's|i was|he was|she was|they are) (?:only |just |almost |nearly |now )?(?P<n>\d{1,3})(?=[ \t]*(?:[.,;!?\n]|$|and\b|now\b|today\b|this year\b|but\b|when\b|years\b(?! (?:late|away|ago|into|in\b))))(?![.,]\d)", re.I),
)  # fmt: skip
_OLDEST: Final = 120
_EMPLOYEE: Final = re.compile(
    r"(?<!\w)(?:employee|staff|personnel|badge|payroll|worker|emp|associate|contractor|student"
    r"|patient|member|customer|medical record|mrn)"
    r"(?:[ '_.-]{0,2}(?:id|identification|identifier|no|nr|num|number|code|#))"
    r"[\s:#=.()-]{0,4}(?:(?:is|was|number|no)\W{1,3}){0,2}(?P<n>(?=[A-Z-]{0,6}\d)[A-Z0-9][A-Z0-9-]{2,14})(?!\w)",
    re.IGNORECASE,
)
_ZIP: Final = listed("zip")
_POSTCODE: Final = re.compile(
    r"(?<![\w.,$€£-])(?:\d{5}-\d{4}|\d{5}-\d{3}|\d{3,4}-\d{3,4}|\d{3} \d{2}|\d{4} [A-Z]{2}|[A-Z]{1,2}-?\d{4,5}"
    r"|\d{3,7}|[A-Z]\d[A-Z] ?\d[A-Z]\d|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2})(?!\w)(?!-\d)(?![.,]\d)"
)
_BRITISH: Final = re.compile(
    r"(?<![\w-])(?:GIR ?0AA|[A-PR-UWYZ](?:\d{1,2}|[A-HK-Y]\d(?:\d|[ABEHMNPRV-Y])?|\d[A-HJKPS-UW])"
    r" ?\d[ABD-HJLNP-UW-Z]{2})(?![\w-])"
)
_AMERICAN: Final = re.compile(
    r"(?<!\w)(?:A[KLRZ]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|O[HKR]|PA"
    r"|RI|S[CD]|T[NX]|UT|V[AT]|W[AIVY]),? (?P<n>\d{5}(?:-\d{4})?)(?!\w)"
)
QUASI_IDENTIFIER_RULES: Final[tuple[Rule, ...]] = (
    Rule("date_of_birth", "birth@1", _DATE, words=_BORN, labelled=0.90),
    Rule("postcode", "postcode@1", _POSTCODE, words=_ZIP, labelled=0.75, digits=2),
    Rule("postcode", "uk-postcode@1", _BRITISH, words=_ZIP, bare=0.70, labelled=0.85),
    Rule("postcode", "us-zip@1", _AMERICAN, words=_ZIP, bare=0.65, labelled=0.85, digits=5),
    Rule("employee_id", "employee@1", _EMPLOYEE, bare=0.80),
)
_ABOUT_THINGS: Final = any_of(
    "building house church company firm whisky wine tree trees rock rocks fossil bridge castle "
    "star galaxy planet car software code bug tradition law statute rule contract"
)


def ages(plain: str) -> Iterator[PersonalSpan]:
    """Ages in years, except those of things, by the words near them."""
    for pattern in _AGES:
        for match in pattern.finditer(plain):
            start, end = match.span("n")
            if 0 < int(match["n"]) <= _OLDEST and not beside(plain, start, end, _ABOUT_THINGS):
                yield span("age", start, end, "age@1", 0.80)
