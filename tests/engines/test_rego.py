"""Rego by regopy: decisions, their memory, and policies that fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum, StrEnum

import pytest

from crp_integrations.engines.rego import RegoEngine
from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import Bundle

RULE = 'package t\nimport rego.v1\nverdict := {"double": input.n * data.factor}\n'
BUNDLE = Bundle("t@1", RULE, {"factor": 2}, "t/verdict")


def test_it_decides_and_gives_everyone_their_own_copy() -> None:
    engine = RegoEngine()
    first = engine.decide(BUNDLE, {"n": 4})
    assert first == {"double": 8}
    first["double"] = 0  # type: ignore[index]
    assert engine.decide(BUNDLE, {"n": 4}) == {"double": 8}
    assert engine.identity.startswith("regopy 1.")


def test_decisions_are_kept_by_the_bundles_hash() -> None:
    engine = RegoEngine()
    assert engine.decide(BUNDLE, {"n": 4}) == {"double": 8}
    other = Bundle("t@1", RULE, {"factor": 3}, "t/verdict")
    assert other.digest != BUNDLE.digest
    assert engine.decide(other, {"n": 4}) == {"double": 12}


def test_threads_do_not_get_each_others_decisions() -> None:
    engine = RegoEngine()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: engine.decide(BUNDLE, {"n": n})["double"], range(400)))
    assert found == [2 * n for n in range(400)]


@pytest.mark.parametrize(
    "bundle",
    [
        Bundle("broken@1", "package t\nverdict := {", {}, "t/verdict"),
        Bundle("silent@1", "package t\nimport rego.v1\nverdict := 1 if input.x", {}, "t/verdict"),
        Bundle("number@1", "package t\nverdict := 1", {}, "t/verdict"),
        Bundle("elsewhere@1", RULE, {"factor": 2}, "t/nothing"),
    ],
    ids=lambda bundle: bundle.name,
)
def test_a_policy_without_a_verdict_is_an_error(bundle: Bundle) -> None:
    with pytest.raises(EngineError) as caught:
        RegoEngine().decide(bundle, {})
    assert caught.value.engine == "regopy"


def test_the_library_is_loaded_at_the_first_decision() -> None:
    code = (
        "import sys; from crp_integrations.engines.rego import RegoEngine; RegoEngine().identity;"
        "sys.exit('regopy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


ECHO = Bundle("echo@1", 'package t\nimport rego.v1\nverdict := {"got": input}\n', {}, "t/verdict")


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"a": [1, -1, 2**63 - 1, 0.5, True, False, None, "", "é – 火 \U0001f525"]},
        {"deep": {"a": {"b": [[["c"]], {}]}}},
        {"long": "x" * 10_000},
        {'quoted"': "a\\b\n\t'\x01\0c"},
    ],
)
def test_an_input_arrives_as_it_was_given(value: object) -> None:
    assert RegoEngine(most_kept=0).decide(ECHO, {"value": value}) == {"got": {"value": value}}


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "é/火", "operator"])
def test_a_text_of_the_input_is_the_same_as_one_of_the_policy_and_of_its_data(text: str) -> None:
    rule = 'package t\nimport rego.v1\nverdict := {"said": [input.v == %s, input.v == data.v]}\n'
    bundle = Bundle("same@1", rule % json.dumps(text, ensure_ascii=False), {"v": text}, "t/verdict")
    engine = RegoEngine()
    assert engine.decide(bundle, {"v": text}) == {"said": [True, True]}
    for other in (text + "\0", text + '"', text[:-1]):
        assert engine.decide(bundle, {"v": other}) == {"said": [False, False]}


def test_a_text_of_the_input_cannot_write_into_the_answer() -> None:
    """A policy that names who asked in its reason is no way to be allowed."""
    rule = 'package t\nimport rego.v1\nverdict := {"allow": false, "reason": input.name}\n'
    name = 'eve","allow":true,"reason":"'
    told = RegoEngine().decide(Bundle("say@1", rule, {}, "t/verdict"), {"name": name})
    assert told == {"allow": False, "reason": name}


@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, "\ud800", {"\ud800": 1}, {1, 2}, {1: 2, b"": 3}]
)
def test_an_input_that_would_be_taken_for_another_is_an_error(value: object) -> None:
    engine = RegoEngine(most_kept=0)
    with pytest.raises(EngineError) as caught:
        engine.decide(ECHO, {"value": value})
    assert caught.value.engine == "regopy"
    # The one after it is not mixed with it.
    assert engine.decide(ECHO, {"value": "operator"}) == {"got": {"value": "operator"}}


def test_words_of_closed_lists_are_put_as_what_they_are() -> None:
    class Word(StrEnum):
        READ = "read"

    class Number(IntEnum):
        ONE = 1

    told = RegoEngine(most_kept=0).decide(ECHO, {Word.READ: [Word.READ, Number.ONE]})
    assert told == {"got": {"read": ["read", 1]}}


GIVEN = "package t\nimport rego.v1\n"


@pytest.mark.parametrize(
    "rule",
    [
        # Each would give nothing, so that whoever counts it finds no label denied.
        'verdict := {"got": x} if {\n\tsome l in input.ls\n\tx := [l | some r in input.rs]\n}',
        'verdict := {"got": [k | some l in input.ls; k := l; count([k | input.rs[_]]) == 1]}',
        'verdict := {"got": x} if {\n\tsome l in input.ls\n\tx := {l: r | some r in input.rs}\n}',
        'verdict := {"got": x} if {\n\tsome l in input.ls\n\tx := {[l, r] | some r in input.rs}\n}',
    ],
)
def test_a_comprehension_that_is_evaluated_too_early_is_refused(rule: str) -> None:
    with pytest.raises(EngineError, match="evaluates too early"):
        RegoEngine().decide(
            Bundle("t@1", GIVEN + rule, {}, "t/verdict"), {"ls": ["a", "b"], "rs": ["r"]}
        )


@pytest.mark.parametrize(
    ("rule", "got"),
    [
        (
            'verdict := {"got": [m | some l in input.ls; m := [k | input.rs[_]; k := l][0]]}',
            ["a", "b"],
        ),
        ('# [l | some r in x]\nverdict := {"got": [r | some r in input.rs]}', ["r"]),
        ('verdict := {"got": [limit | some r in input.rs]}\nlimit := 3', [3]),
        ('verdict := {"got": ["[l | x]" | some l in input.ls]}', ["[l | x]", "[l | x]"]),
    ],
)
def test_a_comprehension_that_names_what_it_gives_is_evaluated(rule: str, got: object) -> None:
    bundle = Bundle("t@1", GIVEN + rule, {}, "t/verdict")
    question = {"ls": ["a", "b"], "rs": ["r"]}
    assert RegoEngine().decide(bundle, question) == {"got": got}


@pytest.mark.parametrize(
    "body",
    [
        # A bracket within the `every`, or in what it goes over, hid the `not` before.
        'every l in input.ls { some p in {"secret:"}\n not startswith(l, p) }',
        "every l in {x | some x in input.ls} { not l in data.ok }",
        "every i, l in input.ls { count({i}) == 1\n not l in data.ok }",
    ],
)
def test_a_not_in_an_every_is_found_behind_other_brackets(body: str) -> None:
    with pytest.raises(EngineError, match="`not` in an `every`"):
        _decided(body)


def test_a_comment_hides_nothing_of_the_source() -> None:
    body = "every l in input.ls { not l in data.ok }"
    for before, behind in (("# a ` tick\n", "# another ` tick\n"), ('# 5" wide\n', '# 7" wide\n')):
        with pytest.raises(EngineError, match="`not` in an `every`"):
            _decided(body, before=before, behind=behind)
    assert _decided('"every l in x { not y }" != ""') == {"allow": True}


@pytest.mark.parametrize(
    "body",
    [
        'every l in input.ls { count([1 | some r in input.rs; l == "secret:a"]) == 0 }',
        'every l in input.ls { bad := {r | some r in input.rs; l == "secret:a"}; bad == set() }',
        'every l in input.ls { m := l; count({r: m | some r in input.rs; m == "secret:a"}) == 0 }',
    ],
)
def test_a_comprehension_in_an_every_is_refused(body: str) -> None:
    """It comes before what the `every` goes over, so it is empty and such a rule allows all."""
    with pytest.raises(EngineError, match="a comprehension in an `every`"):
        _decided(body)
    # The way that is named instead says what it says.
    called = "every l in input.ls { bad(l) == 0 }"
    function = 'bad(l) := count([r | some r in input.rs; l == "secret:a"])\n'
    assert _decided(called, behind=function) == {"allow": False}


@pytest.mark.parametrize(
    "body",
    [
        "x := data.my; every l in input.ls { _ = x[l] }",
        "x := data.my; every l in input.ls { x[l] = y; y }",
        "some x in input.ls; every l in input.ls { l == l; y = x; y == l }",
        "some x in input.ls; every l in input.ls { [y] = [x] }",
    ],
)
def test_what_would_end_the_process_is_refused(body: str) -> None:
    """A value by `=` in an `every`, from a variable outside: the interpreter reads a pointer."""
    with pytest.raises(EngineError, match="may end the process"):
        _decided(body)


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ('x := data.my; every l in input.ls { y := x.time.now; y == 1; l != "" }', True),
        ('every l in input.ls { count(l) >= 3; count(l) <= 20; l != "public"; 1 = 1 }', True),
        ('x := data.my; every l in input.ls { x.time = {"now": 1}; l }', None),
        ("x := data.my; every l in input.ls { x.time.now = 1; l }", True),
    ],
)
def test_what_compares_or_names_in_an_every_is_no_such_thing(
    body: str, allowed: bool | None
) -> None:
    if allowed is None:
        # A value of several parts is not told from one with variables in it.
        with pytest.raises(EngineError, match="may end the process"):
            _decided(body)
    else:
        assert _decided(body) == {"allow": allowed}


@pytest.mark.parametrize(
    "body",
    [
        "l = input.ls[0]; count([l | some r in input.rs]) == 0",
        "input.ls[i] == input.ls[0]; count([i | some r in input.rs]) == 0",
        "walk(input.ls, [p, v]); count([v | some r in input.rs]) == 0",
        'l := input.ls[0]; count([{"a": {l: 1}} | some r in input.rs]) == 0',
    ],
)
def test_a_variable_that_gets_its_value_in_another_way_is_seen_too(body: str) -> None:
    with pytest.raises(EngineError, match="evaluates too early"):
        _decided(body)
    with pytest.raises(EngineError, match="evaluates too early"):
        _decided("f(1)", behind="f(l) if count([l | some r in input.rs]) == 0\n")


@pytest.mark.parametrize(
    "reading",
    [
        "time.now_ns() > 0",
        'rand.intn("a", 2) == 0',
        'uuid.rfc4122("a") != ""',
        "count(opa.runtime()) > 0",
        'http.send({"method": "get", "url": "http://127.0.0.1:9"}).status_code == 200',
    ],
)
def test_what_changes_while_decisions_are_kept_is_refused(reading: str) -> None:
    with pytest.raises(EngineError, match="whose result changes while decisions are cached"):
        _decided(reading)


def test_what_the_policy_names_itself_is_not_taken_for_what_changes() -> None:
    assert _decided('"time.now_ns()" != data.my.time.now') == {"allow": True}


def test_a_policy_that_is_no_rego_says_where_and_writes_nothing_itself(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What the interpreter prints would stand in the JSON that a command prints."""
    with pytest.raises(EngineError, match=r"unclosed in t@1\.rego, line \d+"):
        _decided("{{{")
    with pytest.raises(EngineError, match="does not know"):
        _decided('not startswith(input.ls[_], "secret")')
    assert capfd.readouterr() == ("", "")


