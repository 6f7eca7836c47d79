"""Verification of a receipt in seven numbered steps; reports the place of the first error.

1. encoding: the file is in its only valid encoding
2. signature: Ed25519 over the payload, by the key in the file, or by one that the caller gives
3. subjects: request, context and answer are leaves of the tree
4. tree: the leaves have the signed root
5. texts: each text in the file matches its leaf's hash
6. chain: the window follows the given parents, and the receipt is in the given log
7. contents: all that follows from the receipt alone is computed again (`replay` without engines)

One word says what it comes to: `broken` (steps 1 to 6), `differs` (step 7), `not recomputed` if
step 7 needs a text that is not in the copy, else `holds`.

A receipt contains its own public key, so a file that someone else made and signed verifies as well.
Only a key that you know identifies the signer: pass it as `key`, and the result is `pinned`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from pydantic import Field

from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.receipt.leaves import LONGEST_TOGETHER, composed, leaf_hash, leaf_hashes
from crp_integrations.receipt.ledger import Inclusion, SignedHead, check_inclusion
from crp_integrations.receipt.merkle import Tree
from crp_integrations.receipt.records import OmissionReason, Receipt, read, require_receipt
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import BROKEN, DIFFERS, NOT_RECOMPUTED, Stated
from crp_integrations.receipt.signed_statement import KEY_BYTES, SUBJECTS, keyid_of
from crp_integrations.records import Part, Record


class Step(Part):
    """One step of the verification.

    Attributes:
        ok: None for a step that was skipped, because an earlier one failed or the caller gave
            nothing to compare with.
    """

    number: int = Field(ge=1)
    name: str
    ok: bool | None
    place: str = ""
    reason: str = ""


class Verified(Record):
    """Result of a verification.

    Attributes:
        place, reason: place and reason of the first failure; empty if there was none.
        receipt_id, keyid: ids of receipt and key; empty for a file that cannot be read.
        word: `holds`, `differs`, `broken` or `not recomputed`.
        stated: name and value of each thing that rests on the signer's word alone.
        pinned: whether the signature was checked with a key that the caller gave.
        texts: total number of leaves, the sum of `shown`, `redacted` and `erased`.
        facts_left_out: number of redacted or erased texts that are texts of facts.
    """

    SCHEMA = "receipt-verified/1"

    ok: bool
    word: str
    place: str = ""
    reason: str = ""
    steps: tuple[Step, ...]
    stated: Stated = ()
    receipt_id: str = ""
    keyid: str = ""
    pinned: bool = False
    texts: int = Field(default=0, ge=0)
    shown: int = Field(default=0, ge=0)
    redacted: int = Field(default=0, ge=0)
    erased: int = Field(default=0, ge=0)
    facts_left_out: int = Field(default=0, ge=0)


def verify(
    data: bytes | Receipt,
    *,
    key: bytes | Iterable[bytes] | None = None,
    parents: Sequence[Receipt] = (),
    inclusion: Inclusion | None = None,
    head: SignedHead | None = None,
    contents: bool = True,
) -> Verified:
    """Verify the file of a receipt; only the file is needed.

    Args:
        data: the file, or a receipt that `read` returned, which has passed step 1.
        key: the public key of the expected signer, 32 bytes, or several accepted keys; None
            accepts the key in the file.
        parents: receipts of windows that this window follows, which you verify separately; signed
            by the same key or by another one of `key`.
        contents: whether to take step 7, which computes the contents again.

    Raises:
        RequestError: an argument has the wrong type. A file that is not a receipt does not raise:
            the result has `ok=False`.
    """
    if (inclusion is None) != (head is None):
        raise RequestError("inclusion and head go together; give both or neither")
    if isinstance(parents, Receipt):
        raise RequestError("parents is one receipt, wanted a list; put it into one")
    for number, parent in enumerate(parents):
        require_receipt(parent, f"parents[{number}]")
    steps: list[Step] = []
    try:
        receipt = data if isinstance(data, Receipt) else read(data)
    except ReceiptBroken as error:
        steps.append(_failed(1, error))
        return _result(None, steps, pinned=False)
    steps.append(_taken(1, ""))
    pins = None if key is None else _pins(key)
    checks: tuple[Callable[[], str], ...] = (
        lambda: _signature(receipt, pins),
        lambda: _subjects(receipt),
        lambda: _tree(receipt),
        lambda: _texts(receipt),
        lambda: _chain(receipt, parents, inclusion, head, pins),
    )
    for number, check in enumerate(checks, start=2):
        if steps[-1].ok is False:
            break
        try:
            steps.append(_taken(number, check()))
        except ReceiptBroken as error:
            steps.append(_failed(number, error))
    word: str = BROKEN
    stated: Stated = ()
    if steps[-1].ok is not False:
        word, step, stated = _contents(receipt, wanted=contents)
        steps.append(step)
    return _result(receipt, steps, pinned=pins is not None, word=word, stated=stated)


def _contents(receipt: Receipt, *, wanted: bool) -> tuple[str, Step, Stated]:
    """Compute the contents again, without engines: the word, the step, and what is only stated."""
    last = len(NAMES)
    if not wanted:
        return NOT_RECOMPUTED, _taken(last, "not asked for"), ()
    statement = receipt.statement
    if statement.digest != statement.computed_digest():
        problem = ReceiptBroken("digest: predicate.digest", "does not fit the predicate")
        return DIFFERS, _failed(last, problem), ()
    try:
        replayed = replay(receipt)
    except ReceiptBroken as error:
        return DIFFERS, _failed(last, error), ()
    part = next((part for part in replayed.parts if part.state == DIFFERS), None)
    if part is not None:
        values = f"recorded {part.recorded}, computed {part.replayed}" if part.recorded else ""
        problem = ReceiptBroken(f"{part.name}: {part.place}", values or "differs when made again")
        return DIFFERS, _failed(last, problem), replayed.stated
    reason = "; ".join(f"{name}: {replayed.part(name).why}" for name in replayed.lacking)
    return replayed.word, _taken(last, reason), replayed.stated


def _pins(key: bytes | Iterable[bytes]) -> list[bytes]:
    pins = [key] if isinstance(key, (bytes, str)) else [*key]
    if any(not isinstance(pin, bytes) for pin in pins):
        odd = next(type(pin).__name__ for pin in pins if not isinstance(pin, bytes))
        raise RequestError(f"a key is of type {odd}; give the {KEY_BYTES} bytes of a public key")
    return pins


NAMES = ("encoding", "signature", "subjects", "tree", "texts", "chain", "contents")


def _signature(receipt: Receipt, pins: Sequence[bytes] | None) -> str:
    receipt.signed.verify(receipt.key)
    if pins is not None and receipt.key not in pins:
        keyids = {keyid for keyid, _ in receipt.signed.further}
        countersigner = next((pin for pin in pins if keyid_of(pin) in keyids), None)
        if countersigner is not None:
            receipt.signed.verify_signer(countersigner)
            return ""
        wanted = " or ".join(keyid_of(pin)[:16] for pin in pins) or "none"
        raise ReceiptBroken("key", f"is {receipt.keyid[:16]}…, wanted {wanted}")
    return ""


def _subjects(receipt: Receipt) -> str:
    for place, name in enumerate(SUBJECTS):
        number = receipt.numbers.get(name)
        if number is None:
            raise ReceiptBroken(f"payload.subject[{place}]", f"no leaf is named {name!r}")
        if receipt.leaves[number].hash != receipt.statement.subjects[name]:
            raise ReceiptBroken(f"payload.subject[{place}].digest", "is not its leaf's hash")
    return ""


def _tree(receipt: Receipt) -> str:
    if Tree(leaf.hash for leaf in receipt.leaves).root != receipt.statement.root:
        raise ReceiptBroken("payload.predicate.texts.root", "is not the root of the leaves")
    return ""


def _texts(receipt: Receipt) -> str:
    composite = []
    plain: list[str | None] = []
    salted: list[tuple[bytes, str]] = []
    at: list[int] = []
    for number, leaf_text in enumerate(receipt.texts):
        if isinstance(leaf_text, OmissionReason):
            plain.append(None)
            continue
        salt, text = leaf_text
        plain.append(text)
        if text is None:
            composite.append((number, leaf_text, receipt.leaves[number]))
        else:
            at.append(number)
            salted.append((salt, text))
    for number, digest in zip(at, leaf_hashes(salted), strict=True):
        leaf = receipt.leaves[number]
        if digest != leaf.hash:
            raise ReceiptBroken(f"texts[{number}]", f"is not the text of {leaf.name!r:.60}")
    # Composed texts come last, so that the error names the text that was changed.
    left = LONGEST_TOGETHER
    for number, leaf_text, leaf in composite:
        text = composed(leaf.parts, plain.__getitem__, left)
        if text is None:
            raise ReceiptBroken(
                f"texts[{number}]",
                f"{leaf.name!r:.60} is composed of texts that are missing, or is too long",
            )
        left -= len(text)
        if leaf_hash(leaf_text.salt, text) != leaf.hash:
            raise ReceiptBroken(f"texts[{number}]", f"is not the text of {leaf.name!r:.60}")
    return ""


def _chain(
    receipt: Receipt,
    parents: Sequence[Receipt],
    inclusion: Inclusion | None,
    head: SignedHead | None,
    pins: Sequence[bytes] | None,
) -> str:
    chain, at = receipt.chain, "payload.predicate.chain"
    if bool(chain.parents) != (chain.window_number > 1):
        raise ReceiptBroken(f"{at}.parents", "do not match the window's number")
    if list(chain.parents) != sorted(set(chain.parents)):
        raise ReceiptBroken(f"{at}.parents", "are not in order")
    known = [receipt.key] if pins is None else pins
    for number, parent in enumerate(parents):
        before = parent.chain
        if parent.key not in known:
            # An HMAC can be checked only with the secret; others rely on the signer's key.
            wanted = " or ".join(keyid_of(key)[:16] for key in known) or "none"
            raise ReceiptBroken(
                f"parents[{number}].key", f"is {parent.keyid[:16]}…, wanted {wanted}"
            )
        if before.session_id != chain.session_id or before.hmac not in chain.parents:
            raise ReceiptBroken(f"{at}.parents", f"window {before.window_id!r:.40} is none of them")
        if before.window_number >= chain.window_number:
            raise ReceiptBroken(f"{at}.window_number", "is not above that of a window it follows")
    if inclusion is not None and head is not None:
        head.check(pins if pins is not None else [receipt.key])
        check_inclusion(inclusion, head.head, receipt.log_hash)
    missing = {parent.chain.hmac for parent in parents} < set(chain.parents)
    notes = []
    if missing:
        notes.append("the receipts of the windows before it were not given")
    if inclusion is None or head is None:
        notes.append("no proof that it is in a log was given")
    return "; ".join(notes)


# Cached, since steps that did not fail are equal for all receipts.
@cache
def _taken(number: int, skipped: str) -> Step:
    """A step that did not fail; `skipped` is the reason if it was skipped."""
    ok = None if skipped else True
    return Step(number=number, name=NAMES[number - 1], ok=ok, reason=skipped)


def _failed(number: int, error: ReceiptBroken) -> Step:
    return Step(
        number=number, name=NAMES[number - 1], ok=False, place=error.place, reason=error.reason
    )


def _result(
    receipt: Receipt | None,
    steps: list[Step],
    *,
    pinned: bool,
    word: str = BROKEN,
    stated: Stated = (),
) -> Verified:
    for number in range(len(steps) + 1, len(NAMES) + 1):
        reason = f"step {steps[-1].number} failed"
        steps.append(Step(number=number, name=NAMES[number - 1], ok=None, reason=reason))
    bad = next((step for step in steps if step.ok is False), None)
    verdict = {
        "ok": bad is None,
        "word": word,
        "place": bad.place if bad else "",
        "reason": bad.reason if bad else "",
        "steps": tuple(steps),
    }
    if receipt is None:
        return Verified(**verdict)
    gone = [text for text in receipt.texts if isinstance(text, OmissionReason)]
    facts = sum(
        bool(leaf.fact_id) and isinstance(text, OmissionReason)
        for leaf, text in zip(receipt.leaves if gone else (), receipt.texts, strict=False)
    )
    return Verified(
        **verdict,
        stated=stated,
        receipt_id=receipt.receipt_id,
        keyid=receipt.keyid,
        pinned=pinned,
        texts=len(receipt.texts),
        shown=len(receipt.texts) - len(gone),
        redacted=gone.count(OmissionReason.REDACTED),
        erased=gone.count(OmissionReason.ERASED),
        facts_left_out=facts,
    )
