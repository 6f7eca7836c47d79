"""Where the package's own documentation lies: in the wheel, or in the checkout's `docs/`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from crp_integrations.errors import ConfigError

PACKAGED = "documentation"
IN_CHECKOUT = "docs"
FIRST_PAGE = "main-path.md"


def documentation_path() -> Path:
    """The folder of Markdown pages that the quickstart reads.

    A wheel carries the pages inside the package; an editable install leaves them beside it.

    Raises:
        ConfigError: neither folder holds the pages, so the installation is incomplete.
    """
    package = Path(str(files("crp_integrations")))
    for folder in (package / PACKAGED, package.parent / IN_CHECKOUT):
        if (folder / FIRST_PAGE).is_file():
            return folder
    raise ConfigError(
        "the package's documentation is not there; install crp-integrations again from its wheel"
    )
