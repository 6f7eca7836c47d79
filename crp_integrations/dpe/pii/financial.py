"""Cards, accounts, addresses of crypto currencies, and what somebody earns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.dpe.pii import checksums
from crp_integrations.dpe.pii.rules import Rule, any_of, beside
from crp_integrations.dpe.pii.spans import PersonalSpan, span

_CARD: Final = any_of(
    "card cards credit debit visa mastercard amex american_express discover maestro diners jcb "
    "card_number cc# ccn pan"
)
_ACCOUNT: Final = any_of(
    "account accounts account_number account_no acct acct# acc_no bank_account checking savings "
    "kontonummer konto a/c account#"
)
_ROUTING: Final = any_of("routing aba routing_number transit rtn")
_SORT: Final = any_of("sort_code sortcode bank account sort")
# Length of an IBAN by country.
_IBAN_LENGTHS: Final = dict(
    pair.split(":")
    for pair in """AD:24 AE:23 AL:28 AT:20 AZ:28 BA:20 BE:16 BG:22 BH:22 BR:29 BY:28 CH:21 CR:22
    CY:28 CZ:24 DE:22 DK:18 DO:28 EE:20 EG:29 ES:24 FI:18 FO:18 FR:27 GB:22 GE:22 GI:23 GL:18 GR:27
    GT:28 HR:21 HU:28 IE:22 IL:23 IQ:23 IS:26 IT:27 JO:30 KW:30 KZ:20 LB:28 LC:32 LI:21 LT:20 LU:20
    LV:21 LY:25 MC:27 MD:24 ME:22 MK:19 MR:27 MT:31 MU:30 NL:18 NO:15 PK:24 PL:28 PS:29 PT:25 QA:29
    RO:24 RS:22 SA:24 SC:31 SD:18 SE:24 SI:19 SK:24 SM:27 ST:25 SV:28 TL:23 TN:24 TR:26 UA:29 VA:22
    VG:24 XK:20""".split()
)
_IBAN: Final = re.compile(r"(?<![^\W_])[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){10,30}", re.IGNORECASE)
_SALARY: Final = any_of(
    "salary salaries wage wages earn earns earned earning earnings income paid paying pays makes "
    "made compensation payroll pension bonus take_home gehalt salaire sueldo stipend remuneration"
)
_PERSON_NEAR: Final = any_of(
    "i i'm my me he she his her him they their employee employees worker staff mr mrs ms dr "
    "salary wage earns earned gehalt salaire sueldo stipend pension we our you your"
)
_MONEY: Final = re.compile(
    r"(?<![\w.,])(?:(?:US|A|C)?[$€£¥₹]\s?\d{1,3}(?:[,. ]?\d{3}){0,3}(?:\.\d{1,2})?\s?[kK]?"
    r"|(?:USD|EUR|GBP|CHF|INR|AUD|CAD)\s?\d{1,3}(?:[,. ]?\d{3}){0,3}(?:\.\d{1,2})?\s?[kK]?"
    r"|\d{1,3}(?:[,. ]?\d{3}){0,3}(?:\.\d{1,2})?\s?[kK]?\s?(?:[€£]|USD|EUR|GBP|CHF|dollars|euros"
    r"|pounds|rupees))(?!\w)(?![.,]\d)(?!\s?(?:million|billion|bn|trillion|m\b))"
)


def _card(digits: str) -> bool:
    return len(set(digits)) > 1 and checksums.luhn(digits)


def _issued(digits: str) -> bool:
    """A card whose first digits and length some network uses."""
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
RULES: Final[tuple[Rule, ...]] = (
    Rule("credit_card", "card@1", re.compile(_DIGITS), _issued, _CARD, 0.80, 1.0, digits=12),
    Rule("credit_card", "card@1", re.compile(_DIGITS), _card, _CARD, 0.0, 0.95, digits=12),
    Rule("bank_account", "account@1", re.compile(r"(?<![\w.,-])\d(?:[ -]?\d){5,16}(?![\w]|[.,-]\d)"), lambda digits: len(set(digits)) > 1, _ACCOUNT, 0.0, 0.60, digits=6),
    Rule("bank_account", "us-routing@1", re.compile(r"(?<![\w.,-])\d{9}(?![\w]|[.,-]\d)"), checksums.american_routing, _ROUTING, 0.0, 0.90, digits=9),
    Rule("bank_account", "uk-sort-code@1", re.compile(r"(?<![\w.,-])\d{2}-\d{2}-\d{2}(?![\w]|[.,-]\d)"), words=_SORT, told=0.80, digits=6),
)  # fmt: skip

_BASE58: Final = re.compile(r"(?<!\w)[13LMD][1-9A-HJ-NP-Za-km-z]{25,34}(?!\w)")
_BECH32: Final = re.compile(r"(?<!\w)(?:bc1|ltc1|tb1)[02-9ac-hj-np-z]{11,71}(?!\w)", re.IGNORECASE)
_ETHEREUM: Final = re.compile(r"(?<!\w)0x[0-9a-fA-F]{40}(?!\w)")


def ibans(plain: str) -> Iterator[PersonalSpan]:
    """Account numbers of ISO 13616: their country's length, and 1 over 97."""
    for found in _IBAN.finditer(plain):
        length = int(_IBAN_LENGTHS.get(found.group()[:2].upper(), 0))
        end, seen = found.start(), 0
        # The pattern goes on into the next word; the country says where the number ends.
        for letter in found.group():
            if seen == length:
                break
            seen += letter not in " -"
            end += 1
        text = re.sub(r"[ -]", "", plain[found.start() : end]).upper()
        follows = plain[end : end + 1]
        if seen == length and length and not follows.isalnum() and checksums.iban(text):
            yield span("iban", found.start(), end, "iban@1", 1.0)


def crypto_addresses(plain: str) -> Iterator[PersonalSpan]:
    """Addresses whose checksum holds, and Ethereum's by their form."""
    for found in _BASE58.finditer(plain):
        if checksums.base58check(found.group()):
            yield span("crypto", *found.span(), "base58check@1", 1.0)
    for found in _BECH32.finditer(plain):
        if checksums.bech32(found.group().lower()):
            yield span("crypto", *found.span(), "bech32@1", 1.0)
    for found in _ETHEREUM.finditer(plain):
        yield span("crypto", *found.span(), "ethereum@1", 0.80)


def salaries(plain: str) -> Iterator[PersonalSpan]:
    """Sums of money beside a word for earning and a word for a person."""
    for found in _MONEY.finditer(plain):
        start, end = found.span()
        if beside(plain, start, end, _SALARY) and beside(plain, start, end, _PERSON_NEAR):
            yield span("salary", start, end, "salary@1", 0.70)