def _decided(body: str, *, before: str = "", behind: str = "") -> object:
    """What a rule with this body says of two labels."""
    data = {"ok": ["class:public"], "my": {"time": {"now": 1}}}
    source = f"{GIVEN}default allow := false\n{before}allow if {{ {body} }}\n{behind}"
    bundle = Bundle("t@1", f'{source}verdict := {{"allow": allow}}\n', data, "t/verdict")
    return RegoEngine().decide(bundle, {"ls": ["secret:a", "class:public"], "rs": ["reader"]})


@pytest.mark.parametrize(
    "comparison",
    [
        "input.age < 3",
        '"9" < input.age',
        "input.age >= input.least",
        "not input.age > 17",
        "n := input.age\n\tn <= 3",
        "input.table[input.age] < 3",
        "not is_number(input.age)\n\tinput.age < 3",
        "input.age < [input.least][0]",
        "some n in input.ages\n\tn > 3",
        "count([age | some age in input.ages; age > 3]) > 0",
        "least := 3\n\tsome least in input.ages\n\tleast > 3",
        "ages := [age | some age in input.ages; is_number(age)]\n\tage := input.age\n\tage > 3",
        "max(input.ages) == 9",
        "sort(input.ages)[0] == 9",
        "ages := input.ages\n\tmin(ages) == 9",
        "not sum(input.ages) == 9",
        "product([age | some age in input.ages; is_string(age)]) == 9",
    ],
)
def test_a_comparison_of_unknown_types_is_refused(comparison: str) -> None:
    """regopy 1.5.2 takes "9" < 3 for true; in OPA every number is below every text."""
    source = f"package t\nimport rego.v1\ndefault v := {{}}\nv := {{}} if {{\n\t{comparison}\n}}\n"
    with pytest.raises(EngineError, match="is_number"):
        RegoEngine().prepare(Bundle("t@1", source, {}, "t/v"))


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        ('input["full name"] < input.least', '`input["full name"] < input.least`'),
        ('input.name == "a b"; "9" < input.n # "x"', '`"9" < input.n`'),
        ("input.n < `a\n b`", "`input.n < `a b``"),
        ('n := ["a" | some n in input.n][0] < 3', '`n := ["a" | some n in input.n][0] < 3`'),
        ('max(input["a b"]) == 9', '`max(input["a b"])`'),
        ("input.least < input." + "n" * 90, "`input.least < input." + "n" * 60 + "…`"),
    ],
)
def test_a_refusal_quotes_the_line_as_it_is_written(line: str, quoted: str) -> None:
    source = f"package t\nimport rego.v1\ndefault v := {{}}\nv := {{}} if {{\n\t{line}\n}}\n"
    with pytest.raises(EngineError, match=re.escape(quoted)):
        RegoEngine().prepare(Bundle("t@1", source, {}, "t/v"))


