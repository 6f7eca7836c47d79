"""The page applies the edits of a repair, and repeats what `verify` says of who wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.receipt.records import write
from crp_integrations.receipt.replay_records import DIFFERS, HOLDS
from crp_integrations.receipt.verify import verify
from tests.receipt.page.conftest import Open
from tests.receipt.relayed import changed
from tests.relay.conftest import Opener, open_relay  # noqa: F401 - a fixture
from tests.relay.test_on_flag import repaired_receipt


def _moved(content: dict[str, Any]) -> None:
    content["repaired"]["edits"][0]["end"] -= 1


@pytest.mark.parametrize(
    ("change", "word"),
    [(lambda content: None, HOLDS), (_moved, DIFFERS)],
    ids=["as it is", "another edit"],
)
def test_a_repair_is_applied_and_ends_in_the_word_of_verify(
    show: Open,
    open_relay: Opener,  # noqa: F811
    change: Any,
    word: str,
) -> None:
    data = write(changed(repaired_receipt(open_relay), change))
    assert verify(data).word == word
    opened = show(data)
    assert opened.state == word, opened.place
