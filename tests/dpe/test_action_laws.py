"""Laws of checked tool calls: every value is numbered once, and a value is itself in every form."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe.actions.prompt import fitted, material
from crp_integrations.dpe.actions.records import (
    ArgumentStatus,
    EvidencePassage,
    ProposedAction,
    leaves,
    parse_arguments,
)
from crp_integrations.dpe.actions.rules import decide, rule_of
from crp_integrations.dpe.actions.values import place_of
from crp_integrations.dpe.actions.verdict import ActionCheck
from crp_integrations.dpe.judge.inquiry import JudgeReply, JudgeTerms

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


def action(arguments: dict[str, Any], *texts: str) -> ProposedAction:
    passages = tuple(
        EvidencePassage(f"u{number}", "user", f"user#{number}", text)
        for number, text in enumerate(texts, 1)
    )
    return ProposedAction("act", arguments, "", {"name": "act", "parameters": {}}, passages)


def resolved(value: Any, path: str) -> Any:
    for part in path.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def scalars(value: Any) -> int:
    if isinstance(value, dict) and value:
        return sum(map(scalars, value.values()))
    return sum(map(scalars, value)) if isinstance(value, list) and value else 1


@given(OBJECTS)
def test_every_value_is_numbered_once_with_a_path_that_leads_to_it(
    arguments: dict[str, Any],
) -> None:
    named = list(leaves(arguments))
    assert len({path for path, _ in named}) == len(named) == scalars(arguments)
    for path, value in named:
        assert resolved(arguments, path) == value
    prompted = json.loads(material(action(arguments), {})[1])["arguments"]
    assert [row[0] for row in prompted] == list(range(1, len(action(arguments).leaves) + 1))
    report = ActionCheck(action(arguments), {}, action(arguments)).report()
    assert [argument.path for argument in report.arguments] == [row[1] for row in prompted]


@given(st.text() | OBJECTS.map(json.dumps))
def test_what_a_model_writes_is_an_object_or_none(written: str) -> None:
    value = parse_arguments(written)
    assert value is None or json.loads(json.dumps(value, allow_nan=False)) == value


@given(OBJECTS, st.text(), st.text())
@settings(max_examples=60)
def test_any_reply_is_a_report_and_only_a_whole_one_lets_run(
    arguments: dict[str, Any], text: str, reply: str
) -> None:
    proposed = action(arguments, text)
    report = ActionCheck(proposed, None, proposed, JudgeTerms("m")).report(JudgeReply(text=reply))
    assert report.may_run is None
    assert report.error_text().isprintable()
    assert type(report).model_validate_json(report.model_dump_json()) == report


@given(st.lists(st.text(min_size=1, max_size=400), max_size=8), st.integers(2_000, 6_000))
@settings(max_examples=40)
def test_the_users_words_are_always_shown(texts: list[str], window: int) -> None:
    proposed = action({"a": 1}, *texts)
    assert fitted(proposed, {}, JudgeTerms("m", window=window)).passages == proposed.passages


# --- forms of a value ------------------------------------------------------------------------

DAYS = st.dates(date(1950, 1, 1), date(2099, 12, 31))
MONTHS = "January February March April May June July August September October November December"


def forms_of_day(day: date) -> list[str]:
    month = MONTHS.split()[day.month - 1]
    return [
        day.isoformat(),
        f"{day:%d.%m.%Y}",
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
    ]


def forms_of_time(moment: time) -> list[str]:
    half = f"{(moment.hour - 1) % 12 + 1}:{moment.minute:02} {'ap'[moment.hour > 11]}m"
    return [f"{moment:%H:%M}", half]


def forms_of_amount(cents: int) -> list[str]:
    plain = f"{cents // 100}.{cents % 100:02}"
    english = f"{cents // 100:,}.{cents % 100:02}"
    german = english.translate(str.maketrans(",.", ".,"))
    return [f"{plain} EUR", f"{english} EUR", f"{german} EUR"]


def forms_of_iban(digits: str) -> list[str]:
    iban = f"DE{digits}"
    grouped = " ".join(iban[place : place + 4] for place in range(0, len(iban), 4))
    return [iban, grouped, iban.lower(), grouped.replace(" ", "-")]


def forms_of_phone(digits: str) -> list[str]:
    return [f"+49{digits}", f"+49 {digits[:3]} {digits[3:]}", f"0049{digits}", f"+49-{digits}"]


def forms_of_version(parts: tuple[int, int, int]) -> list[str]:
    version = ".".join(map(str, parts))
    return [version, f"v{version}", f"V{version}"]


def forms_of_hash(digest: str) -> list[str]:
    return [digest, digest.upper(), f"sha256:{digest}"]


FORMS = [
    (DAYS, forms_of_day),
    (st.times().map(lambda value: value.replace(second=0, microsecond=0)), forms_of_time),
    (st.integers(100, 10**9), forms_of_amount),
    (st.text("0123456789", min_size=20, max_size=20), forms_of_iban),
    (st.text("123456789", min_size=9, max_size=10), forms_of_phone),
    (st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(0, 40)), forms_of_version),
    (st.text("0123456789abcdef", min_size=40, max_size=40).map(lambda t: f"a{t}9"), forms_of_hash),
]
NAMES = [forms.__name__.removeprefix("forms_of_") for _, forms in FORMS]


@pytest.mark.parametrize(("values", "forms"), FORMS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=60)
def test_a_value_stands_in_each_of_its_forms_both_ways_and_no_other_does(
    values: Any, forms: Any, data: st.DataObject
) -> None:
    value, other = data.draw(values), data.draw(values)
    first, second = (
        data.draw(st.sampled_from(forms(value))),
        data.draw(st.sampled_from(forms(value))),
    )
    assert place_of(first, f"It is {second}, as agreed.")
    assert place_of(second, f"It is {first}, as agreed.")
    if other != value:
        strange = data.draw(st.sampled_from(forms(other)))
        assert not (place_of(first, f"It is {strange}, as agreed.") and _differ(value, other))


def _differ(value: Any, other: Any) -> bool:
    """Whether two values have no form in common; 3 April and 4 March may be written alike."""
    if isinstance(value, date):
        return {value.month, value.day} != {other.month, other.day} or value.year != other.year
    return bool(value != other)


@given(st.integers(10**9, 4 * 10**9), st.integers(-12, 12))
def test_a_moment_stands_in_every_zone(seconds: int, hours: int) -> None:
    utc = datetime.fromtimestamp(seconds, UTC)
    local = utc.astimezone(timezone(timedelta(hours=hours)))
    assert place_of(f"{utc:%Y-%m-%dT%H:%M:%SZ}", f"at {local.isoformat()} sharp")
    later = local + timedelta(minutes=1)
    assert not place_of(f"{utc:%Y-%m-%dT%H:%M:%SZ}", f"at {later.isoformat()} sharp")


@given(st.integers(1, 10**9))
def test_a_number_of_json_stands_in_money_and_in_its_minor_unit_if_wanted(cents: int) -> None:
    for form in forms_of_amount(cents):
        assert place_of(float(Decimal(cents) / 100), f"pay {form} now")
        assert place_of(cents, f"pay {form} now", minor=True)
        assert place_of(cents, f"pay {form} now") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("+353855550147", "call 085 555 0147 after four"),
        ("(503) 555-0172", "call +1 503 555 0172"),
        ("9f31cad", "commit 9f31cad27be8e1a90f55d0c3b1a7c64e2f9d8a10"),
        ("2026-05-20T06:40", "on 20 May 2026 at 6:40 am"),
        ("812", "PR #812"),
        ("2", "two adults"),
        ("14:30:00", "at 14:30"),
        ("shop.de", "see https://shop.de, it is open"),
        ("2026", "on 20 May 2026 14:30"),
        (40, "pay 40 euros"),
        *(
            (40, text)
            for text in ("- 40 apples", "Rent - 40 EUR", "40 km", "40 Milch", "a 40 m hose")
        ),
        *(
            (40, text)
            for text in (
                *("40 Mill Road", "40 MD", "Pay this — $40 — to Anna", "Deposit – €40"),
                *("- €40 rent\n- €50 food", "Pay these:\n- €50 food\n    - €40 rent"),
                *("€10-€40", "€10 - €40", "(€30–€40)", "€40-€50"),
            )
        ),
        ("2024-02-03", "from 2024-02-01 - 2024-02-03"),
    ],
)
def test_a_short_form_stands(value: object, text: str) -> None:
    assert place_of(value, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("+353855550147", "call 085 555 0174"),
        ("9f3c1ad", "commit 9f31cad27be8e1a90f55d0c3b1a7c64e2f9d8a10"),
        ("9f31cad27be8", "commit 9f31cad"),
        ("370400440713", "DE63 3704 0044 0713 9482 20"),
        ("1.2", "v1.2.3"),
        ("100 EUR", "100 USD"),
        ("00123", "123"),
        ("2026-05-20T06:40", "on 20 May 2026. The next day it is at 6:40 am"),
        ("delete … production", "delete the staging copy, never production"),
        ("pay...DE99", "pay to DE99"),
        ("DE99…51", "DE99 or 51"),
        ("DE0212030000000020205", "DE02120300000000202051"),
        ("4111111", "41111112345678901234"),
        ("anna@example.org", "anna@example.org.evil.com"),
        ("anna@example.org", "joe.anna@example.org"),
        ("shop.de", "https://shop.de.evil.ru/"),
        ("1.2.3", "1.2.3-rc.1"),
        ("ORD-12345", "ORD-12345-6"),
        ("prod", "non-prod"),
        ("/data", "delete /data/tmp"),
        ("14:30:15", "at 14:30"),
        ("14:30", "at 14:30:15"),
        ("2026-03-05T14:30:59", "on 2026-03-05 at 14:30"),
        *(
            (kind("40"), text)
            for kind in (int, str)
            for text in (
                "pay 40 000 €",
                "40 thousand euros",
                "40,5",
                "minus 40",
                "40.000 Euro",
            )
        ),
        *(
            (value, f"The sum is {text} in all.")
            for value in (40, "40", "€40", "40 EUR", "40.00")
            for text in (
                *(
                    f"{amount}{gap}{word}"
                    for amount in ("40", "€40", "40.00")
                    for gap in ("", " ", "-")
                    for word in ("tausend", "Tsd.", "Mio.", "Mrd", "mille", "millions", "k", "K")
                ),
                *("40 millones", "40 mil euros", "40 milliards d'euros", "40 Tausend EUR", "40 M"),
                *("40 TEUR", "40k€", "40 M€", "€40 million", "€ 40 thousand", "40 Dutzend"),
                *(
                    f"{sign}{money}"
                    for sign in ("-", "- ", "−", "− ", "minus ", "moins ")
                    for money in ("€40", "€ 40", "EUR 40", "€40.00")
                ),
                *("-40 EUR", "− 40 EUR", "–40 EUR", "menos 40 EUR", "| - 40 EUR |", "40.00- EUR"),
                *(
                    "40 Mill. EUR",
                    "40 mill €",
                    "40 Md d'euros",
                    "02 -€40",
                    "rent\n-€40",
                    "rent\n− €40",
                ),
            )
        ),
        (2, "2 million"),
        (1203, "DE02 1203 0000 0000 2020 51"),
    ],
)
def test_a_part_or_another_value_does_not_stand(value: object, text: str) -> None:
    assert place_of(value, text) is None


@pytest.mark.parametrize("text", ["42.50 kg", "42.50 m", "42.50%", "42.50 Uhr"])
def test_only_money_has_a_minor_unit(text: str) -> None:
    assert place_of(4250, text, minor=True) is None
    assert place_of(4250, "42.50 EUR", minor=True)


def work(value: object, text: str) -> int:
    """How many calls it takes to find out that a value does not stand in a text."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert place_of(value, text, minor=True) is None
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("value", "piece"),
    [
        (40, "12 345 EUR, "),
        ("2024-02-03T10:00", "2024-02-03, maybe or maybe not, at 10:00, maybe or maybe not, "),
    ],
)
def test_four_times_the_text_is_about_four_times_the_work(value: object, piece: str) -> None:
    short, long = (work(value, piece * times) for times in (400, 1_600))
    assert long < 5 * short


def test_a_long_value_is_compared_by_its_words_alone() -> None:
    assert place_of("1-" * 10_000 + "2", "1 " * 10_000) is None
    assert place_of("a b " * 100, "it is " + "A  B " * 100)


@given(st.sampled_from(["a.b", "a[].b", "a[1].b", "a"]), st.integers(0, 3))
def test_a_rule_covers_its_path_and_what_is_below_it(path: str, place: int) -> None:
    arguments = {"a": [{"b": f"v{n}", "c": 1} for n in range(place + 1)]}
    decided = list(decide(action(arguments), {path: "free"}))
    free = {argument.path for argument in decided if argument.status is ArgumentStatus.FREE}
    wanted = {
        "a.b": set[str](),
        "a[].b": {f"/a/{n}/b" for n in range(place + 1)},
        "a[1].b": {"/a/1/b"} if place else set(),
        "a": {argument.path for argument in decided},
    }
    assert free == wanted[path]
    assert rule_of("/a/0/b", {"a": "free", "a[].b": "exact"}) == "exact"
