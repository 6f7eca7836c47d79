"""What goes with a text that is left out or erased, and what a stranger's file may make a reader do."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.cli import receipt, receipt_views
from crp_integrations.errors import ReceiptBroken
from crp_integrations.messages import Message
from crp_integrations.receipt.comparison import diff
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.records import Draft, Receipt, issue, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.verify import verify
from crp_integrations.receipt.whatif import Supposition, whatif
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.receipt.made import CHAIN, CONTENT, KEY, SALT_KEY, leaves
from tests.receipt.relayed import MODEL, SESSION, asked, changed, opened, receipt_of
from tests.relay.conftest import FACTS
from tests.relay.conftest import KEY as MASTER
from tests.relay.need_questions import looks_up

SECRET = "The walruszq of Quimperley weighs 4711 kilograms and operates the reactor."
SAID = "The walruszq of Quimperley weighs 4711 kilograms."


def in_file(receipt: Receipt) -> str:
    """Everything that a file says, its payload read."""
    text = write(receipt).decode()
    return text + base64.b64decode(json.loads(text)["envelope"]["payload"]).decode()


def test_a_question_goes_with_what_it_was_taken_apart_into() -> None:
    receipt = asked()
    assert "need/2" in receipt.numbers
    copy = redact(receipt, names=["request"])
    assert verify(write(copy)).ok
    assert all(words not in in_file(copy) for words in ("What revenue did", "When was the"))
    assert replay(copy).same


def test_a_question_goes_with_the_prompt_that_somebody_else_wrote_around_it() -> None:
    relay, _ = opened("x")
    question = "When was the walruszq weighed?"
    prompt = f"Use this: [1] {FACTS[0]}\n\nQuestion, in short: {question.upper()}"
    messages = [Message(role="system", content="Be kind."), Message(role="user", content=prompt)]
    seen = observe_answer(
        relay, "In March.", [FACTS[0]], question, messages=messages, model="m"
    ).receipt
    assert seen is not None
    copy = redact(seen, names=["request"])
    assert verify(write(copy)).ok
    assert "walruszq" not in in_file(copy).lower()
    # What is not the question's stays.
    assert copy.text(copy.number("answer")) == "In March."
    assert FACTS[0] in in_file(copy)


def test_a_question_goes_with_what_quotes_it_word_for_word() -> None:
    relay, _ = opened(looks_up("the weight of the walruszq"), "I was asked: Is the walruszq heavy?")
    answer = relay.ask(
        "Is the walruszq heavy?", model=MODEL, session_id=SESSION, strategy="agentic"
    )
    receipt = receipt_of(relay, answer.receipt_id)
    assert "walruszq" in (receipt.text(receipt.number("instruction/1")) or "")
    copy = redact(receipt, names=["request"])
    assert verify(write(copy)).ok
    assert "walruszq" not in in_file(copy)
    assert replay(copy).same
    # A caller who keeps what may quote a fact has not looked for the question.
    assert "walruszq" not in in_file(redact(receipt, names=["request"], quoting=False))


def test_a_fact_goes_with_the_question_that_has_it_word_for_word() -> None:
    secret = "The walruszq weighs 105 kg."
    relay, _ = opened("It is.")
    seen = observe_answer(relay, "It is.", [secret], f"Is this true: {secret}").receipt
    assert seen is not None
    copy = redact(seen, facts=["context-1"])
    assert "walruszq" not in in_file(copy)
    kept = redact(seen, facts=["context-1"], quoting=False)
    assert kept.text(kept.number("request")) is not None


def test_a_context_goes_with_what_it_is_put_together_from() -> None:
    receipt = asked()
    copy = redact(receipt, names=["context"])
    assert verify(write(copy)).ok
    shown = [
        receipt.content["candidates"][one["at"]] for one in receipt.content["envelope"]["facts"]
    ]
    texts = [receipt.text(one["leaf"]) or "" for one in shown]
    assert texts
    assert all(text not in in_file(copy) for text in texts)
    # Only what was not shown is left of the candidates.
    assert copy.text(copy.number("request")) is not None


def test_earlier_answers_go_with_a_fact_that_they_may_quote() -> None:
    relay, _ = opened("x")
    witnessed = observe_answer(relay, "It is heavy.", [SECRET, "Tulips grow."], "?", prior=[SAID])
    assert witnessed.receipt is not None
    copy = redact(witnessed.receipt, facts=["context-1"])
    assert verify(write(copy)).ok
    assert "walruszq" not in in_file(copy)
    assert "Tulips" in in_file(copy)


def test_words_of_a_fact_go_with_it_though_the_answer_is_kept() -> None:
    labels = Leaf("communities", '["walruszq"]', of=(3, 4))
    draft = Draft(CONTENT, (*leaves("It is 1.", "It is 2."), labels))
    copy = redact(issue(draft, CHAIN, KEY, SALT_KEY), facts=["f0"], quoting=False)
    assert verify(write(copy), contents=False).ok
    assert "walruszq" not in in_file(copy)
    assert copy.text(copy.number("answer")) is not None


@pytest.mark.parametrize("cache", [None, "no-store", "no-store from the second"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_erased_source_is_gone_from_summaries_of_earlier_windows(
    kind: str, cache: str | None, tmp_path: Path
) -> None:
    """Stored or held in memory, a continued window's receipt is whole until then."""
    place = tmp_path / "store"
    store: Any = MemoryStore() if kind == "memory" else SqliteStore(place)
    script = (SAID, f"{SAID} Northfield Energy reported revenue.", "The reactor delivers power.")
    model = ScriptedModel(*script)
    relay = Relay.open(store, embedder=HashEmbedder(), key=MASTER, clock=NOON, models=model)
    relay.fabric.add(list(FACTS))
    (tmp_path / "secret.md").write_text(SECRET)
    relay.ingest(tmp_path / "secret.md", prefix="kb/")
    before: tuple[str, ...] = ()
    for question in ("How heavy is the animal of Quimperley?", "And what revenue?", "And power?"):
        answer = relay.ask(
            question,
            model=MODEL,
            session_id=SESSION,
            continuation_ids=before or None,
            budget_tokens=80,
            cache="no-store" if cache == "no-store" or (cache and before) else None,
        )
        before = (answer.continuation_id,)
    ids = relay.receipts().ids()
    assert len(ids) == 3
    for id_ in ids:
        assert relay.receipts().verify(id_).erased == 0
    summaries = [
        one["source"]
        for id_ in ids
        for one in receipt_of(relay, id_).content["candidates"]
        if one["source"].startswith("crp:summary:")
    ]
    assert summaries
    (source,) = [one for one in relay.fabric.sources() if one.uri.endswith("secret.md")]
    relay.fabric.erase(source.source_id)
    for id_ in ids:
        assert "walruszq" not in in_file(receipt_of(relay, id_))
        assert relay.receipts().verify(id_).ok
    relay.fabric.maintain()
    relay.close()
    files = sorted(place.rglob("*")) if place.exists() else []
    whole = b"".join(one.read_bytes() for one in files if one.is_file())
    assert b"walruszq" not in whole.lower()


