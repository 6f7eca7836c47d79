"""Caches of texts are all cleared together, whatever one of them raises."""

from __future__ import annotations

import pytest

from crp_integrations.errors import StoreError
from crp_integrations.language import memo


@pytest.mark.parametrize("lasting", [True, False])
def test_every_cache_is_cleared_before_an_error_is_raised(
    monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    monkeypatch.setattr(memo, "_FORGETTING", [])
    cleared: list[str] = []

    def refuse() -> None:
        raise StoreError("refused")

    memo.forgotten_with(lambda: cleared.append("first"))
    memo.forgotten_with(refuse)
    memo.forgotten_with(lambda: cleared.append("files"), lambda: cleared.append("rows"))
    with pytest.raises(StoreError, match="refused"):
        memo.forget(lasting)
    assert sorted(cleared) == sorted(["first", "files" if lasting else "rows"])
