"""The formulas of the page *Recompute it yourself* give what the package gives."""

from __future__ import annotations

import contextlib
import io
import json
from functools import cache
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.dpe.judge import messages as judge
from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.envelope import prompt
from crp_integrations.envelope.candidates import Candidate, RankedFact
from crp_integrations.envelope.layout import order_facts
from crp_integrations.envelope.reuse import etag
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.language.folded_text import Folded, undo_typesetting
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.receipt.leaves import leaf_hash
from crp_integrations.receipt.merkle import Tree
from crp_integrations.receipt.records import Receipt, read
from crp_integrations.receipt.signed_statement import pae
from crp_integrations.relay.judge import Judge
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import GroundingMode, Strategy
from tests.doubles import ScriptedModel
from tests.house.pages import page_script
from tests.receipt.page.real import HANDBOOK, session
from tests.relay.judges import ScriptedJudge
from tests.requirements.rows import ROOT

PAGE = ROOT / "docs/reference/recompute.md"


@cache
def page() -> dict[str, Any]:
    """The functions of the page."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(page_script(PAGE), names)
    return names


@cache
def receipts() -> tuple[Receipt, ...]:
    return tuple(read(data) for data in session())


@given(st.lists(st.text(), min_size=1, max_size=9), st.binary(min_size=32, max_size=32))
def test_hashes(texts: list[str], salt: bytes) -> None:
    texts = [text.encode(errors="ignore").decode() for text in texts]
    hashes = [leaf_hash(salt, text) for text in texts]
    assert [page()["leaf"](salt, text) for text in texts] == hashes
    assert page()["root"](hashes) == Tree(hashes).root
    assert page()["etag"](texts) == etag(texts)
    assert page()["signed_bytes"]("a/b", salt) == pae("a/b", salt)


def test_hashes_of_a_receipt() -> None:
    for receipt in receipts():
        content = receipt.content
        assert page()["receipt_id"](receipt.signed.payload) == receipt.receipt_id
        facts = [content["candidates"][fact["at"]]["id"] for fact in content["envelope"]["facts"]]
        assert page()["etag"](facts) == content["envelope"]["etag"]
        seal = json.loads(receipt.text(content["seal"]) or "")
        answer = receipt.text(receipt.number("answer")) or ""
        assert seal["response_hash"] == f"sha256:{sha256(answer.encode()).hexdigest()}"


def test_context_and_messages_of_a_receipt() -> None:
    for receipt in receipts():
        content = receipt.content
        context = page()["context"](content, receipt.text)
        assert context == receipt.text(receipt.number("context"))
        request, (call, *_) = content["request"], content["calls"]
        system = page()["system"]("", request["grounding"], request["strategy"], [], context)
        assert system == receipt.text(call["messages"][0]["leaf"])


@pytest.mark.parametrize("grounding", GroundingMode)
@pytest.mark.parametrize("strategy", Strategy)
def test_the_system_message(grounding: GroundingMode, strategy: Strategy) -> None:
    own = prompt.system_parts("Be brief.", grounding, strategy, ("One.", "Two."))
    made = page()["system"]("Be brief.", grounding.value, strategy.value, ["One.", "Two."], "[1] A")
    assert made == prompt.system_text(own, "[1] A")


class _Judge(ScriptedJudge):
    """Its first reply is unreadable; the others also find a claim between the numbered ones."""

    def call(self, call: ModelCall) -> Reply:
        if not self.calls:
            self.calls.append(call)
            return Reply(text="Let me see.", model="judge")
        asked = json.loads(call.messages[1].content)
        reply = json.loads(super().call(call).text)
        verdict = {"text": "Really", "status": "UNSUPPORTED", "kind": "INVENTION", "quotes": []}
        reply |= {"id": asked["id"], "unnumbered": [verdict]}
        return Reply(text=json.dumps(reply), model="judge")


TALK = (
    Message(role="user", content="Left out, as only four messages are shown."),
    Message(role="assistant", content="Postings are for workers. " * 40),
    Message(role="user", content="And who pays?"),
    Message(role="assistant", content="The employer."),
    Message(role="user", content="Thanks! " * 100),
)
ANSWERS = (
    "Really? Housing is inspected every six months. "
    + " ".join(f"Transport worker {n} may be posted for at most {n} months." for n in range(40)),
    "Transport workers may be posted for at most 12 months. Really? Housing is inspected.",
)


def _judged(window: int, **request: Any) -> tuple[Receipt, list[tuple[Message, ...]]]:
    """The receipt of an answer, and the messages that its judge was sent."""
    judge, model = _Judge(), ScriptedModel(ANSWERS[window > 10_000])
    sites = [f"A transport worker may be posted to site {n} for {n} months." for n in range(130)]
    texts = [*HANDBOOK, " ".join(sites[:65]), " ".join(sites[65:])]
    with Relay.open(MemoryStore(), models=model, judge=Judge(judge, window_tokens=window)) as relay:
        relay.fabric.add(texts)
        receipt_id = relay.ask(
            "How long may a worker be posted?", model="gpt-4o", **request
        ).receipt_id
        receipt = relay.receipt(receipt_id)
    assert receipt is not None
    return receipt, [call.messages for call in judge.calls]


@pytest.mark.parametrize("window", [4_000, 100_000])
@pytest.mark.parametrize(
    "request_fields",
    [{}, {"system_prompt": "Posted workers are 18 years old. " * 20, "history": TALK}],
    ids=["alone", "with system prompt and history"],
)
def test_the_judges_messages(window: int, request_fields: dict[str, Any]) -> None:
    receipt, sent = _judged(window, **request_fields)
    made = page()["judge_messages"](receipt.content, receipt.text)
    pairs = [[(str(message.role), message.content) for message in call] for call in sent]
    assert made == pairs
    calls = receipt.content["examined"]["judged"]["calls"]
    assert [page()["prompt_hash"](call) for call in made] == [call["prompt_hash"] for call in calls]
    users = [json.loads(call[1][1]) for call in pairs]
    assert len(made[1]) == 4 and [user["id"] for user in users] == [call["id"] for call in calls]
    assert any(call.get("pieces") for call in calls) == (window < 10_000)
    assert any("note" in user for user in users) == (window < 10_000)
    assert {"earlier", "system"} <= users[0].keys() or not request_fields
    added = [claim for claim in receipt.content["report"]["claims"] if claim["sentence_index"] < 0]
    assert added or window < 10_000


def test_the_judges_messages_of_a_receipt() -> None:
    for receipt in receipts():
        (call,) = receipt.content["examined"]["judged"]["calls"]
        (sent,) = page()["judge_messages"](receipt.content, receipt.text)
        assert sent[0][1] == JudgePrompt().text
        assert page()["prompt_hash"](sent) == call["prompt_hash"]


def test_the_limits_of_the_judges_messages() -> None:
    limits = [page()[name] for name in ("EARLIER", "EARLIER_CHARACTERS", "CHARACTERS", "AGAIN")]
    assert limits == [
        judge.EARLIER, judge.EARLIER_CHARACTERS, judge.SYSTEM_CHARACTERS, judge.AGAIN,
    ]  # fmt: skip
    assert judge.QUESTION_CHARACTERS == judge.SYSTEM_CHARACTERS


def test_the_prompt_hash_of_messages() -> None:
    sent = [Message(role="system", content="é"), Message(role="user", content='{"a":1}')]
    pairs = [(str(message.role), message.content) for message in sent]
    assert page()["prompt_hash"](pairs) == judge.prompt_hash(sent)


SIGNS = st.sampled_from("aZ1 20.,'’“\"*\\-–²½ﬁé\u0301\u200b\u00ad\n\t٣三ﾞ%$&;")


@given(st.one_of(st.text(), st.text(SIGNS)))
def test_the_fold(text: str) -> None:
    # What undoes typesetting is not on the page.
    if undo_typesetting(text) is None:
        assert page()["fold"](text) == Folded(text).text


def test_level_and_score_of_a_receipt() -> None:
    for receipt in receipts():
        report = receipt.content["report"]
        wrong = report["claim_counts"]["wrong"]
        assert page()["risk_score"](report["risk_level"], wrong) == report["risk_score"]


@given(st.lists(st.integers(0, 1_000_000), max_size=12))
def test_the_order(composites: list[int]) -> None:
    composites = sorted(composites, reverse=True)
    facts = [_ranked(at, composite) for at, composite in enumerate(composites)]
    ordered = order_facts(facts, EnvelopeSettings()).facts
    assert page()["order"](composites) == [int(fact.candidate.fact_id) for fact in ordered]


def _ranked(at: int, composite: int) -> RankedFact:
    return RankedFact(Candidate(str(at), "", "", 0, 0, 0), composite, 0, 0)
