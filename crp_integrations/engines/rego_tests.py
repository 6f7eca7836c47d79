"""Runs the tests of a policy: cases in Rego, each an input with what its decision must hold.

A `*_test.rego` module defines `cases`, an object of `{"input": …, "want": …}` by what each case
says. The interpreter here ends the process at some uses of `with`, so inputs are set from outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from crp_integrations.engines.rego import LIBRARY, RegoEngine
from crp_integrations.errors import EngineError
from crp_integrations.guard.ports import Bundle

CASES: Final = "cases"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What became of one case.

    Attributes:
        module: file that the case stands in.
        name: what the case says.
        failure: what was decided instead, or why nothing was; empty when it passed.
    """

    module: str
    name: str
    failure: str

    @property
    def passed(self) -> bool:
        """Whether the decision held what was wanted."""
        return not self.failure


def run_tests(bundle: Bundle, tests: Mapping[str, str]) -> Iterator[CaseResult]:
    """Ask a policy what its tests ask, in their order.

    Spec: Summit §Policy-as-Code Compliance Rules

    Args:
        tests: sources of test modules by file name.

    Raises:
        EngineError: a test module cannot be read, or holds no case.
    """
    engine = RegoEngine()
    for module, source in tests.items():
        for name, case in _cases(module, source).items():
            yield CaseResult(module, name, _failure(engine, bundle, case))


def _failure(engine: RegoEngine, bundle: Bundle, case: Any) -> str:
    if not isinstance(case, dict) or set(case) != {"input", "want"}:
        return "the case is no object with `input` and `want`"
    want = case["want"]
    if not isinstance(case["input"], dict) or not isinstance(want, dict) or not want:
        # One that wants nothing would hold whatever is decided.
        return "`input` must be an object, and `want` one that names what must be decided"
    try:
        found = engine.decide(bundle, case["input"])
    except EngineError as error:
        return str(error)
    wrong = {
        name: found.get(name) for name, value in want.items() if not _same(found.get(name), value)
    }
    return f"decided {json.dumps(wrong, sort_keys=True)}" if wrong else ""


def _same(found: Any, wanted: Any) -> bool:
    """Whether two values are one in JSON, where true is not 1."""
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool)


def _cases(module: str, source: str) -> dict[str, Any]:
    try:
        import regopy
    except ImportError as error:
        raise EngineError("regopy cannot be loaded", engine=LIBRARY) from error
    package = next(
        (line.split()[1] for line in source.splitlines() if line.startswith("package ")), ""
    )
    try:
        interpreter = regopy.Interpreter()
        interpreter.log_level = regopy.LogLevel.NONE
        interpreter.add_module(module, source)
        told = json.loads(str(interpreter.query(f"found := data.{package}.{CASES}")))
        cases = told["bindings"]["found"]
    except (regopy.RegoError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"test module {module} has no `{CASES}`", engine=LIBRARY) from error
    if not isinstance(cases, dict) or not cases:
        raise EngineError(f"`{CASES}` of test module {module} is no object", engine=LIBRARY)
    return cases