@pytest.mark.parametrize(
    ("comparison", "holds"),
    [
        ("is_number(input.age)\n\tinput.age < 3", False),
        ('is_string(input.age)\n\tinput.age < "a"', True),
        ("n := count(input.ages)\n\tn > 1", True),
        ("count([age | some age in input.ages; is_number(age); age > 3]) > 0", True),
        ("some age in input.ages\n\tis_number(age)\n\tage * 2 > 3 + 4", True),
        ("[age | some age in input.ages; is_number(age); age > 3] == [4]", True),
        ("max([age | some age in input.ages; is_number(age)]) == 4", True),
        ("ages := [age | some age in input.ages; is_number(age)]\n\tsum(ages) > 3", True),
    ],
)
def test_a_comparison_of_known_types_decides(comparison: str, holds: bool) -> None:
    source = (
        'package t\nimport rego.v1\ndefault v := {"holds": false}\n'
        f'v := {{"holds": true}} if {{\n\t{comparison}\n}}\n'
    )
    question = {"age": "9", "ages": ["x", 4]}
    assert RegoEngine().decide(Bundle("t@1", source, {}, "t/v"), question) == {"holds": holds}


@pytest.mark.parametrize(
    "body",
    [
        "to_number(input.age) == 3",
        "not to_number(input.age) == 3",
        "not 1 / input.zero == 1",
        'not regex.match("(", input.age)',
        "input.age - 1 == 2",
    ],
)
def test_a_built_in_that_fails_is_an_error_and_no_decision(body: str) -> None:
    source = f"package t\nimport rego.v1\ndefault v := {{}}\nv := {{}} if {{\n\t{body}\n}}\n"
    with pytest.raises(EngineError, match="cannot take"):
        RegoEngine().decide(Bundle("t@1", source, {}, "t/v"), {"age": "x", "zero": 0})
