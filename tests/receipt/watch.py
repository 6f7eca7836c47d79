"""Keeps a copy of every receipt that a script's relays issue; the script runs as it stands."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crp_integrations.receipt.records import write
from crp_integrations.relay import receipts


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Keep the receipts that are issued meanwhile in a folder."""
    issue = receipts.issue

    def issued(*arguments: Any, **options: Any) -> Any:
        receipt = issue(*arguments, **options)
        (folder / f"{receipt.receipt_id}.json").write_bytes(write(receipt))
        return receipt

    receipts.issue = issued
    try:
        yield
    finally:
        receipts.issue = issue


def main(script: str, folder: str) -> None:
    """Run a script as a process of its own would, with its receipts kept in a folder."""
    sys.argv, sys.path[0] = [script], str(Path(script).parent)
    with kept_in(Path(folder)):
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
