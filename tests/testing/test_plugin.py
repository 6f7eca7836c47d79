"""The plug-in in suites of its users: goldens are written, kept, and compared."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from crp_integrations.messages import Message, ToolCall
from crp_integrations.receipt.records import Receipt, read
from tests.receipt.page.samples import FACTS, handbook
from tests.receipt.relayed import QUESTION, asked
from tests.requirements.rows import ROOT

pytest_plugins = ["pytester"]
PLUGIN = "crp_integrations.testing.plugin"
SUITE = """
from crp_integrations import pack

FACTS = {facts!r}

def test_posting(assert_context_unchanged):
    envelope = pack("How long may a worker be posted?", FACTS, model="gpt-4o", budget_tokens=400)
    assert_context_unchanged(envelope)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    # Where the package is installed, its entry point would load the plug-in once more.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def _run(suite: pytest.Pytester, *words: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *words)


def test_without_a_golden_it_fails_and_says_how_to_write_one(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=SUITE.format(facts=FACTS[:3]))
    result = _run(suite)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*there is no golden 'test_it.test_posting' in *golden*--crp-update*"]
    )
    assert not (suite.path / "golden").exists()


def test_written_once_it_passes_until_the_context_changes(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=SUITE.format(facts=FACTS[:3]))
    written = _run(suite, "--crp-update")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["*goldens written*", "*test_posting.context.json"])
    _run(suite).assert_outcomes(passed=1)
    changed = (FACTS[0].replace("12 months", "18 months"), *FACTS[1:3])
    suite.makepyfile(test_it=SUITE.format(facts=changed))
    result = _run(suite)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*the model would see something else than in *test_posting.context.json*",
            "*context:*",
            "*-*at most 12 months*",
            "*+*at most 18 months*",
            "*accept it with: pytest --crp-update*",
        ]
    )
    _run(suite, "--crp-update").assert_outcomes(passed=1)
    _run(suite).assert_outcomes(passed=1)


RECEIPTS = """
from pathlib import Path

def test_receipt(assert_context_unchanged):
    assert_context_unchanged(Path("now.receipt").read_bytes(), name="a question / of two")
    assert_context_unchanged("now.receipt", name="by its path")
"""


def test_the_golden_of_a_receipt_is_the_receipt(suite: pytest.Pytester) -> None:
    suite.makepyfile(RECEIPTS)
    (suite.path / "now.receipt").write_bytes(handbook().receipt())
    _run(suite, "--crp-update").assert_outcomes(passed=1)
    golden = suite.path / "golden" / "a-question-of-two.receipt.json"
    assert golden.read_bytes() == handbook().receipt()
    assert read(golden.read_bytes()).receipt_id
    # Another key, time or window is no other context.
    _run(suite).assert_outcomes(passed=1)
    other = handbook()
    other.facts = (other.facts[0], "An employer need not notify anybody.", *other.facts[2:])
    other.claims.clear()
    (suite.path / "now.receipt").write_bytes(other.receipt())
    result = _run(suite)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*-*An employer must notify*", "*+*An employer need not notify*"])


def test_a_receipt_without_its_texts_cannot_be_compared(suite: pytest.Pytester) -> None:
    suite.makepyfile(RECEIPTS)
    (suite.path / "now.receipt").write_bytes(handbook().receipt(redacted=(1,)))
    result = _run(suite, "--crp-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*RequestError*lacks its text 'context'*"])


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("assert_context_unchanged(7)", "*int cannot be compared; give an answer*"),
        (
            "assert_context_unchanged('nowhere.json')",
            "*receipt 'nowhere.json' cannot be read*",
        ),
        ("assert_context_unchanged(b'{}')", "*ReceiptBroken*does not end with a line feed*"),
    ],
)
def test_what_cannot_be_compared_is_named(suite: pytest.Pytester, body: str, wanted: str) -> None:
    suite.makepyfile(f"def test_it(assert_context_unchanged):\n    {body}\n")
    result = _run(suite)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([wanted])


