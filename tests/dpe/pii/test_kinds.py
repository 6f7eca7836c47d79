"""What each recogniser finds, and what looks like it and is something else."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.pii.recognisers import find_personal_data
from crp_integrations.dpe.pii.spans import KINDS
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.vocabulary import PersonalCategory


def found(text: str) -> dict[str, list[str]]:
    """The places' texts by kind."""
    places: dict[str, list[str]] = {}
    for one in find_personal_data(text):
        places.setdefault(one.kind, []).append(text[one.start : one.end])
    return places


DIRECT = [
    ("Write to jo.moon+home@mail.example.co.uk today.", "email", "jo.moon+home@mail.example.co.uk"),
    ("Write to jo [at] example [dot] org today.", "email", "jo [at] example [dot] org"),
    ("Ring +44 20 7946 0018 after six.", "phone", "+44 20 7946 0018"),
    ("Her mobile is 0151 2345 6789.", "phone", "0151 2345 6789"),
    ("Office: (212) 736-5000, ask for Ann.", "phone", "(212) 736-5000"),
    ("The form was signed by Ann Moonraker.", "person", "Ann Moonraker"),
    ("My name is Oluwaseun Adebisi-Cole.", "person", "Oluwaseun Adebisi-Cole"),
    ("We asked Dr. Quillfeather about it.", "person", "Quillfeather"),
    ("Later Katarina van der Zee left.", "person", "Katarina van der Zee"),
    ("The prize went to Bronya Vasilenko in May.", "person", "Bronya Vasilenko"),
    ("My SSN is 536-22-8726.", "ssn", "536-22-8726"),
    ("His ITIN: 912-70-1234.", "itin", "912-70-1234"),
    ("Passport number: X1234567 expires soon.", "passport", "X1234567"),
    ("Her driver's license is D1234567.", "driving_licence", "D1234567"),
    ("National Insurance AB 12 34 56 C.", "national_id", "AB 12 34 56 C"),
    ("NHS number 943 476 5919.", "national_id", "943 476 5919"),
    ("Steuer-ID 86 095 742 719.", "national_id", "86 095 742 719"),
    ("DNI 12345678Z, NIE pending.", "national_id", "12345678Z"),
    ("Codice fiscale RSSMRA85T10A562S.", "national_id", "RSSMRA85T10A562S"),
    ("NIR 2 55 08 14 168 025 38.", "national_id", "2 55 08 14 168 025 38"),
    ("His TFN is 123 456 782.", "national_id", "123 456 782"),
    ("Aadhaar 2341 2341 2346.", "national_id", "2341 2341 2346"),
]
QUASI = [
    ("She was born on 12 March 1984 in Ulm.", "date_of_birth", "12 March 1984"),
    ("Date of birth: 1984-03-12.", "date_of_birth", "1984-03-12"),
    ("DOB 03/12/1984.", "date_of_birth", "03/12/1984"),
    ("He lives at 221B Baker Street, London NW1 6XE.", "street_address", "221B Baker Street, London NW1 6XE"),
    ("Send it to Lindenstraße 12, 10969 Berlin.", "street_address", "Lindenstraße 12, 10969 Berlin"),
    ("Write to P.O. Box 1187 please.", "street_address", "P.O. Box 1187"),
    ("Employee ID: E-20417 was locked.", "employee_id", "E-20417"),
    ("Staff no. 88213 is on leave.", "employee_id", "88213"),
    ("She is 47 years old.", "age", "47"),
    ("A 9-year-old boy waited.", "age", "9"),
    ("My zip code is 90210.", "postcode", "90210"),
    ("Logged in from 84.23.99.177.", "ip", "84.23.99.177"),
    ("Logged in from 2a02:8109:9c0:1::7.", "ip", "2a02:8109:9c0:1::7"),
    ("Adapter 00:1B:44:11:3A:B7 joined.", "mac", "00:1B:44:11:3A:B7"),
    ("See https://www.linkedin.com/in/jo-moon for more.", "url", "https://www.linkedin.com/in/jo-moon"),
]  # fmt: skip
SENSITIVE = [
    ("She was diagnosed with breast cancer in May.", "health", "breast cancer"),
    ("My father suffers from diabetes.", "health", "diabetes"),
    ("He votes for the Green Party.", "politics", "votes for the Green Party"),
    ("I am a registered Republican.", "politics", "am a registered Republican"),
    ("My neighbour is of Kurdish descent.", "ethnicity", "Kurdish"),
    ("She converted to Buddhist teaching; her husband is Muslim.", "religion", "Muslim"),
    ("He is openly gay.", "orientation", "gay"),
    ("She is a union member at the plant.", "union", "is a union member"),
]
FINANCIAL = [
    ("Charge 4111 1111 1111 1111 please.", "credit_card", "4111 1111 1111 1111"),
    ("Her card number is 6304 2737 3398.", "credit_card", "6304 2737 3398"),
    ("IBAN: GB82 WEST 1234 5698 7654 32.", "iban", "GB82 WEST 1234 5698 7654 32"),
    ("Account number 55779911, thanks.", "bank_account", "55779911"),
    ("Routing number 021000021.", "bank_account", "021000021"),
    ("Sort code 20-00-00.", "bank_account", "20-00-00"),
    ("His salary is $85,000 a year.", "salary", "$85,000"),
    ("She earns 4,200 EUR a month.", "salary", "4,200 EUR"),
    ("Pay 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa now.", "crypto", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"),
    ("Pay bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4 now.", "crypto", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"),
]  # fmt: skip


@pytest.mark.requirement("005-13.2-1")
@pytest.mark.parametrize(("text", "kind", "place"), DIRECT)
def test_direct_identifiers(text: str, kind: str, place: str) -> None:
    assert place in found(text).get(kind, []), found(text)
    assert KINDS[kind] is PersonalCategory.DIRECT


@pytest.mark.requirement("005-13.2-2")
@pytest.mark.parametrize(("text", "kind", "place"), QUASI)
def test_quasi_identifiers(text: str, kind: str, place: str) -> None:
    assert place in found(text).get(kind, []), found(text)
    assert KINDS[kind] is PersonalCategory.QUASI


@pytest.mark.requirement("005-13.2-2")
@pytest.mark.parametrize(
    ("with_it", "without", "kind"),
    [
        ("Born 12 March 1984.", "Opened 12 March 1984.", "date_of_birth"),
        ("Employee ID 20417.", "Order of 20417 bolts.", "employee_id"),
        ("Zip code 90210.", "It sold 90210 units.", "postcode"),
        ("He lives at Koskela 14.", "See Koskela 14 for details.", "street_address"),
    ],
)
def test_a_pattern_needs_its_context(with_it: str, without: str, kind: str) -> None:
    assert kind in found(with_it)
    assert kind not in found(without)


@pytest.mark.requirement("005-13.2-3")
@pytest.mark.parametrize(("text", "kind", "place"), SENSITIVE)
def test_special_categories(text: str, kind: str, place: str) -> None:
    assert place in found(text).get(kind, []), found(text)
    assert KINDS[kind] is PersonalCategory.SENSITIVE


@pytest.mark.requirement("005-13.2-3")
@pytest.mark.parametrize(
    "text",
    [
        "Diabetes is a chronic disease.",
        "The Green Party won four seats.",
        "Kurdish is spoken in four countries.",
        "Buddhist temples line the river.",
        "The union signed the agreement.",
        "Cancer research received a grant of four million.",
    ],
)
def test_the_matter_alone_is_nobodys(text: str) -> None:
    assert not {kind for kind in found(text) if KINDS[kind] is PersonalCategory.SENSITIVE}


@pytest.mark.requirement("005-13.2-4")
@pytest.mark.parametrize(("text", "kind", "place"), FINANCIAL)
def test_financial_data(text: str, kind: str, place: str) -> None:
    assert place in found(text).get(kind, []), found(text)
    assert KINDS[kind] is PersonalCategory.FINANCIAL


CLEAN = [
    "Revenue rose from $4.2 million to $5.1 million in 2024.",
    "The bridge opened on 12 March 1984 and is 1,240 metres long.",
    "Version 1.2.3.4 fixes section 4.5.6.7.",
    "Acme Corp of New Jersey sold 4111 1111 1111 1112 units.",
    "The University of Warsaw and the Bank of England met the European Commission.",
    "Order 20240312 was shipped in 3-5 days; page 12-34 lists 1990-1995.",
    "See https://www.example.com/guide and http://example.org/.",
    "The whisky is 12 years old.",
    "Invoice GB82 WEST 1234 5698 7654 33 has a wrong check.",
    "May will be warm. Will it rain? Mark the date. Grace matters. Hope remains.",
    "The San Francisco office, the Hague Convention and the Nobel Prize.",
    "It costs 1,234,567.89 dollars per 10 000 units at 12:30:45.",
    "127.0.0.1 and ::1 are loopback addresses.",
    "The ratio is 3.14159 and the code is A1B2C3.",
]


@pytest.mark.parametrize("text", CLEAN)
def test_what_is_no_personal_data(text: str) -> None:
    assert found(text) == {}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("Card 4111111111111111.", "Card 4111111111111112."),
        ("GB82WEST12345698765432", "GB82WEST12345698765433"),
        ("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb"),
        ("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5"),
        ("NHS number 943 476 5919.", "NHS number 943 476 5918."),
        ("RSSMRA85T10A562S", "RSSMRA85T10A562T"),
        ("131052-308T", "131052-308U"),
    ],
)  # fmt: skip
def test_a_wrong_check_digit_is_no_such_number(good: str, bad: str) -> None:
    kinds = set(found(good))
    assert kinds
    assert not kinds & set(found(bad))


def test_settings_leave_kinds_aside_and_set_the_least_score() -> None:
    text = "Mail jo@example.org or Ann Moonraker."
    only = find_personal_data(text, settings=PersonalSettings(aside=("person",)))
    assert [one.kind for one in only] == ["email"]
    sure = find_personal_data(text, settings=PersonalSettings(least_score=0.95))
    assert [one.kind for one in sure] == ["email"]
