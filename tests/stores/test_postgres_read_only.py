"""A server that takes no writes refuses a question before a model is asked, and paid."""

from __future__ import annotations

import pytest

from crp_integrations import Relay
from crp_integrations.errors import StoreBusy
from crp_integrations.guard.decisions import Subject
from crp_integrations.vocabulary import Strategy
from tests.doubles import ScriptedModel
from tests.postgres import postgres_address  # noqa: F401 - a fixture
from tests.stores.postgres_processes import OPTIONS

QUESTION = "where does the walrus sleep?"
READ_ONLY = "&options=-c%20default_transaction_read_only%3Don"


@pytest.mark.parametrize("strategy", [Strategy.PUSH, Strategy.HIERARCHICAL, Strategy.REFLEXIVE])
@pytest.mark.parametrize("tenant", ["local", "never written"])
def test_no_model_is_asked_where_no_window_can_be_sealed(
    postgres_address,  # noqa: F811
    strategy,
    tenant,
):
    with Relay.open(postgres_address, **OPTIONS) as relay:
        relay.fabric.add([f"The walrus number {n} sleeps on the ice" for n in range(3)])
    model = ScriptedModel("On the ice.")
    subject = Subject(tenant=tenant)
    with Relay.open(postgres_address + READ_ONLY, **OPTIONS, models=model, subject=subject) as it:
        assert it.preview(QUESTION).etag.startswith("sha256:")
        with pytest.raises(StoreBusy, match="is read-only, like a standby"):
            it.ask(QUESTION, model="gpt-4o", strategy=strategy)
        with pytest.raises(StoreBusy, match="is read-only, like a standby"):
            list(it.stream(QUESTION, model="gpt-4o"))
    assert model.calls == []