def _without(name: str) -> Any:
    return lambda content: content.pop(name)


def _set(*path: Any) -> Any:
    *rooms, last, value = path

    def change(content: dict[str, Any]) -> None:
        at: Any = content
        for room in rooms:
            at = at[room]
        at[last] = value

    return change


def _setting(content: dict[str, Any]) -> None:
    told = content["settings"]["envelope"]
    told[next(name for name in told if "." not in name) + ".x"] = 1


def _deep(content: dict[str, Any]) -> None:
    value: Any = 0
    for _ in range(900):
        value = [value]
    content["report"]["deep"] = value


STRANGE = {
    **{f"no {name}": _without(name) for name in ("envelope", "examined", "calls", "fit")},
    "tier": _set("selected", "memory_tier_hit", 2**53 - 1),
    "at": _set("envelope", "facts", 0, "at", 99),
    "signal": _set("examined", "signals", 0, "value", []),
    "nan": _set("examined", "signals", 0, "value", 0, 0, "nan"),
    "scale": _set("scale", 100),
    "setting": _setting,
    "deep": _deep,
}


@pytest.mark.parametrize("how", STRANGE)
def test_a_strangers_content_is_refused_and_never_a_crash(how: str) -> None:
    """It is signed, so it verifies; whoever does it again is told where it is wrong."""
    receipt = asked()
    strange = changed(receipt, STRANGE[how])
    for run in (
        lambda: replay(strange),
        lambda: whatif(strange, Supposition(budget_tokens=60)),
        lambda: diff(receipt, strange),
    ):
        with suppress(ReceiptBroken):
            run()


def test_a_small_file_cannot_ask_for_huge_passages() -> None:
    relay, _ = opened("x")
    seen = observe_answer(relay, "It is heavy.", ["x" * 1_000_000], "How heavy?").receipt
    assert seen is not None
    (passage,) = seen.content["examined"]["passages"]
    (leaf,) = passage["pieces"]
    many = [{**passage, "id": f"p{n}", "pieces": [leaf] * 40} for n in range(500)]
    strange = changed(seen, _set("examined", "passages", many), {"context": "x"})
    with pytest.raises(ReceiptBroken, match="a text is too long"):
        replay(strange).require()


def test_a_name_of_a_strangers_receipt_does_not_steer_the_terminal() -> None:
    strange = changed(asked(), lambda content: content.update({"\x1b[2Jx": 1}))
    with pytest.raises(ReceiptBroken, match=r"\\x1b\[2Jx") as refused:
        replay(strange)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("told", [[], "x", 1, None])
def test_a_model_of_any_shape_is_refused_in_a_sentence(told: Any, tmp_path: Path) -> None:
    path = tmp_path / "strange.json"
    path.write_bytes(write(changed(asked(), _set("model", told))))
    with pytest.raises(ReceiptBroken, match=r"content\.model"):
        receipt.replay(str(path))


def test_a_scale_of_its_own_is_refused() -> None:
    with pytest.raises(ReceiptBroken, match="scale"):
        replay(changed(asked(), _set("scale", 100)))


def test_a_text_that_is_not_there_cannot_be_of_any_length() -> None:
    receipt = asked()
    copy = redact(receipt, facts=[receipt.content["candidates"][0]["id"]])
    with pytest.raises(ReceiptBroken, match="characters"):
        replay(changed(copy, _set("candidates", 0, "characters", 10**12)))


def test_no_word_of_a_strangers_content_steers_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def hostile(content: dict[str, Any]) -> None:
        content["policy"] |= {"reason": "\x1b]0;x\x07", "decision": "\x1b[31mx"}
        content["model"]["answered"] = "\x1b[2Jevil"
        found = {"kind": "\x1b[2Jk", "evidence": None}
        content["report"]["claims"][0]["findings"] = [found]

    strange = changed(asked(), hostile)
    receipt_views.draw_receipt(strange, verify(strange))
    shown = capsys.readouterr().out
    assert "evil" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown
