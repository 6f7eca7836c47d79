"""The file of a receipt: any changed byte is refused at its place, texts can be left out."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.receipt.canonical import b64, dumps
from crp_integrations.receipt.leaves import Leaf, composed, leaf_hash, salts
from crp_integrations.receipt.records import (
    DisclosedText,
    Draft,
    OmissionReason,
    issue,
    read,
    write,
)
from crp_integrations.receipt.redaction import erased, redact, silent
from crp_integrations.receipt.signed_statement import IN_TOTO, SigningKey
from tests.receipt.made import CHAIN, CONTENT, KEY, OTHER_SEED, SALT_KEY, leaves, receipt, verify

FACTS = tuple(f"The walrus {n} weighs {100 + n} kg, é 🦭." for n in range(6))
FILE = write(receipt(*FACTS))
PLACES = {
    "encoding": ("file", "schema", "key", "texts", "envelope", "payload"),
    "signature": ("envelope.signatures[0]",),
    "texts": ("texts[",),
}


def test_a_receipt_reads_back_as_it_was_made() -> None:
    made = receipt(*FACTS)
    again = read(write(made))
    assert again == made
    assert write(again) == FILE
    assert again.receipt_id == made.receipt_id
    assert again.text(again.number("answer")) == "It weighs 105 kg."
    context = again.text(again.number("context"))
    assert context == "".join(f"[{n}] {text}\n\n" for n, text in enumerate(FACTS, start=1))
    assert again.content["numbers"] == CONTENT["numbers"]
    found = verify(FILE)
    assert found.ok and not found.pinned and found.place == "" and found.shown == found.texts == 9
    assert [step.ok for step in found.steps] == [True] * 5 + [None] * 2


def test_the_same_draft_gives_the_same_bytes() -> None:
    assert write(receipt(*FACTS)) == FILE
    other = receipt(*FACTS, hmac="sha256:" + "cd" * 32)
    # Salts follow from the window, so equal texts in two receipts cannot be told.
    hashes = {leaf.hash for leaf in receipt(*FACTS).leaves}
    assert hashes.isdisjoint(leaf.hash for leaf in other.leaves)


@given(ids=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), unique=True))
def test_leaves_are_written_as_rfc_8785_writes_them(ids: list[str]) -> None:
    told = (*leaves()[:1], Leaf("context"), *(Leaf(f"fact/{id_}", id_, id_) for id_ in ids))
    made = issue(Draft(CONTENT, (*told, Leaf("answer", of=(0,)))), CHAIN, KEY, SALT_KEY)
    assert made.signed.payload == rfc8785.dumps(json.loads(made.signed.payload))
    assert read(write(made)) == made


def test_a_fact_that_is_no_utf_8_is_not_signed() -> None:
    odd = Draft(CONTENT, (*leaves(), Leaf("fact/\ud800", "text", "\ud800")))
    with pytest.raises(ValueError, match="UTF-8"):
        issue(odd, CHAIN, KEY, SALT_KEY)


@pytest.mark.parametrize("changed", [{"of": (1.0,)}, {"parts": ("[1] ", (3, 0.0, 1))}])
def test_a_float_in_a_leaf_is_not_signed(changed: Any) -> None:
    made = Draft(CONTENT, (*leaves("A fact."), Leaf("seal", "text", **changed)))
    with pytest.raises(ValueError, match="not an integer"):
        issue(made, CHAIN, KEY, SALT_KEY)


@settings(max_examples=400)
@given(at=st.integers(0, len(FILE) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_refused_at_its_place(at: int, bit: int) -> None:
    changed = bytearray(FILE)
    changed[at] ^= 1 << bit
    _refused(bytes(changed))


@settings(max_examples=200)
@given(at=st.integers(0, len(FILE) - 1), byte=st.integers(0, 255))
def test_any_changed_byte_is_refused_at_its_place(at: int, byte: int) -> None:
    changed = bytearray(FILE)
    if changed[at] != byte:
        changed[at] = byte
        _refused(bytes(changed))


@settings(max_examples=100)
@given(
    at=st.integers(0, len(FILE)), count=st.integers(1, 4), data=st.binary(min_size=1, max_size=3)
)
def test_bytes_that_come_or_go_are_refused(at: int, count: int, data: bytes) -> None:
    _refused(FILE[:at] + FILE[at + count :] if at < len(FILE) else FILE + data)
    _refused(FILE[:at] + data + FILE[at:])


def _refused(data: bytes) -> None:
    found = verify(data)
    assert not found.ok
    assert found.reason
    bad = next(step for step in found.steps if step.ok is False)
    assert found.place.startswith(PLACES[bad.name]), (bad.name, found.place)
    assert all(step.ok for step in found.steps[: bad.number - 1])
    assert all(step.ok is None for step in found.steps[bad.number :])


@pytest.mark.parametrize("number", range(9))
def test_a_changed_text_is_named(number: int) -> None:
    made = receipt(*FACTS)
    one = made.texts[number]
    assert isinstance(one, DisclosedText)
    changed = (
        DisclosedText(bytes(32), None)
        if one.text is None
        else DisclosedText(one.salt, f"{one.text}!")
    )
    found = verify(
        write(replace(made, texts=(*made.texts[:number], changed, *made.texts[number + 1 :])))
    )
    assert (found.place, found.steps[4].ok) == (f"texts[{number}]", False)


def test_a_swap_of_two_texts_is_refused() -> None:
    made = receipt(*FACTS)
    texts = list(made.texts)
    texts[3], texts[4] = texts[4], texts[3]
    assert not verify(write(replace(made, texts=tuple(texts)))).ok


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda file: file.update(schema="receipt/2"), "schema"),
        (lambda file: file.update(more=1), "file"),
        (lambda file: file.pop("key"), "file"),
        (lambda file: file.update(key=b64(bytes(31))), "key"),
        (lambda file: file["texts"].pop(), "texts"),
        (lambda file: file["texts"].__setitem__(0, "lost"), "texts[0]"),
        (lambda file: file["texts"].__setitem__(0, None), "texts[0]"),
        (lambda file: file["texts"][1].update(text="x"), "texts[1]"),
        (lambda file: file["texts"][0].update(salt=b64(bytes(31))), "texts[0].salt"),
        (lambda file: file["texts"][0].update(text=1), "texts[0].text"),
        (lambda file: file["texts"][0].update(salt=1), "texts[0].salt"),
        (lambda file: file["texts"][0].update(salt=b64(bytes(32))[:-2] + "B="), "texts[0].salt"),
        (lambda file: file["texts"][0].update(more="x"), "texts[0]"),
    ],
)
def test_a_file_has_one_form(change: Any, place: str) -> None:
    file = json.loads(FILE)
    change(file)
    found = verify(dumps(file) + b"\n")
    assert (found.place, found.steps[0].ok) == (place, False)


def test_a_file_ends_with_one_line_feed() -> None:
    assert verify(FILE[:-1]).place == f"file, byte {len(FILE) - 1}"
    assert not verify(FILE + b"\n").ok
    assert not verify(b"").ok


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda said: said.update(_type="https://in-toto.io/Statement/v0.1"), "payload._type"),
        (lambda said: said.update(predicateType="https://slsa.dev"), "payload.predicateType"),
        (lambda said: said["subject"].reverse(), "payload.subject[0].name"),
        (lambda said: said["subject"].pop(), "payload.subject"),
        (lambda said: said["predicate"].update(more=1), "payload.predicate"),
        (lambda said: said["predicate"]["texts"]["leaves"][3].update(name="x"), None),
        (lambda said: said["predicate"]["texts"]["leaves"][3].update(fact=""), None),
        (lambda said: said["predicate"]["texts"]["leaves"][3].update(fact="f1"), None),
        (lambda said: said["predicate"]["texts"]["leaves"][2].update(of=[99]), None),
        (lambda said: said["predicate"]["texts"]["leaves"][1].update(parts=[1]), None),
        (lambda said: said["predicate"]["texts"]["leaves"][1].update(parts=[[3, 2, 1]]), None),
        (lambda said: said["predicate"]["texts"]["leaves"][1].update(parts=[[3, 0]]), None),
        (lambda said: said["predicate"]["texts"]["leaves"][1].update(parts=[True]), None),
        (lambda said: said["predicate"]["texts"]["leaves"][0].update(follows=0), None),
        (lambda said: said["predicate"]["texts"].update(root="AB" * 32), None),
        (lambda said: said["predicate"]["chain"].update(window_number=0), None),
        (lambda said: said["predicate"].update(content=[]), "payload.predicate.content"),
    ],
)
def test_what_is_signed_has_one_form(change: Any, place: str | None) -> None:
    """Also where the signature is right: the signer himself cannot write it otherwise."""
    said = json.loads(receipt(*FACTS).signed.payload)
    change(said)
    found = verify(_signed(dumps(said)))
    assert found.steps[0].ok is False
    assert place is None or found.place == place


@pytest.mark.parametrize(
    ("change", "step", "place"),
    [
        (
            lambda said: said["subject"][2]["digest"].update(sha256="ab" * 32),
            "subjects",
            "payload.subject[2].digest",
        ),
        (
            lambda said: said["predicate"]["texts"].update(root="ab" * 32),
            "tree",
            "payload.predicate.texts.root",
        ),
        (
            lambda said: said["predicate"]["chain"].update(window_number=2),
            "chain",
            "payload.predicate.chain.parents",
        ),
    ],
)
def test_what_a_signer_got_wrong_is_named(change: Any, step: str, place: str) -> None:
    said = json.loads(receipt(*FACTS).signed.payload)
    change(said)
    found = verify(_signed(dumps(said)))
    assert (next(one.name for one in found.steps if one.ok is False), found.place) == (step, place)


def test_a_signed_payload_in_another_encoding_is_refused() -> None:
    said = json.loads(receipt(*FACTS).signed.payload)
    found = verify(_signed(json.dumps(said).encode()))
    assert found.steps[0].ok is False
    assert found.place.startswith("payload, byte")


def _signed(payload: bytes) -> bytes:
    file = json.loads(FILE)
    file["envelope"] = KEY.sign(IN_TOTO, payload).to_json()
    return dumps(file) + b"\n"


def test_a_key_that_the_reader_knows_is_the_only_proof_of_who_signed() -> None:
    other = SigningKey(OTHER_SEED)
    forged = write(issue(Draft(CONTENT, leaves(*FACTS)), CHAIN, other, SALT_KEY))
    assert verify(forged).ok
    assert not verify(forged).pinned
    found = verify(forged, key=KEY.public)
    assert (found.ok, found.place, found.pinned) == (False, "key", True)
    assert verify(FILE, key=KEY.public).ok
    assert verify(FILE, key=[other.public, KEY.public]).ok
    assert not verify(FILE, key=[]).ok


# --- leaving texts out ---------------------------------------------------------------------


@given(chosen=st.sets(st.sampled_from(range(len(FACTS)))))
def test_any_facts_can_be_left_out(chosen: set[int]) -> None:
    made = receipt(*FACTS)
    copy = redact(made, facts=[f"f{n}" for n in sorted(chosen)])
    data = write(copy)
    found = verify(data, key=KEY.public)
    assert found.ok
    assert found.facts_left_out == len(chosen)
    # The context and the answer show every fact here, so they go with the first of them.
    assert found.redacted == (len(chosen) + 2 if chosen else 0)
    assert found.receipt_id == made.receipt_id
    assert copy.signed == made.signed
    text = data.decode()
    for number, fact in enumerate(FACTS):
        assert (fact in text) is (number not in chosen)
        salt = made.texts[3 + number]
        assert isinstance(salt, DisclosedText)
        assert (b64(salt.salt) in text) is (number not in chosen)
    assert copy.text(3) == (None if 0 in chosen else FACTS[0])
    if chosen:
        assert copy.text(copy.number("context")) is None
        assert copy.text(copy.number("answer")) is None
        assert "It weighs" not in text
        again = redact(read(data), facts=[f"f{n}" for n in range(len(FACTS))])
        assert verify(write(again)).facts_left_out == len(FACTS)


def test_texts_can_be_left_out_by_source_and_by_name() -> None:
    made = receipt(*FACTS)
    copy = redact(made, sources=["doc1"])
    assert [copy.state(3 + n) for n in range(6)] == ["shown", "redacted"] * 3
    copy = redact(made, names=["answer"])
    assert [leaf.name for n, leaf in enumerate(copy.leaves) if copy.state(n) != "shown"] == [
        "answer"
    ]
    copy = redact(made, facts=["f0"], quoting=False)
    assert [copy.state(n) for n in range(4)] == ["shown", "redacted", "shown", "redacted"]
    for wrong in ({"facts": ["f9"]}, {"names": ["x"]}, {"sources": ["doc9"]}):
        with pytest.raises(RequestError, match=r"named|source"):
            redact(made, **wrong)


def test_a_guess_at_what_was_left_out_cannot_be_checked() -> None:
    """Two receipts that differ in one hidden text alone tell nothing of it to who guesses."""
    said = json.loads(write(redact(receipt("It is 1.", "x"), facts=["f0"])))
    payload = base64.b64decode(said["envelope"]["payload"]).decode()
    from hashlib import sha256

    for guess in ("It is 1.", "[1] It is 1.\n\n[2] x\n\n"):
        for data in (guess.encode(), b"\0" + guess.encode(), b"\0" + bytes(32) + guess.encode()):
            assert sha256(data).hexdigest() not in payload


def test_erased_facts_are_tombstones() -> None:
    made = receipt(*FACTS)
    gone = erased(made, {"f1", "unknown"})
    assert [gone.state(n) for n in range(9)] == (
        ["shown", "erased", "erased", "shown", "erased", "shown", "shown", "shown", "shown"]
    )
    found = verify(write(gone), key=KEY.public)
    assert (found.ok, found.erased, found.facts_left_out) == (True, 3, 1)
    assert FACTS[1] not in write(gone).decode()
    # Whoever shares it on leaves out more, and what was erased stays erased.
    shared = redact(gone, facts=["f1", "f2"])
    assert (shared.state(4), shared.state(5)) == ("erased", "redacted")
    assert verify(write(shared)).ok
    assert erased(made, set()) is made
    # What may repeat an emptied window goes alone, when that is what is gone.
    assert [erased(made, set(), answers=True).state(n) for n in range(4)] == (
        ["shown", "shown", "erased", "shown"]
    )
    empty = made.without(dict.fromkeys(range(len(made.texts)), OmissionReason.ERASED))
    assert silent(empty) and not silent(gone)
    assert verify(write(empty)).erased == 9


def test_a_word_in_the_place_of_a_text_is_one_of_two() -> None:
    made = receipt(*FACTS)
    half = {3: OmissionReason.REDACTED, 1: OmissionReason.REDACTED}
    assert verify(write(made.without(half))).ok
    # A context that is there needs all that it is put together from.
    found = verify(write(made.without({3: OmissionReason.REDACTED})))
    assert (found.ok, found.place) == (False, "texts[1]")


# --- leaves --------------------------------------------------------------------------------


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=5),
    data=st.data(),
)
def test_a_composed_text_is_that_of_its_parts(texts: list[str], data: st.DataObject) -> None:
    parts: list[Any] = []
    wanted = ""
    for _ in range(data.draw(st.integers(0, 6))):
        kind = data.draw(st.sampled_from(["literal", "whole", "stretch"]))
        number = data.draw(st.integers(0, len(texts) - 1))
        if kind == "literal":
            part: Any = data.draw(st.text(st.characters(codec="utf-8"), max_size=3))
            wanted += part
        elif kind == "whole":
            part = number
            wanted += texts[number]
        else:
            end = data.draw(st.integers(0, len(texts[number])))
            start = data.draw(st.integers(0, end))
            part = (number, start, end)
            wanted += texts[number][start:end]
        parts.append(part)
    assert composed(parts, texts.__getitem__) == wanted


def test_a_small_file_cannot_ask_for_a_huge_text() -> None:
    large = "x" * 1_000_000
    assert composed([0] * 1_000_000, lambda _: large) is None


def test_many_texts_of_a_small_file_are_no_longer_together_than_ten() -> None:
    asked_for: list[int] = []

    class Large(str):
        __slots__ = ()

        def __getitem__(self, at: Any) -> str:
            asked_for.append(1)
            return super().__getitem__(at)

    large = Large("x" * 1_000_000)
    again = tuple(Leaf(f"again/{n}", "x", parts=((3, 0, 1_000_000),) * 50) for n in range(99))
    made = issue(Draft(CONTENT, (*leaves(large), *again)), CHAIN, KEY, SALT_KEY)
    texts = list(made.texts)
    texts[3] = texts[3]._replace(text=large)  # type: ignore[union-attr]
    found = verify(replace(made, texts=tuple(texts)))
    assert (found.ok, found.place) == (False, "texts[4]")
    # The first is of another text; of honest ones ten are put together and no more.
    assert len(asked_for) == 50


def test_a_stretch_beyond_its_leaf_is_refused() -> None:
    assert composed([(0, 0, 4)], lambda _: "abc") is None
    bad = (*leaves("abc"), Leaf("more", parts=((3, 0, 4),)))
    with pytest.raises(ValueError, match="beyond the end"):
        issue(Draft({}, bad), CHAIN, KEY, SALT_KEY)


@pytest.mark.parametrize(
    "bad",
    [
        (Leaf("request", "q"), Leaf("answer", "a")),
        (*leaves("a"), Leaf("answer", "twice")),
        (*leaves("a"), Leaf("fact/x", "of no fact")),
        (*leaves("a"), Leaf("other", "of a fact", "f7")),
        (*leaves("a"), Leaf("nested", parts=(1,))),
    ],
)
def test_leaves_that_cannot_be_signed(bad: tuple[Leaf, ...]) -> None:
    with pytest.raises(ValueError, match=r"no leaf is named|leaves\[\d+\]"):
        issue(Draft({}, bad), CHAIN, KEY, SALT_KEY)


def test_salts_are_secret_and_of_their_place() -> None:
    made = salts(SALT_KEY, "w", 4)
    assert len({*made, *salts(SALT_KEY, "x", 4), *salts(b"t" * 32, "w", 4)}) == 12
    assert salts(SALT_KEY, "w", 2) == made[:2]
    assert {len(one) for one in made} == {32}
    # A length of salt that never changes keeps texts and salts apart.
    assert leaf_hash(b"a" * 32, "b") != leaf_hash(b"a" * 31 + b"\0", "b")


def test_files_of_others_are_refused_in_words() -> None:
    for data, place in (
        (b"\n", "file"),
        (b"[]\n", "file"),
        (b"{}\n", "schema"),
        (b"\xff\n", "file"),
    ):
        found = verify(data)
        assert not found.ok
        assert found.place.startswith(place)
        assert (found.receipt_id, found.keyid, found.texts) == ("", "", 0)
    with pytest.raises(ReceiptBroken, match="schema: is null, wanted 'receipt/1'"):
        read(b"{}\n")