CLASSES = """
import pytest
from crp_integrations import pack

def packed(fact):
    return pack("How long?", [fact], model="gpt-4o", budget_tokens=400)

class TestA:
    def test_x(self, assert_context_unchanged):
        assert_context_unchanged(packed({fact!r} + " by A"))

class TestB:
    def test_x(self, assert_context_unchanged):
        assert_context_unchanged(packed({fact!r} + " by B"))
"""


def test_tests_of_one_name_have_goldens_of_their_own(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_e=CLASSES.format(fact="In e"), test_f=CLASSES.format(fact="In f"))
    _run(suite, "--crp-update").assert_outcomes(passed=4)
    _run(suite).assert_outcomes(passed=4)
    assert {path.name for path in (suite.path / "golden").iterdir()} == {
        f"test_{module}.Test{cls}.test_x.context.json" for module in "ef" for cls in "AB"
    }


PARAMETERS = """
import pytest
from crp_integrations import pack

@pytest.mark.parametrize("word", {words!r})
def test_it(assert_context_unchanged, word):
    envelope = pack("How long?", [word], model="gpt-4o", budget_tokens=400)
    assert_context_unchanged(envelope, name={name!r})
"""


@pytest.mark.parametrize(
    ("words", "name", "both"),
    [
        (("a/b", "a-b"), "", "*test_it[[]a/b] and *test_it[[]a-b] have the same golden*name=*"),
        (("a", "A"), "", "*test_it[[]a] and *test_it[[]A] have the same golden*name=*"),
        (("a", "b"), "one", "*[[]a] (name='one') and *[[]b] (name='one') have the same golden*"),
    ],
)
def test_two_that_come_to_one_golden_are_refused(
    suite: pytest.Pytester, words: tuple[str, str], name: str, both: str
) -> None:
    suite.makepyfile(test_p=PARAMETERS.format(words=words, name=name))
    for mode in (("--crp-update",), ()):
        result = _run(suite, *mode)
        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines([both])


def test_a_damaged_golden_is_named(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_it=SUITE.format(facts=FACTS[:3]))
    _run(suite, "--crp-update")
    golden = suite.path / "golden" / "test_it.test_posting.context.json"
    golden.write_text('{"schema": "golden-context/2"}', encoding="utf-8")
    result = _run(suite)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ConfigError*golden-context/2*wanted*golden-context/1*"])


def test_a_damaged_receipt_among_the_goldens_is_named(tmp_path: Path) -> None:
    from crp_integrations.errors import ConfigError
    from crp_integrations.testing import golden

    (path,) = golden.write(handbook().receipt(), tmp_path, "one")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"one\.receipt\.json is damaged .* write it with"):
        golden.compare(handbook().receipt(), tmp_path, "one")


def test_tools_and_their_calls_are_compared_and_their_ids_are_not(tmp_path: Path) -> None:
    from crp_integrations.testing import golden

    def recorded(id_: str, arguments: str, description: str) -> Receipt:
        call = ToolCall(id=id_, name="look_up", arguments=arguments)
        history = (
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content="412", tool_call_id=id_),
        )
        function = {"name": "look_up", "description": description}
        tools = [{"type": "function", "function": function}]
        return asked(QUESTION, history=history, results=2, tools=tools)

    golden.write(recorded("c1", '{"plant": 7}', "Looks it up."), tmp_path, "one")
    assert golden.compare(recorded("c2", '{"plant": 7}', "Looks it up."), tmp_path, "one") == ""
    found = golden.compare(recorded("c1", '{"plant": 8}', "Looks it up."), tmp_path, "one")
    assert '-look_up({"plant": 7})' in found
    assert '+look_up({"plant": 8})' in found
    found = golden.compare(recorded("c1", '{"plant": 7}', "Finds it."), tmp_path, "one")
    assert '-   "description": "Looks it up."' in found.replace("\t", " ")


def test_loading_the_plug_in_is_light(tmp_path: Path) -> None:
    code = (
        f"import sys, pytest; before = set(sys.modules); import {PLUGIN}; "
        "print(sorted(n for n in set(sys.modules) - before if not n.startswith('crp_integrations')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert run.stdout.strip() == "[]"


def test_pytest_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"crp": PLUGIN}
