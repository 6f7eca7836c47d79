"""Signed heads and proofs of the log of receipts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.ledger import (
    Consistency,
    Head,
    Inclusion,
    SignedHead,
    check_consistency,
    check_inclusion,
    log_name,
)
from crp_integrations.receipt.merkle import EMPTY, Tree, consistency, inclusion, root_of
from crp_integrations.receipt.records import Draft, issue, write
from crp_integrations.receipt.signed_statement import SigningKey
from tests.receipt.made import CHAIN, CONTENT, KEY, OTHER_SEED, SALT_KEY, leaves, receipt, verify

RECEIPTS = [receipt(f"fact {n}", hmac=f"sha256:{n:064x}") for n in range(7)]
TREE = Tree(one.log_hash for one in RECEIPTS)
LOG = log_name("acme")


def head(size: int, key: SigningKey = KEY) -> SignedHead:
    made = Head(LOG, size, root_of(size, TREE.node), "2026-11-21T12:00:00Z")
    return made.sign(key)


@given(index=st.integers(0, 6), size=st.integers(1, 7))
def test_a_receipt_is_shown_to_be_in_its_log(index: int, size: int) -> None:
    index %= size
    proof = Inclusion(index, size, tuple(inclusion(index, size, TREE.node)))
    assert Inclusion.read(proof.write()) == proof
    found = verify(write(RECEIPTS[index]), key=KEY.public, inclusion=proof, head=head(size))
    assert found.ok
    assert found.steps[5].ok is True
    other = RECEIPTS[(index + 1) % 7]
    found = verify(write(other), key=KEY.public, inclusion=proof, head=head(size))
    assert (found.ok, found.place) == (False, "proof.path")


def test_a_proof_goes_with_the_size_of_its_head() -> None:
    proof = Inclusion(0, 7, tuple(inclusion(0, 7, TREE.node)))
    check_inclusion(proof, head(7).head, RECEIPTS[0].log_hash)
    with pytest.raises(ReceiptBroken, match=r"proof\.size: is 7, the size in the head is 6"):
        check_inclusion(proof, head(6).head, RECEIPTS[0].log_hash)


def test_a_head_is_signed_by_the_key_of_the_receipts() -> None:
    proof = Inclusion(0, 7, tuple(inclusion(0, 7, TREE.node)))
    forged = head(7, SigningKey(OTHER_SEED))
    data = write(RECEIPTS[0])
    for key in (None, KEY.public):
        found = verify(data, key=key, inclusion=proof, head=forged)
        assert (found.ok, found.place) == (False, "head.key")
    lied = replace(head(7), head=replace(head(7).head, size=8))
    assert lied.write() == head(7).write()
    assert SignedHead.read(lied.write()) == head(7)


def test_a_head_says_what_was_signed() -> None:
    """A head in memory that says something else than its payload is refused."""
    lied = replace(head(7), head=replace(head(7).head, root=EMPTY))
    with pytest.raises(ReceiptBroken, match="head: differs from the signed payload"):
        lied.check([KEY.public])


@settings(max_examples=150)
@given(at=st.integers(0, len(head(7).write()) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_of_a_head_is_refused(at: int, bit: int) -> None:
    changed = bytearray(head(7).write())
    changed[at] ^= 1 << bit
    with pytest.raises(ReceiptBroken, match="head"):
        SignedHead.read(bytes(changed)).check([KEY.public])


@given(first=st.integers(0, 7), second=st.integers(0, 7))
def test_a_log_is_shown_to_only_go_on(first: int, second: int) -> None:
    first, second = sorted((first, second))
    path = tuple(consistency(first, second, TREE.node)) if first else ()
    proof = Consistency(first, second, path)
    assert Consistency.read(proof.write()) == proof
    check_consistency(proof, head(first).head, head(second).head)
    if first != second:
        with pytest.raises(ReceiptBroken, match="other sizes"):
            check_consistency(proof, head(second).head, head(first).head)
    rewritten = replace(head(second).head, root=bytes(32))
    with pytest.raises(ReceiptBroken):
        check_consistency(proof, head(first).head, rewritten) if first else check_consistency(
            proof, replace(head(0).head, root=bytes(32)), head(second).head
        )


def test_heads_of_two_logs_are_not_compared() -> None:
    elsewhere = replace(head(7).head, log=log_name("other"))
    with pytest.raises(ReceiptBroken, match=r"head\.log"):
        check_consistency(Consistency(7, 7, ()), head(7).head, elsewhere)
    names = {log_name("a"), log_name("b"), log_name("a", "eu"), log_name("b", "eu")}
    assert len(names) == 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b'{"index":0,"path":[],"schema":"receipt-proof/1","size":0}\n',
        b'{"index":0,"path":["x"],"schema":"receipt-proof/1","size":1}\n',
        b'{"index":0,"path":{},"schema":"receipt-proof/1","size":1}\n',
        b'{"index":0,"path":[],"schema":"receipt-proof/2","size":1}\n',
        b'{"index":0,"path":[],"schema":"receipt-proof/1","size":1}',
        b'{"index":-1,"path":[],"schema":"receipt-proof/1","size":1}\n',
        b'{"index":true,"path":[],"schema":"receipt-proof/1","size":1}\n',
    ],
)
def test_a_proof_has_one_form(data: bytes) -> None:
    with pytest.raises(ReceiptBroken, match="proof"):
        Inclusion.read(data)


# --- the chain of windows ------------------------------------------------------------------


def test_a_receipt_follows_the_receipts_of_the_windows_before_it() -> None:
    first = receipt("a", hmac="sha256:1")
    second = receipt("b", hmac="sha256:2", parents=("sha256:1",), window_number=2, window_id="w2")
    alone = verify(write(second)).steps[5]
    assert (alone.ok, "windows before it were not given" in alone.reason) == (None, True)
    found = verify(write(second), parents=[first])
    assert found.ok
    assert "windows before it" not in found.steps[5].reason
    for parent, place in (
        (receipt("a", hmac="sha256:3"), "payload.predicate.chain.parents"),
        (receipt("a", hmac="sha256:1", session_id="x"), "payload.predicate.chain.parents"),
        (
            receipt("a", hmac="sha256:1", window_number=2, parents=("sha256:0",)),
            "payload.predicate.chain.window_number",
        ),
    ):
        found = verify(write(second), parents=[parent])
        assert (found.ok, found.place) == (False, place)
    with_both = [first.key, SigningKey(OTHER_SEED).public]
    forged = issue(
        Draft(CONTENT, leaves("forged")), replace(CHAIN, hmac="sha256:1"), SigningKey(OTHER_SEED),
        SALT_KEY,
    )  # fmt: skip
    assert verify(write(forged)).ok
    # Whoever has a key can sign that a window with this HMAC said something else.
    found = verify(write(second), parents=[first, forged])
    assert (found.ok, found.place) == (False, "parents[1].key")
    assert not verify(write(second), key=first.key, parents=[forged]).ok
    # Keys of two epochs are both the signer's.
    assert verify(write(second), key=with_both, parents=[forged]).ok
    for wrong in (("sha256:2", "sha256:1"), ("sha256:1", "sha256:1")):
        forked = receipt("b", hmac="sha256:3", parents=wrong, window_number=2)
        assert verify(write(forked)).place == "payload.predicate.chain.parents"
