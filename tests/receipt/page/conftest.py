"""One Chromium for all tests of the page; without it they are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.receipt.page import page
from tests.receipt.page.browser import CHROMIUM, DRIVER, Opened, chromium, emulate

Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    if not CHROMIUM or not DRIVER:
        pytest.skip("no chromium and chromedriver here")
    with chromium() as made:
        yield made


@pytest.fixture
def show(driver: Any, tmp_path: Path) -> Open:
    """Opens the page of a receipt, or a page as it is given, from disk."""
    emulate(driver)

    def opened(given: bytes | str, *others: bytes) -> Opened:
        path = tmp_path / "page.html"
        text = given if isinstance(given, str) else page(given, others)
        path.write_text(text, encoding="utf-8")
        return Opened(driver, path)

    return opened
