"""What narrows down who is meant: date of birth, age, number of an employee, postcode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.dpe.pii.rules import Rule, any_of, beside
from crp_integrations.dpe.pii.spans import PersonalSpan, span

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
_BORN: Final = any_of(
    "born birth birthday birthdate date_of_birth dob d.o.b d.o.b. geboren geburtsdatum né née "
    "naissance nacido nacida nacimiento nato nata nascita birth_date"
)
_AGES: Final = (
    # Years old, aged, of age, turned, and a person who is a number.
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
_ZIP: Final = any_of(
    "zip zipcode zip_code postcode post_code postal_code postal plz postleitzahl code_postal cap"
)
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
RULES: Final[tuple[Rule, ...]] = (
    Rule("date_of_birth", "birth@1", _DATE, words=_BORN, told=0.90),
    Rule("postcode", "postcode@1", _POSTCODE, words=_ZIP, told=0.75, digits=2),
    Rule("postcode", "uk-postcode@1", _BRITISH, words=_ZIP, bare=0.70, told=0.85),
    Rule("postcode", "us-zip@1", _AMERICAN, words=_ZIP, bare=0.65, told=0.85, digits=5),
    Rule("employee_id", "employee@1", _EMPLOYEE, bare=0.80),
)
_ABOUT_THINGS: Final = any_of(
    "building house church company firm whisky wine tree trees rock rocks fossil bridge castle "
    "star galaxy planet car software code bug tradition law statute rule contract"
)


def ages(plain: str) -> Iterator[PersonalSpan]:
    """Ages in years, of persons as far as the words beside them tell."""
    for pattern in _AGES:
        for found in pattern.finditer(plain):
            start, end = found.span("n")
            if 0 < int(found["n"]) <= _OLDEST and not beside(plain, start, end, _ABOUT_THINGS):
                yield span("age", start, end, "age@1", 0.80)
