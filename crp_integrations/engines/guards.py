"""The guard that the settings choose, policies in folders of `.rego` files, and their tests.

A `*_test.rego` module defines `cases`, an object of `{"input": …, "want": …}` by the name of each
case. Some uses of `with` crash the interpreter, so inputs are set from outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crp_integrations.engines.rego import (
    LIBRARY,
    OpaEngine,
    RegoEngine,
    load_regopy,
    new_interpreter,
)
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.guard.access import ENTRYPOINT, access
from crp_integrations.guard.decisions import AllowAll, Guard, PolicyGuard
from crp_integrations.guard.governed_exceptions import GovernedException, grant_exception
from crp_integrations.guard.ports import Bundle
from crp_integrations.guard.settings import GuardSettings

DATA_FILE: Final = "data.json"
TEST_SUFFIX: Final = "_test.rego"


def read_bundle(folder: Path, entrypoint: str) -> Bundle:
    """The policy of a folder: every `.rego` file except tests, and `data.json` if there is one.

    Its name is the `name` in the data, else the folder's name.
    """
    modules = {path.name: _text(path) for path in _files(folder) if not _is_test(path)}
    if not modules:
        raise ConfigError(f"guard.bundle {str(folder)!r:.120} contains no .rego file")
    data: Any = {}
    if (folder / DATA_FILE).is_file():
        try:
            data = json.loads(_text(folder / DATA_FILE))
        except ValueError as error:
            raise ConfigError(f"{DATA_FILE} of guard.bundle is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise ConfigError(
                f"{DATA_FILE} of guard.bundle is {type(data).__name__}, wanted an object"
            )
    first, *others = sorted(modules)
    name = data.get("name")
    return Bundle(
        name=name if isinstance(name, str) and name else folder.name,
        module=modules[first],
        data=data,
        entrypoint=entrypoint,
        further={other: modules[other] for other in others},
        file=first,
    )


def tests_of(folder: Path) -> dict[str, str]:
    """The tests of a folder: sources of its `*_test.rego` files by name."""
    return {path.name: _text(path) for path in _files(folder) if _is_test(path)}


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ConfigError(f"guard.bundle {str(folder)!r:.120} is not a folder")
    return sorted(folder.glob("*.rego"))


def _is_test(path: Path) -> bool:
    return path.name.endswith(TEST_SUFFIX)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"policy file {path.name!r:.80} cannot be read: {error}") from error


def guard_of(settings: GuardSettings) -> Guard:
    """The guard of the configured policy; without a policy, one that allows everything.

    Raises:
        ConfigError: the bundle cannot be read or built, the server's address is invalid, or the
            built-in policy does not have the entrypoint.
    """
    if not settings.wanted:
        return AllowAll()
    if settings.opa_url:
        server = OpaEngine(settings.opa_url, timeout_s=settings.opa_timeout_s)
        # The server's policy is not known here, so the bundle contains only its address.
        remote = Bundle(
            name="opa", module="", data={"url": settings.opa_url}, entrypoint=settings.entrypoint
        )
        return PolicyGuard(server, remote, remember=False, most_kept=settings.most_kept)
    own = settings.bundle
    if own is None and settings.entrypoint != ENTRYPOINT:
        raise ConfigError(
            f"guard.entrypoint is {settings.entrypoint!r:.80}, which the built-in policy lacks; "
            "name a guard.bundle or a guard.opa_url that has it"
        )
    engine = RegoEngine(most_kept=0)
    if own is None:
        return PolicyGuard(engine, access(), most_kept=settings.most_kept)
    bundle = read_bundle(own, settings.entrypoint)
    # The built-in policy is built at the first decision. A caller's own policy may have an
    # error, with which every decision would deny, so it is built now.
    try:
        engine.prepare(bundle)
    except EngineError as error:
        raise ConfigError(
            f"guard.bundle {str(own)!r:.120} is not a usable policy: {error}"
        ) from error
    return PolicyGuard(engine, bundle, most_kept=settings.most_kept)


def read_exceptions(settings: GuardSettings) -> tuple[GovernedException, ...]:
    """The governed exceptions in the settings' JSON file, a list of objects; none without one."""
    path = settings.exceptions
    if path is None:
        return ()
    try:
        entries: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"guard.exceptions {str(path)!r:.120} cannot be read: {error}") from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"guard.exceptions {str(path)!r:.120} is not a list of objects")
    return tuple(grant_exception(entry) for entry in entries)


CASES: Final = "cases"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case.

    Attributes:
        module: file that contains the case.
        name: name of the case.
        failure: the wrong decision, or why there was none; empty when the case passed.
    """

    module: str
    name: str
    failure: str

    @property
    def passed(self) -> bool:
        """Whether the decision contained the wanted values."""
        return not self.failure


def run_tests(bundle: Bundle, tests: Mapping[str, str]) -> Iterator[CaseResult]:
    """Run the tests of a policy, in their order.

    Spec: Summit §Policy-as-Code Compliance Rules
    """
    engine = RegoEngine()
    for module, source in tests.items():
        for name, case in _cases(module, source).items():
            yield CaseResult(module, name, _failure(engine, bundle, case))


def _failure(engine: RegoEngine, bundle: Bundle, case: Any) -> str:
    if not isinstance(case, dict) or set(case) != {"input", "want"}:
        return "the case is not an object with `input` and `want`"
    want = case["want"]
    if not isinstance(case["input"], dict) or not isinstance(want, dict) or not want:
        # A case with an empty `want` would pass with any decision.
        return "`input` must be an object, and `want` an object with the expected values"
    try:
        decision = engine.decide(bundle, case["input"])
    except EngineError as error:
        return str(error)
    wrong = {
        name: decision.get(name)
        for name, value in want.items()
        if not _same(decision.get(name), value)
    }
    return f"decided {json.dumps(wrong, sort_keys=True)}" if wrong else ""


def _same(value: Any, wanted: Any) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def _cases(module: str, source: str) -> dict[str, Any]:
    regopy = load_regopy()
    package = next(
        (line.split()[1] for line in source.splitlines() if line.startswith("package ")), ""
    )
    try:
        interpreter = new_interpreter()
        interpreter.add_module(module, source)
        answer = json.loads(str(interpreter.query(f"found := data.{package}.{CASES}")))
        cases = answer["bindings"]["found"]
    except (regopy.RegoError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"test module {module} has no `{CASES}`", engine=LIBRARY) from error
    if not isinstance(cases, dict) or not cases:
        raise EngineError(f"`{CASES}` of test module {module} is not an object", engine=LIBRARY)
    return cases
