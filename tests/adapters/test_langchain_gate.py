"""A gate in a chain: an answer goes on after its verdict, or not at all."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from crp_integrations import pack
from crp_integrations.adapters import observed_answers
from crp_integrations.errors import (
    PolicySyntaxError,
    QualityUnreachable,
    RequestError,
    SafetyHalt,
)
from crp_integrations.langchain import CRPGate, CRPRetriever, DPECallbackHandler, envelope_text
from crp_integrations.langchain.gate import question_in
from crp_integrations.vocabulary import RiskLevel
from tests.adapters.langchain_doubles import (
    FACTS,
    HALTING,
    WAYS,
    Listed,
    leaked,
    no_metadata,
    opened,
    overheard,
    prompts,
    reader,
    scripted,
)

QUESTION = "How much power does the Meridian reactor deliver?"
WRONG = FACTS[0].replace("412", "512")
PROMPT = ChatPromptTemplate.from_template("Context:\n{context}\n\nQuestion: {question}")


def rag(answer, retriever=None):
    model = scripted(answer)
    retriever = retriever or Listed(documents=[Document(text, id=text[:9]) for text in FACTS])
    chain = {"context": retriever | envelope_text, "question": RunnablePassthrough()}
    return chain | PROMPT | model, model


def answering(answer, documents=FACTS):
    """A chain whose last step but the gate has the answer beside its context."""
    model = scripted(answer)
    return (
        RunnablePassthrough.assign(context=lambda _: [Document(text) for text in documents])
        | RunnablePassthrough.assign(answer=PROMPT | model | StrOutputParser())
    ), model


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_dict_goes_on_with_its_report(way):
    chain, model = answering(FACTS[0])
    gated = chain | CRPGate(**HALTING)
    given = {"question": QUESTION}
    passed = await gated.ainvoke(given) if way == "ainvoke" else gated.invoke(given)
    assert list(passed) == ["question", "context", "answer", "crp"]
    assert passed["answer"] == FACTS[0]
    assert passed["crp"]["risk_level"] == "LOW"
    assert no_metadata(prompts(model))


@pytest.mark.parametrize("way", ["stream", "astream"])
async def test_a_halt_as_the_last_step_lets_no_chunk_of_the_chain_out(way):
    for answer, halts in ((FACTS[0], False), (WRONG, True)):
        chain, _ = answering(answer)
        for last in (CRPGate(**HALTING), CRPGate(**HALTING) | (lambda passed: passed["answer"])):
            heard, error = await overheard(chain | last, {"question": QUESTION}, way)
            assert isinstance(error, SafetyHalt) == halts
            if halts:
                assert heard == []
                continue
            answers = [one["answer"] for one in heard if "answer" in one and one is not heard[0]]
            shown = answers if last.__class__ is CRPGate else heard
            assert "".join(shown) == FACTS[0]


@pytest.mark.parametrize("way", WAYS)
async def test_a_guarded_chain_leaks_in_no_way_of_listening(way):
    chain, _ = rag(WRONG)
    unguarded, error = await overheard(chain | StrOutputParser(), QUESTION, way)
    assert error is None
    assert leaked(unguarded), "the listener hears something without a gate"
    guarded = RunnablePassthrough() | CRPGate.around(chain, **HALTING) | StrOutputParser()
    heard, error = await overheard(guarded, QUESTION, way)
    assert isinstance(error, SafetyHalt)
    assert error.report.distortion_types == ("NUMBER_CHANGED",)
    assert not leaked(heard)
    good, _ = rag(FACTS[0])
    heard, error = await overheard(CRPGate.around(good, **HALTING), QUESTION, way)
    assert error is None
    assert "412" in repr(heard)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_guarded_chain_s_message_carries_its_report(way):
    chain, model = rag(FACTS[0], CRPRetriever(relay=opened(), model="gpt-4o", budget_tokens=200))
    guarded = CRPGate.around(chain, **HALTING)
    message = await guarded.ainvoke(QUESTION) if way == "ainvoke" else guarded.invoke(QUESTION)
    assert isinstance(message, AIMessage)
    assert message.response_metadata["crp"]["risk_level"] == "LOW"
    assert no_metadata(prompts(model))


async def test_guarded_batches_pair_each_answer_with_its_own_context():
    texts = {str(n): f"The tower of town number {n} is {100 + n} metres high." for n in range(32)}

    class PerQuestion(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(texts[query], id=query)]

    chain = (
        {"context": PerQuestion() | envelope_text, "question": RunnablePassthrough()}
        | PROMPT
        | RunnableLambda(lambda prompt: AIMessage(texts[prompt.to_string().rsplit(" ", 1)[1]]))
    )
    guarded = CRPGate.around(chain, attach="full", judge=reader())
    for messages in (guarded.batch(list(texts)), await guarded.abatch(list(texts))):
        for number, message in enumerate(messages):
            report = message.response_metadata["crp"]
            assert {e["fact_id"] for c in report["claims"] for e in c["evidence"]} == {str(number)}


def test_a_chain_that_retrieves_nothing_is_not_let_through():
    guarded = CRPGate.around(PROMPT | scripted(FACTS[0]), judge=reader())
    with pytest.raises(SafetyHalt, match="could not be checked"):
        guarded.invoke({"context": "", "question": QUESTION})
    # Its own context, in the output, is as good as a retriever.
    chain, _ = answering(FACTS[0])
    assert (
        CRPGate.around(chain, judge=reader()).invoke({"question": QUESTION})["answer"] == FACTS[0]
    )


@pytest.mark.parametrize(
    "context",
    [
        [Document(text) for text in FACTS],
        Document(FACTS[0]),
        list(FACTS),
        "\n\n".join(FACTS),
        pack(QUESTION, list(FACTS), model="gpt-4o", budget_tokens=200),
    ],
    ids=["documents", "document", "texts", "text", "envelope"],
)
def test_a_context_in_any_form(context):
    gate = CRPGate(**HALTING)
    asked = {"context": context, "question": QUESTION}
    assert gate.invoke({**asked, "answer": AIMessage(FACTS[0])})["crp"]["risk_level"] == "LOW"
    with pytest.raises(SafetyHalt):
        gate.invoke({**asked, "answer": WRONG})


def test_what_a_gate_cannot_read_is_refused():
    gate = CRPGate(judge=reader())
    for input, words in (
        ("a text", "around"),
        ({"answer": "x"}, "no context"),
        ({"context": []}, "no answer"),
        ({"context": [], "answer": 7}, "int"),
        ({"context": 7, "answer": "x"}, "int"),
        ({"context": ["x", Document("y")], "answer": "x"}, "context 2"),
    ):
        with pytest.raises(RequestError, match=words):
            gate.invoke(input)
    with pytest.raises(PolicySyntaxError):
        CRPGate("halt")
    with pytest.raises(RequestError, match="grounding"):
        CRPGate(grounding="some", judge=reader())


def test_a_person_may_be_asked():
    seen = []

    def reviewer(report, text):
        seen.append((report.risk_level, text))
        return True

    given = {"context": list(FACTS), "answer": FACTS[0]}
    policy = "oversight human-review"
    assert CRPGate(policy, reviewer=reviewer).invoke(given)["answer"] == FACTS[0]
    assert seen == [(RiskLevel.LOW, FACTS[0])]
    with pytest.raises(SafetyHalt) as caught:
        CRPGate(policy).invoke(given)
    assert caught.value.reason == "OVERSIGHT_REQUIRED"
    for word in (1, 0, None, "rejected", "approved", 2):
        gate = CRPGate(policy, reviewer=lambda report, text, word=word: word)
        if word == 1:
            gate.invoke(given)
        else:
            with pytest.raises(SafetyHalt, match="no approval"):
                gate.invoke(given)


def test_a_demand_on_quality_is_a_503_and_not_a_halt():
    gate = CRPGate("require-quality S")
    envelope = pack(QUESTION, [FACTS[4]], model="gpt-4o", budget_tokens=200)
    with pytest.raises(QualityUnreachable) as caught:
        gate.invoke({"context": envelope, "answer": FACTS[4]})
    assert caught.value.tier == caught.value.value == envelope.quality_tier.value
    assert (caught.value.directive, caught.value.wanted) == ("require-quality S", ("S",))


CRITICAL = "The Meridian reactor was commissioned on a day that nobody has written down."


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_handler_raises_where_it_was_told_to(way, monkeypatch):
    async def ask(chain, config):
        match way:
            case "invoke":
                return chain.invoke(QUESTION, config)
            case "ainvoke":
                return await chain.ainvoke(QUESTION, config)
            case _:
                heard, error = await overheard(chain, QUESTION, way, config=config)
                if error is not None:
                    raise error
                return heard

    grave = force_critical(monkeypatch)
    heard = []
    chain, _ = rag(CRITICAL)
    record = DPECallbackHandler(on_report=heard.append)
    await ask(chain, {"callbacks": [record]})
    assert [one["risk_level"] for one in heard] == ["CRITICAL"]
    handler = DPECallbackHandler(on_report=heard.append, on_critical="raise")
    with pytest.raises(SafetyHalt) as caught:
        await ask(chain, {"callbacks": [handler]})
    assert caught.value.report.risk_level is RiskLevel.CRITICAL
    assert len(heard) == 2, "what ends the call is reported first"
    assert len(handler._runs) == 0
    grave.clear()
    await ask(chain, {"callbacks": [handler]})


def force_critical(monkeypatch):
    """Reports of the engine made CRITICAL as long as the answer is one of those listed."""

    grave, real = {CRITICAL}, observed_answers.examine

    def examine(answer, **asked):
        report = real(answer, **asked)
        return report.changed(risk_level=RiskLevel.CRITICAL) if answer in grave else report

    monkeypatch.setattr(observed_answers, "examine", examine)
    return grave


@pytest.mark.parametrize(
    "given",
    [
        [("system", "Be brief."), ("human", QUESTION)],
        {"messages": [{"role": "user", "content": QUESTION}]},
        [HumanMessage(QUESTION), AIMessage("It was said before.")],
    ],
)
def test_the_question_is_found_in_messages_of_any_form(given):
    assert question_in(given) == QUESTION
