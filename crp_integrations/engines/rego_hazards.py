"""Rego sources that the interpreter evaluates differently from OPA, found by their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# Strings, also over several lines, and comments, which the checks below ignore. One pattern finds
# them in order, so that a `#` in a string or a quotation mark in a comment has no effect.
_STRING_OR_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|#[^\n]*')
# Functions whose result differs for equal arguments, or comes from outside.
_NOT_PURE: Final = re.compile(
    r"(?<![\w.])(time\s*\.\s*now_ns|rand\s*\.\s*intn|uuid\s*\.\s*rfc4122|opa\s*\.\s*runtime"
    r"|http\s*\.\s*send|net\s*\.\s*lookup_ip_addr)\b"
)
_EVERY: Final = re.compile(r"\bevery\b")
_IN: Final = re.compile(r"\bin\b")
_NOT: Final = re.compile(r"\bnot\b")
# A unification, and the literals that are harmless on either side of one.
_UNIFIES: Final = re.compile(r"(?<![:=!<>])=(?!=)")
_LITERAL: Final = re.compile(r'(?:true|false|null|""|-?\d[\w.+-]*)')
# Precedes the body of a rule, which is not a collection.
_OPENS_BODY: Final = re.compile(r"\b(?:if|else)\s*$")
# A variable: not the name of a field or of a called function.
_VARIABLE: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w*\()")
_BOUND: Final = r"\bsome\b[^\n;]*\b{0}\b|\b{0}\s*:="
# Names of rules and imports, which have a value everywhere.
_RULE: Final = re.compile(r"^(?:default[ \t]+)?([A-Za-z_]\w*)", re.MULTILINE)
_IMPORT: Final = re.compile(
    r"^import[ \t]+[\w.]*?(\w+)(?:[ \t]+as[ \t]+(\w+))?[ \t]*$", re.MULTILINE
)
_KNOWN: Final = frozenset({"input", "data", "true", "false", "null", "some", "in", "not"})
_CLOSES: Final = {"[": "]", "{": "}", "(": ")"}
# One side of a comparison: a number, a removed string, a path or call with at most one more level
# of brackets inside; or arithmetic of these.
_TERM: Final = r'(?:-?\d[\w.]*|""|[A-Za-z_][\w.]*(?:\[[^\[\]]*\]|\((?:[^()]|\([^()]*\))*\)|\.\w+)*)'
_SIDE: Final = rf"{_TERM}(?:[ \t]*[-+*/%][ \t]*{_TERM})*"
_ORDER: Final = re.compile(r"[<>]=?")
_MOST_BREAKS: Final = 6
_LONGEST_QUOTE: Final = 80
# A body within a body; brackets without a `|` may be an index.
_NESTED: Final = re.compile(r"\{[^{}]*\}|\[[^\[\]|]*\|[^\[\]]*\]")
_COMPARISON: Final = re.compile(rf"({_SIDE})\s*[<>]=?\s*({_SIDE})")
_NUMERIC: Final = re.compile(
    r"-?\d[\w.]*|(?:abs|bits\.\w+|ceil|count|floor|indexof|product|round|sum|to_number"
    r"|time\.parse\w*|time\.add_date)\((?:[^()]|\([^()]*\))*\)"
)


# Functions that order or add items; of two types, they order them differently than in OPA, or
# give `false`.
_OF_ITEMS: Final = re.compile(r"(?<![\w.])(sort|max|min|sum|product)\(")


class _Comprehension(NamedTuple):
    """Start and end offset of a comprehension, its head (the value it gives), and its body."""

    start: int
    end: int
    head: str
    body: str


def misread(source: str) -> str:
    """Why regopy would evaluate a source wrongly; empty if no known problem is found.

    Six problems are known. Values of two types are ordered differently than by OPA, also by `sort`,
    `max` and `min`. A `not` within an `every` counts as true. A comprehension within an `every` is
    evaluated before the `every`'s variable has a value, and so is one whose head has an outer
    variable that its body does not name. The result of a function that reads the time, a random
    number or the outside world would be cached. And a variable that gets its value by `=` within an
    `every`, from one outside, crashes the process.

    >>> misread("x := [label | some role in roles; granted[role]] if some label in labels")[:37]
    'a comprehension that gives `label` an'
    >>> misread("x := [role | some role in roles]")
    ''
    """
    plain = _STRING_OR_COMMENT.sub(_without_content, source)
    changing = _NOT_PURE.search(plain)
    if changing:
        return (
            f"`{''.join(changing[1].split())}`, whose result changes while decisions are cached; "
            "use an OPA server for such rules, or let a governed exception expire"
        )
    comprehensions = list(_comprehensions(plain))
    for start, end in _bodies(plain):
        if _NOT.search(plain, start, end):
            return (
                "a `not` in an `every`, which this interpreter always takes for true; "
                "count the items that fail instead"
            )
        if any(start <= comprehension.start < end for comprehension in comprehensions):
            return (
                "a comprehension in an `every`, which this interpreter evaluates before the "
                "`every` has a value; move it into a function that is called there"
            )
        if _unifies(plain[start + 1 : end]):
            return (
                "a `=` without a literal in an `every`, at which this interpreter may end "
                "the process; write `:=` for a new name and `==` for a comparison"
            )
    for start, end in _untyped(plain):
        return (
            f"the comparison `{_quoted(source, plain, start, end)}` of values whose types are not "
            "known, and this interpreter orders two types differently than OPA; add "
            "`is_number(…)` or `is_string(…)` for each side in the same body"
        )
    for function, start, end in _untyped_items(plain, comprehensions):
        return (
            f"`{function}({_quoted(source, plain, start, end)})`, whose items may have two types, "
            "of which this interpreter makes something else than OPA; give it a comprehension "
            f"with `is_number(…)`, such as `{function}([n | some n in items; is_number(n)])`"
        )
    for name in _unnamed(plain, comprehensions):
        return (
            f"a comprehension that gives `{name:.60}` and does not name it in its body, which this "
            f"interpreter evaluates too early; write `given := {name:.60}` there and give `given`"
        )
    return ""


def _quoted(source: str, plain: str, start: int, end: int) -> str:
    """A stretch of the text without strings as it stands in the source, in one line, shortened."""
    literals = [match[0] for match in _STRING_OR_COMMENT.finditer(source) if match[0][0] != "#"]
    later = iter(literals[plain.count('""', 0, start) :])
    text = " ".join(re.sub('""', lambda _: next(later), plain[start:end]).split())
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


def _untyped(plain: str) -> Iterator[tuple[int, int]]:
    r"""Start and end of each `<`, `<=`, `>` or `>=` of sides not known to be of one type.

    >>> list(_untyped("allow if input.age < 3"))
    [(9, 22)]
    >>> list(_untyped("allow if { is_number(input.age); input.age < 3 }"))
    []
    >>> list(_untyped("n := count(input.roles)\nallow if n > 3"))
    []
    """
    covered = -1
    for order in _ORDER.finditer(plain):
        if order.start() < covered:
            continue
        comparison = _comparison_at(plain, order.start())
        if comparison is None:
            end = plain.find("\n", order.end())
            yield plain.rfind("\n", 0, order.start()) + 1, len(plain) if end < 0 else end
            continue
        covered = comparison.start(2)
        sides = (comparison[1].strip(), comparison[2].strip())
        around = _statements_around(plain, order.start())
        for type_name in ("number", "string"):
            if all(_is_known(side, type_name, plain, around) for side in sides):
                break
        else:
            yield comparison.span()


def _untyped_items(
    plain: str, comprehensions: list[_Comprehension]
) -> Iterator[tuple[str, int, int]]:
    r"""Each function of items not known to be of one type, and the start and end of its argument.

    >>> plain = "a := max(input.n)\nb := max([n | some n in input.n; is_number(n)])"
    >>> list(_untyped_items(plain, list(_comprehensions(plain))))
    [('max', 9, 16)]
    """
    by_start = {made.start: made for made in comprehensions}
    for call in _OF_ITEMS.finditer(plain):
        end = _closing(plain, call.end() - 1)
        items = plain[call.end() : end].strip()
        places = [call.end()]
        if items.isidentifier():
            # What the name is assigned, or the items of a partial set of this name.
            assigned = re.finditer(rf"(?<![\w.]){items}[ \t]*:?=(?!=)[ \t]*", plain)
            places = [value.end() for value in assigned]
        sums = call[1] in ("sum", "product")
        known = bool(places) and any(
            all(_gives(by_start.get(place), type_name, plain) for place in places)
            for type_name in ("number", "string")[: 1 if sums else 2]
        )
        if not known and (sums or not _are_keys(items, plain)):
            yield call[1], call.end(), end


def _gives(made: _Comprehension | None, type_name: str, plain: str) -> bool:
    """Whether a value is a comprehension, and nothing else, of values of a type."""
    if made is None or plain[made.end + 1 :].lstrip(" \t")[:1] not in ("", "\n", ";", "}", ")"):
        return False
    return _is_known(made.head.strip(), type_name, plain, made.body)


def _are_keys(name: str, plain: str) -> bool:
    """Whether a partial set has the keys of one collection, which are all of one type."""
    heads = re.findall(rf"(?m)^{re.escape(name)}[ \t]+contains[ \t]+(\w+)", plain)
    keys = rf"(?m)^{re.escape(name)}[ \t]+contains[ \t]+(\w+)[ \t]+if[ \t]*{{\s*some[ \t]+\1[ \t]*,"
    return len(heads) == len(re.findall(keys, plain)) == 1


def _comparison_at(plain: str, place: int) -> re.Match[str] | None:
    """The comparison whose operator is at a place; None if a side is too complex to find."""
    start = place
    # A side such as `count([a | some a in b; c])` contains characters that usually end a statement.
    for _ in range(_MOST_BREAKS):
        start = max(plain.rfind(sign, 0, start) for sign in ";\n{|")
        for match in _COMPARISON.finditer(plain, start + 1):
            if match.end(1) <= place < match.start(2):
                balanced = match[1].count("(") == match[1].count(")")
                if balanced and (match.start() == 0 or plain[match.start() - 1] not in ")]}"):
                    return match
            if match.start() > place:
                break
        if start < 0:
            break
    return None


def _is_known(side: str, type_name: str, plain: str, around: str) -> bool:
    """Whether a side has a type by its form, by its assignments, or by a check in the body."""
    if type_name == "string" and side == '""':
        return True
    if type_name == "number" and _NUMERIC.fullmatch(side):
        return True
    if re.search(rf"(?<!not )\bis_{type_name}\(\s*{re.escape(side)}\s*\)", around):
        return True
    values = _assigned(side, plain, around)
    if values:
        return all(
            (value.strip() == '""' and type_name == "string")
            or (type_name == "number" and _NUMERIC.fullmatch(value.strip()))
            for value in values
        )
    terms = re.split(r"[ \t]*[-+*/%][ \t]*", side)
    # One numeric term suffices: arithmetic with anything else fails, which is an error.
    return (
        len(terms) > 1
        and type_name == "number"
        and any(_is_known(term, type_name, plain, around) for term in terms)
    )


def _assigned(side: str, plain: str, around: str) -> list[str]:
    """The values that a side is assigned: in the bodies around it, else by a rule of that name."""
    name, value = re.escape(side), r"[ \t]*:?=(?!=)[ \t]*([^;\n}]+)"
    # `some x`, `every x` and an argument `x` are another `x` than a rule's or another body's.
    if re.search(rf"\b(?:some|every)\b[^;\n{{]*\b{name}\b", plain) or re.search(
        rf"(?m)^\w+\([^)\n]*\b{name}\b", plain
    ):
        return []
    return re.findall(rf"(?<![\w.]){name}{value}", around) or re.findall(
        rf"(?m)^(?:default[ \t]+)?{name}{value}", plain
    )


def _statements_around(plain: str, place: int) -> str:
    """The statements of the bodies around a place, without those of bodies nested in them."""
    statements, start, depth = [], place, 0
    while start > 0:
        start -= 1
        if plain[start] in "]}":
            depth += 1
        elif plain[start] in "[{" and depth:
            depth -= 1
        elif plain[start] in "[{":
            body, inner = plain[start + 1 : _closing(plain, start)], ""
            while inner != body:
                inner, body = body, _NESTED.sub("", body)
            statements.append(body)
    return ";".join(statements)


def _unifies(body: str) -> bool:
    """Whether a statement of a body unifies two sides of which neither is a literal.

    >>> _unifies("given := table[label]; given == true; table[label] = true")
    False
    >>> _unifies("given = table[label]")
    True
    """
    for statement in re.split(r"[;\n{}]", body):
        sides = [side.strip() for side in _UNIFIES.split(statement)]
        if len(sides) > 1 and not any(map(_LITERAL.fullmatch, sides)):
            return True
    return False


def _without_content(match: re.Match[str]) -> str:
    return "" if match[0].startswith("#") else '""'


def _bodies(plain: str) -> Iterator[tuple[int, int]]:
    """Start and end offset of the body of each `every`."""
    for every in _EVERY.finditer(plain):
        inside = _IN.search(plain, every.end())
        if inside is None:
            continue
        place = inside.end()
        while place < len(plain) and plain[place].isspace():
            place += 1
        # The collection may be a literal in brackets; the brackets after it are the body.
        if plain[place : place + 1] in _CLOSES:
            place = _closing(plain, place) + 1
        while place < len(plain) and plain[place] != "{":
            place = _closing(plain, place) + 1 if plain[place] in _CLOSES else place + 1
        if place < len(plain):
            yield place, _closing(plain, place)


def _comprehensions(plain: str) -> Iterator[_Comprehension]:
    """Brackets that directly contain a `|`, except bodies of rules and of `every`."""
    bodies = {start for start, _ in _bodies(plain)}
    # Open brackets: the offset of each, and that of its first `|`.
    waiting: list[list[int]] = []
    for place, sign in enumerate(plain):
        if sign in _CLOSES:
            waiting.append([place, 0])
        elif sign == "|" and waiting:
            waiting[-1][1] = waiting[-1][1] or place
        elif sign in "]})" and waiting:
            start, bar = waiting.pop()
            opens_body = start in bodies or _OPENS_BODY.search(plain, max(0, start - 40), start)
            if bar and plain[start] != "(" and not opens_body:
                head, body = plain[start + 1 : bar], plain[bar + 1 : place]
                yield _Comprehension(start, place, head, body)


def _unnamed(plain: str, comprehensions: list[_Comprehension]) -> Iterator[str]:
    """Variables in a comprehension's head that have a value outside and are not in its body.

    A variable may get its value in many ways, also as an argument or in brackets; the name of a
    rule has a value everywhere, unless a variable of that name hides it.
    """
    known = _KNOWN | {match[1] for match in _RULE.finditer(plain)}
    known |= {match[2] or match[1] for match in _IMPORT.finditer(plain)}
    for comprehension in comprehensions:
        around = _inner(plain[: comprehension.start] + plain[comprehension.end :])
        for match in _VARIABLE.finditer(comprehension.head):
            name = match[0]
            if re.search(rf"\b{name}\b", comprehension.body) or re.search(
                _BOUND.format(name), comprehension.head
            ):
                continue
            if name not in known or re.search(_BOUND.format(name), around):
                yield name


def _inner(source: str) -> str:
    """A source without the names of its rules, which are not assignments of variables."""
    return re.sub(r"(?m)^(?:default\s+)?[A-Za-z_]\w*\s*:?=", "", source)


def _closing(plain: str, start: int) -> int:
    """Offset of the bracket that closes the one at `start`; the end of the text if none does."""
    waiting: list[str] = []
    for place in range(start, len(plain)):
        sign = plain[place]
        if sign in _CLOSES:
            waiting.append(_CLOSES[sign])
        elif sign == waiting[-1]:
            waiting.pop()
            if not waiting:
                return place
    return len(plain)
