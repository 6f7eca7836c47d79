"""Numbers that a state gives a person: social security, tax, health, passports, licences."""

from __future__ import annotations

import re
from typing import Final

from crp_integrations.dpe.pii import checksums
from crp_integrations.dpe.pii.rules import Rule, any_of

_SSN: Final = any_of("ssn ssns ss# social_security social_security_number tin taxpayer")
_TAX: Final = any_of(
    "tax tin tfn itin steuer steuer_id steueridentifikationsnummer idnr taxpayer tax_file"
)
_PASSPORT: Final = any_of(
    "passport passports passeport reisepass pasaporte passaporto paspoort passnummer"
)
_LICENCE: Final = any_of(
    "driver_license drivers_license driver's_license driving_license driver_licence "
    "drivers_licence driver's_licence driving_licence license_number licence_number dl_number "
    "führerschein permis_de_conduire driving_permit dvla dmv dl#"
)
_NATIONAL: Final = any_of(
    "id_number identity identification national_id personal_number personal_code id_card "
    "citizen resident insurance nino ni_number nhs health_number nif nie dni codice_fiscale "
    "fiscal_code nir sécurité_sociale insee aadhaar aadhar uidai pesel bsn burgerservicenummer "
    "cpf sin social_insurance personnummer henkilötunnus hetu ahv avs sozialversicherung abn "
    "medicare"
)


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
    """A pattern that begins and ends with the number, whatever the case of its letters."""
    return re.compile(rf"(?<![\w-])(?<!\d[.,])(?:{pattern})(?!-?\w)(?![.,]\d)", re.IGNORECASE)


def _after(words: str, number: str) -> re.Pattern[str]:
    """A number that a word introduces, with at most a few signs and `is`, `no`, `number` between."""
    return re.compile(
        rf"(?<!\w)(?:{words})(?:[\s:#=.,'()-]{{0,4}}(?:is|was|no|nr|num|number|nº|n°|id|code|card)"
        rf"(?!\w)){{0,3}}[\s:#=.'()-]{{0,4}}(?P<n>{number})(?!-?\w)",
        re.IGNORECASE,
    )


_ALPHANUMERIC: Final = r"[A-Z0-9](?:[ -]?[A-Z0-9]){4,17}"

RULES: Final[tuple[Rule, ...]] = (
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
    """The Finnish code with its sign, which a compact form may have lost."""
    signed = text if len(text) == 11 else text[:6] + "-" + text[6:]
    return checksums.finnish(signed)
