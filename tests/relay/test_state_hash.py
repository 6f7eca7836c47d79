"""An envelope carries its ETag and the state hash that says whether it is still fresh."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS

QUESTION = "When was the Meridian reactor commissioned?"


@pytest.mark.requirement("009-6.3-1")
def test_the_state_hash_tells_what_the_etag_cannot(open_relay: Any) -> None:
    relay = open_relay(models=ScriptedModel("It was commissioned on 4 March 2019."))
    relay.fabric.add(list(FACTS))

    def envelope() -> Any:
        return relay.ask(QUESTION).envelope

    first = envelope()
    ids = sorted(fact.fact_id for fact in first.facts)
    wanted = "|".join(ids) + "|" + str(len(ids))
    assert first.etag == "sha256:" + hashlib.sha256(wanted.encode()).hexdigest()
    assert first.state_hash == relay.fabric.state_hash()
    # Asking uses facts and changes neither.
    again = envelope()
    assert (again.etag, again.state_hash) == (first.etag, first.state_hash)
    # The same ids with another content: the ETag of §7.5 stays, its validator does not.
    content = FACTS[0].replace("412", "415")
    relay.fabric.update(first.facts[0].fact_id, content=content)
    later = envelope()
    assert later.etag == first.etag
    assert later.state_hash == relay.fabric.state_hash() != first.state_hash
