"""What the guard costs, and whether anything of one tenant ever comes out at another."""

from __future__ import annotations

from typing import Final

# What is asked without options; here, since the command line names it before anything is measured.
TENANTS: Final = 20
QUERIES: Final = 10_000
