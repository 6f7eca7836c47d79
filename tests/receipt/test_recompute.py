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

from crp_integrations.dpe.judge import messages as judge
from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.envelope import prompt
from crp_integrations.envelope.candidates import Candidate, RankedFact
from crp_integrations.envelope.layout import order_facts
from crp_integrations.envelope.reuse import etag
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.language.folded_text import Folded, undo_typesetting
from crp_integrations.messages import Message
from crp_integrations.receipt.leaves import leaf_hash
from crp_integrations.receipt.merkle import Tree
from crp_integrations.receipt.records import Receipt, read
from crp_integrations.receipt.signed_statement import pae
from crp_integrations.vocabulary import GroundingMode, Strategy
from tests.house.pages import page_script
from tests.receipt.page.real import session
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
        texts = []
        for fact in content["envelope"]["facts"]:
            candidate = content["candidates"][fact["at"]]
            spans = fact.get("spans", ())
            text = receipt.text(candidate["leaf"])
            texts.append(page()["shown"](text, () if spans == candidate.get("spans") else spans))
        context = page()["render"](texts)
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


def test_the_judges_messages_of_a_receipt() -> None:
    judged = 0
    for receipt in receipts():
        content = receipt.content
        record, examined = content["examined"]["judged"], content["examined"]
        if not record or not record["calls"]:
            continue
        judged += 1
        texts = [
            receipt.text(content["candidates"][fact["at"]]["leaf"])
            for fact in content["envelope"]["facts"]
        ]
        if examined["passages"] is not None:
            texts = [receipt.text(passage["pieces"][0]) for passage in examined["passages"]]
        answer = receipt.text(examined["answer"]) or ""
        others: dict[str, Any] = {"question": receipt.text(examined["question"])}
        others["needs"] = [
            [number, receipt.text(need)] for number, need in enumerate(examined["needs"], start=1)
        ]
        others["passages"] = [[str(number), text] for number, text in enumerate(texts, start=1)]
        others["answer"] = parts = []
        at = 0
        for number, claim in enumerate(content["report"]["claims"], start=1):
            if between := answer[at : claim["start"]].strip():
                parts.append(between)
            parts.append([number, answer[claim["start"] : claim["end"]]])
            at = claim["end"]
        if answer[at:].strip():
            parts.append(answer[at:].strip())
        (call,) = record["calls"]
        id_ = page()["judge_id"](others)
        assert id_ == call["id"]
        user = json.dumps({"id": id_, **others}, ensure_ascii=False, separators=(",", ":"))
        system = receipt.text(record["system"]) or ""
        assert system == JudgePrompt().text
        assert page()["prompt_hash"]([("system", system), ("user", user)]) == call["prompt_hash"]
    assert judged == len(receipts())


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
