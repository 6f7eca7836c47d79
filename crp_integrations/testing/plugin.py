"""A pytest plug-in: `assert_context_unchanged` compares what a model would see with a golden file.

It loads whenever pytest starts, so it imports only pytest; the rest is imported on first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from crp_integrations.testing.golden import Recorded

    # Called with an answer, an envelope or a receipt, and `name=` if a test has several.
    AssertContextUnchanged = Callable[..., None]

FOLDER = "golden"
WRITTEN = pytest.StashKey[list[str]]()
# Path of each golden of this run → test (and name in it) that it belongs to.
OWNERS = pytest.StashKey[dict[str, str]]()
_UNFIT = re.compile(r"[^\w.-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes goldens, and the setting for their folder."""
    group = parser.getgroup("crp", "contexts of crp-integrations")
    group.addoption(
        "--crp-update",
        action="store_true",
        help="write what the model would see as the new goldens of assert_context_unchanged",
    )
    parser.addini("crp_golden", "folder of goldens, relative to the test file", default=FOLDER)


def pytest_configure(config: pytest.Config) -> None:
    """Initialize the list of written goldens and the owners of goldens."""
    config.stash[WRITTEN] = []
    config.stash[OWNERS] = {}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the goldens that were written, so that a person reviews them."""
    written = config.stash[WRITTEN]
    if written:
        terminalreporter.section("goldens written")
        for path in written:
            terminalreporter.line(path)


@pytest.fixture
def assert_context_unchanged(request: pytest.FixtureRequest) -> AssertContextUnchanged:
    """A function that fails if a model would see something else than in the golden.

    Call it with an answer, an envelope or a receipt (the object, its bytes or the path of its
    file), and with `name=…` if a test has several. The golden of a receipt is the receipt, and the
    whole prompt is compared; that of an answer or an envelope is its question and its context.

    The golden's file name is made of module, classes and test, or of `name` alone. Two goldens
    with the same file in a run are refused, since one would be compared with the other's file.
    """
    names: set[str] = set()

    def check(seen: Recorded, *, name: str = "") -> None:
        __tracebackhide__ = True
        from crp_integrations.testing import golden

        chosen = _UNFIT.sub("-", name or _place(request)).strip("-.")
        folder = Path(request.path).parent / str(request.config.getini("crp_golden"))
        if not chosen:
            pytest.fail(f"{name!r} gives no file name; give a name with a letter in it", False)
        owner = request.node.nodeid + (f" (name={name!r})" if name else "")
        if owner in names:
            pytest.fail(f"{chosen!r} was compared already; give each a separate name", False)
        names.add(owner)
        # Goldens are shared between systems, some of which ignore case in file names.
        key = str((folder / chosen).resolve()).casefold()
        first = request.config.stash[OWNERS].setdefault(key, owner)
        # The same test may run again, for example after a failure.
        if first != owner:
            pytest.fail(
                f"{first} and {owner} have the same golden, {chosen!r} in {folder}; give one of "
                "them another name with name=, or a folder relative to its file with crp_golden",
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
    """Module, classes and test, since tests of two modules or classes may have the same name."""
    classes = [node.name for node in request.node.listchain() if isinstance(node, pytest.Class)]
    return ".".join([Path(request.path).stem, *classes, request.node.name])
