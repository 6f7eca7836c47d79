"""All recognisers of personal data that the package has, asked in one call."""

from __future__ import annotations

import re
from typing import Final

from crp_integrations.dpe.pii.contact import (
    emails,
    hardware_addresses,
    ip_addresses,
    phones,
    street_addresses,
    urls,
)
from crp_integrations.dpe.pii.identity_numbers import FINANCIAL_RULES as FINANCIAL
from crp_integrations.dpe.pii.identity_numbers import QUASI_IDENTIFIER_RULES as QUASI
from crp_integrations.dpe.pii.identity_numbers import STATE_RULES as NATIONAL
from crp_integrations.dpe.pii.identity_numbers import ages, crypto_addresses, ibans, salaries
from crp_integrations.dpe.pii.persons import persons
from crp_integrations.dpe.pii.sensitive import sensitive
from crp_integrations.dpe.pii.spans import PersonalSpan, apart, found_by, read
from crp_integrations.dpe.settings import PersonalSettings

OWN: Final = "own recognisers@1"
_RULES: Final = (*FINANCIAL, *NATIONAL, *QUASI)
_DEFAULT: Final = PersonalSettings()
_DIGIT: Final = re.compile(r"\d")


def find_personal_data(
    text: str, *, settings: PersonalSettings = _DEFAULT
) -> tuple[PersonalSpan, ...]:
    """Places of a text that hold personal data, in order and apart.

    Spec: CRP-SPEC-005 §13.2

    Args:
        settings: how sure a recogniser must be, and which kinds are left aside.

    Returns:
        Places with offsets in the text as given.

    >>> [(s.kind, s.category.value) for s in find_personal_data("Mail jo@example.org, Ms Moon.")]
    [('email', 'direct'), ('person', 'direct')]
    """
    reading = read(text)
    plain = reading.plain
    names = list(persons(plain))
    found = [
        *names,
        *crypto_addresses(plain),
        *emails(plain),
        *urls(plain),
        *ip_addresses(plain),
        *hardware_addresses(plain),
        *sensitive(plain, names),
    ]
    if _DIGIT.search(plain):
        found += numbered(plain, settings)
    wanted = [
        one for one in found if one.score >= settings.least_score and one.kind not in settings.aside
    ]
    return tuple(_back(one, reading.back(one.start, one.end)) for one in apart(wanted))


def numbered(plain: str, settings: PersonalSettings) -> list[PersonalSpan]:
    """What has a digit in it wherever it stands; most sentences hold none, so it is asked first."""
    return [
        *found_by(_RULES, plain),
        *ibans(plain),
        *salaries(plain),
        *phones(plain, settings.regions),
        *ages(plain),
        *street_addresses(plain),
    ]


def _back(one: PersonalSpan, place: tuple[int, int]) -> PersonalSpan:
    return PersonalSpan(one.category, one.kind, *place, one.recogniser, one.score)
