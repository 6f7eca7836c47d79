"""What serving does to the process it is done in."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import uvicorn

from crp_integrations.gateway.server import serve


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that is never asked."""


def test_the_collector_leaves_alone_what_was_there_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, bool]] = []
    before = object.__new__(type("Before", (), {"__slots__": ("other",)}))

    def run(self: uvicorn.Server) -> None:
        seen.append((gc.get_freeze_count(), any(one is before for one in gc.get_objects())))

    monkeypatch.setattr(uvicorn.Server, "run", run)
    try:
        serve(_nothing)
    finally:
        gc.unfreeze()
    ((frozen, looked_at),) = seen
    assert frozen > 10_000
    assert not looked_at
