"""A plug-in for pytest: `assert_context_unchanged` compares what a model would see with a golden.

It loads with pytest itself, so it imports pytest alone; the rest comes with the first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from crp_integrations.testing.golden import Recorded

    # Called with what was seen, and with a name where a test has more than one.
    AssertContextUnchanged = Callable[..., None]

FOLDER = "golden"
WRITTEN = pytest.StashKey[list[str]]()
# Which test, and which name in it, each golden of this run belongs to.
OWNERS = pytest.StashKey[dict[str, str]]()
_UNFIT = re.compile(r"[^\w.-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that writes goldens, and the setting of their folder."""
    group = parser.getgroup("crp", "contexts of crp-integrations")
    group.addoption(
        "--crp-update",
        action="store_true",
        help="write what the model would see as the new goldens of assert_context_unchanged",
    )
    parser.addini("crp_golden", "folder of goldens, beside the file of a test", default=FOLDER)


def pytest_configure(config: pytest.Config) -> None:
    """Make the list of what was written, and of whose each golden is."""
    config.stash[WRITTEN] = []
    config.stash[OWNERS] = {}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the goldens that were written, so that they are looked at before they are kept."""
    written = config.stash[WRITTEN]
    if written:
        terminalreporter.section("goldens written")
        for path in written:
            terminalreporter.line(path)


@pytest.fixture
def assert_context_unchanged(request: pytest.FixtureRequest) -> AssertContextUnchanged:
    """A function that fails when a model would see something else than in the golden.

    Called with an answer, an envelope or a receipt (itself, its bytes or the path of its file),
    and with `name=…` where a test has more than one. A receipt's golden is the receipt, and the
    whole prompt is compared; that of an answer or an envelope is its question and its context.

    The golden's file is named by module, classes and test, or by `name` alone. Two that come to
    one file in a run are refused, as the one would be compared with the other's golden.
    """
    names: set[str] = set()

    def check(seen: Recorded, *, name: str = "") -> None:
        __tracebackhide__ = True
        from crp_integrations.testing import golden

        chosen = _UNFIT.sub("-", name or _place(request)).strip("-.")
        folder = Path(request.path).parent / str(request.config.getini("crp_golden"))
        if not chosen:
            pytest.fail(f"no file can be named by {name!r}; give a name with a letter in it", False)
        owner = request.node.nodeid + (f" (name={name!r})" if name else "")
        if owner in names:
            pytest.fail(f"{chosen!r} was compared already; give each a name of its own", False)
        names.add(owner)
        # Goldens are shared between systems, and some do not tell capitals apart.
        key = str((folder / chosen).resolve()).casefold()
        first = request.config.stash[OWNERS].setdefault(key, owner)
        # A test that is run again, as after a failure, is no other one.
        if first != owner:
            pytest.fail(
                f"{first} and {owner} have one golden, {chosen!r} in {folder}; give one of them "
                "a name of its own with name=, or a folder by its file with crp_golden",
                False,
            )
        if request.config.getoption("--crp-update"):
            changed = golden.write(seen, folder, chosen)
            request.config.stash[WRITTEN].extend(str(path) for path in changed)
            return
        difference = golden.compare(seen, folder, chosen)
        if difference:
            pytest.fail(difference, pytrace=False)

    return check


def _place(request: pytest.FixtureRequest) -> str:
    """Module, classes and test, as two modules or classes may have tests of one name."""
    classes = [node.name for node in request.node.listchain() if isinstance(node, pytest.Class)]
    return ".".join([Path(request.path).stem, *classes, request.node.name])
