"""The same words and values in another form."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tests.bench.distortions.amounts import MONTHS, WORDS
from tests.bench.distortions.case import Edit, Pool, Sentence, whole

_MONTH = "|".join(MONTHS)
_DAY_FIRST = re.compile(rf"\b(\d{{1,2}}) ({_MONTH}) (\d{{4}})\b")
_MONTH_FIRST = re.compile(rf"\b({_MONTH}) (\d{{1,2}}), (\d{{4}})\b")
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,]|\.\d)")
_PLAIN = re.compile(r"(?<![\w.,$€£-])(?<![A-Z] )(?!1\d{3}\b|20\d\d\b)\d{4,7}(?= [a-z])")
_WORD = re.compile(rf"\b(?:{'|'.join(WORDS[2:13])})(?= [a-z]+s\b)")
_DIGIT = re.compile(r"(?<![\w.,$€£%-] )(?<![\w.,$€£-])(?:[2-9]|1[0-2])(?= [a-z]{3,}s\b)")
_UNITS = {
    "km": "kilometres", "kilometres": "km", "kilometers": "km", "kg": "kilograms",
    "mm": "millimetres",
    "cm": "centimetres", "mph": "miles per hour", "feet": "ft", "ft": "feet", "GB": "gigabytes",
    "milliseconds": "ms", "kilograms": "kg", "square miles": "sq mi",
}  # fmt: skip
_UNIT = re.compile(rf"(?<=\d )(?:{'|'.join(map(re.escape, _UNITS))})(?=[ ,.;)])")
_MILLIONS = re.compile(r"\$(\d+)(?:\.(\d{1,2}))? million\b")


def _values(text: str) -> list[tuple[str, str]]:
    """The text with one sort of value written otherwise, by rule."""
    found = [
        ("date", _DAY_FIRST.sub(r"\2 \1, \3", text)),
        ("date", _MONTH_FIRST.sub(r"\2 \1 \3", text)),
        ("iso_date", _MONTH_FIRST.sub(lambda m: _iso(m.group(2), m.group(1), m.group(3)), text)),
        ("iso_date", _DAY_FIRST.sub(lambda m: _iso(m.group(1), m.group(2), m.group(3)), text)),
        ("thousands", _GROUPED.sub(lambda m: m.group().replace(",", ""), text)),
        ("thousands", _PLAIN.sub(lambda m: f"{int(m.group()):,}", text)),
        ("number_word", _WORD.sub(lambda m: str(WORDS.index(m.group())), text)),
        ("number_word", _DIGIT.sub(lambda m: WORDS[int(m.group())], text)),
        ("percent", re.sub(r"(?<=\d)%", " percent", text)),
        ("percent", re.sub(r"(?<=\d) percent\b", "%", text)),
        ("unit", _UNIT.sub(lambda m: _UNITS[m.group()], text)),
        ("millions", _MILLIONS.sub(_millions, text)),
    ]
    return [(rule, new) for rule, new in found if new != text]


def _iso(day: str, month: str, year: str) -> str:
    return f"{year}-{MONTHS.index(month) + 1:02}-{int(day):02}"


def _millions(match: re.Match[str]) -> str:
    return f"${int(match.group(1)) * 1_000_000 + int((match.group(2) or '').ljust(6, '0')):,}"


def _bold(text: str) -> str:
    words = text[:-1].split()
    middle = len(words) // 2
    return " ".join((*words[:middle], f"**{words[middle]}**", *words[middle + 1 :])) + text[-1]


def _both(sentence: Sentence) -> list[str]:
    return [sentence.text, sentence.after] if sentence.after else [sentence.text]


_LAYOUT: tuple[tuple[str, Callable[[Sentence], str]], ...] = (
    ("bullets", lambda one: "\n".join(f"- {text}" for text in _both(one))),
    ("numbered", lambda one: "\n".join(f"{n}. {text}" for n, text in enumerate(_both(one), 1))),
    ("table", lambda one: "| No. | Statement |\n| --- | --- |\n" + "\n".join(
        f"| {n} | {text} |" for n, text in enumerate(_both(one), 1))),
    ("quote", lambda one: f"> {one.text}"),
    ("bold", lambda one: _bold(one.text)),
    ("italic", lambda one: f"*{one.text}*"),
    ("upper", lambda one: one.text.upper()),
    ("lower", lambda one: one.text.lower()),
    ("spaces", lambda one: re.sub(r" ", "  ", one.text, count=5)),
    ("lines", lambda one: _wrapped(one.text)),
    ("no_stop", lambda one: one.text[:-1]),
    ("dashes", lambda one: one.text.replace("–", "-").replace("—", "-")),
    ("quotes", lambda one: re.sub(r'"([^"]*)"', r"“\1”", one.text)),
    ("apostrophe", lambda one: one.text.replace("'", "’")),
    ("two", lambda one: "\n\n".join(_both(one))),
)  # fmt: skip


def _wrapped(text: str) -> str:
    words = text.split(" ")
    return " ".join(words[: len(words) // 2]) + "\n" + " ".join(words[len(words) // 2 :])


def reformatted(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The sentence laid out otherwise, or with its values written otherwise."""
    values = _values(sentence.text)
    if values and draw.random() < 0.8:
        rule, text = draw.choice(values)
        return whole(text, rule)
    rule, layout = draw.choice(_LAYOUT)
    text = layout(sentence)
    return whole(text, rule) if text != sentence.text else None


def verbatim(sentence: Sentence, draw: Random, pool: Pool) -> Edit | None:
    """The sentence as it stands, at times with the next one."""
    if sentence.after and draw.random() < 0.25:
        return whole(f"{sentence.text} {sentence.after}", "two")
    return whole(sentence.text, "one")
