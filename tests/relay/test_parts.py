"""Facts that are shown in part, outside the envelope: examined, handed to frameworks, printed."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crp_integrations import Relay, examine
from crp_integrations.cli import show
from crp_integrations.envelope.records import Envelope, PackedFact
from crp_integrations.envelope.render import ELLIPSIS
from crp_integrations.langchain import CRPRetriever, envelope_text
from crp_integrations.relay.examination import vectors_of
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import Attribution
from tests.doubles import HashEmbedder, ScriptedModel
from tests.relay.conftest import Opener

QUAY = "The quay of granite was paid for by the harbour board in the end."
TIER = "The licence of the northern tier was never renewed by the council."
# Nothing of it is asked for, and it stands between what is.
CAT = "A cat slept on the ledger while the treasurer counted the revenue."
LONG = f"{TIER} {CAT} {CAT[:-1]} once more. The northern tier has 2,500 berths under its licence."
SHORT = f"{QUAY} {CAT.replace('cat', 'dog')}"
QUESTION = "who paid for the quay of granite, and what of the licence of the northern tier"
SESSION = "crp_sess_7f3a9bc2d4e1f083"
BUDGET = 85


@pytest.fixture
def relay(open_relay: Opener) -> Relay:
    opened = open_relay(models=ScriptedModel(TIER))
    opened.add([SHORT, LONG])
    return opened


def parted(envelope: Envelope) -> PackedFact:
    (fact,) = (one for one in envelope.facts if one.spans)
    return fact


def asked(relay: Relay, **options: Any) -> Any:
    return relay.ask(QUESTION, model="gpt-4o", budget_tokens=BUDGET, **options)


def test_the_model_sees_the_parts_and_nothing_else_of_the_fact(relay: Relay) -> None:
    answer = asked(relay)
    shown = parted(answer.envelope)
    assert TIER in shown.content
    assert CAT in LONG
    assert CAT not in answer.envelope.text
    assert shown.content in answer.envelope.text
    assert shown.content == ELLIPSIS.join(LONG[start:end] for start, end in shown.spans)


def test_claims_rest_on_the_fact_at_a_place_in_what_was_shown(relay: Relay) -> None:
    answer = asked(relay)
    shown = parted(answer.envelope)
    (claim,) = answer.report.claims
    assert claim.attribution is Attribution.CONTEXT_GROUNDED
    (evidence, *_) = claim.evidence
    assert evidence.fact_id == shown.fact_id
    assert shown.content[evidence.start : evidence.end] == TIER
    again = examine(TIER, answer.envelope, QUESTION, embedder=HashEmbedder())
    assert again.claims[0].evidence[0].fact_id == shown.fact_id


def test_what_was_not_shown_grounds_nothing(open_relay: Opener) -> None:
    opened = open_relay(models=ScriptedModel(CAT))
    opened.add([SHORT, LONG])
    answer = asked(opened)
    shown = parted(answer.envelope)
    assert CAT not in shown.content
    # The row of the whole fact would speak for sentences that the model never saw.
    rows = vectors_of(answer.envelope, opened.fabric.view(SESSION))
    assert rows is not None
    place = next(n for n, one in enumerate(answer.envelope.facts) if one.spans)
    expected = HashEmbedder().embed_passages([shown.content])[0]
    assert np.allclose(rows[place], expected)
    whole = next(n for n, one in enumerate(answer.envelope.facts) if not one.spans)
    assert np.allclose(rows[whole], HashEmbedder().embed_passages([SHORT])[0])


def test_a_langchain_document_holds_what_is_shown_and_says_which_part_it_is(relay: Relay) -> None:
    retriever = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=BUDGET)
    documents = retriever.invoke(QUESTION)
    envelope = relay.turn(QUESTION, model="gpt-4o", budget_tokens=BUDGET).preview()
    assert envelope_text(documents) == envelope.text
    shown = parted(envelope)
    (document,) = (one for one in documents if one.metadata["crp"]["spans"])
    assert document.page_content == shown.content
    words = document.metadata["crp"]
    assert [tuple(span) for span in words["spans"]] == list(shown.spans)
    assert words["content_hash"] == sha256(LONG)
    assert words["fact_id"] == shown.fact_id
    json.dumps(words)
    for other in documents:
        if other is not document:
            assert (other.metadata["crp"]["spans"], other.metadata["crp"]["content_hash"]) == (
                [],
                "",
            )
    # With a cap there are whole facts alone, as many as may be.
    capped = CRPRetriever(relay=relay, model="gpt-4o", budget_tokens=BUDGET, k=2).invoke(QUESTION)
    assert {one.page_content for one in capped} <= {SHORT, LONG}


def test_the_terminal_says_that_a_fact_is_shown_in_part(
    relay: Relay, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    answer = asked(relay)
    show.answer(answer)
    said = capsys.readouterr().out
    assert f"{parted(answer.envelope).position} part" in said
    show.answer(relay.ask(QUESTION, model="gpt-4o", budget_tokens=1_000))
    assert " part" not in capsys.readouterr().out
