"""The receipts of a tenant, as its relay reads them, and their log."""

from __future__ import annotations

from dataclasses import dataclass

from crp_integrations.errors import RequestError, StoreError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.ports import retired_of
from crp_integrations.receipt.ledger import (
    HEAD_TYPE,
    Consistency,
    Head,
    Inclusion,
    SignedHead,
    log_name,
)
from crp_integrations.receipt.merkle import consistency, inclusion, root_of
from crp_integrations.receipt.ports import ReceiptsFacet, receipts_of
from crp_integrations.receipt.records import ID_PREFIX, LeftOut, Receipt, write
from crp_integrations.receipt.redaction import erased, summaries
from crp_integrations.receipt.signed_statement import IN_TOTO, Signed, signing_key
from crp_integrations.receipt.verify import Verified, verify
from crp_integrations.relay.prior_windows import denied_facts
from crp_integrations.relay.world import World
from crp_integrations.seals import iso
from crp_integrations.session.records import session_id_of


@dataclass(frozen=True, slots=True)
class Receipts:
    """Reads receipts, and proves that they are in the log. Safe under threads."""

    namespace: Namespace
    world: World

    def get(self, name: str) -> Receipt | None:
        """A receipt by its id, or the receipt on a window by the window's id."""
        if not isinstance(name, str):
            raise RequestError(
                f"the id of a receipt is of type {type(name).__name__}; give a text, such as "
                "answer.receipt_id"
            )
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            receipt = log.get(name) if name.startswith(ID_PREFIX) else log.of_window(name)
        if receipt is None:
            receipt = self._held(name)
        if receipt is None:
            return None
        hidden = denied_facts(
            self.namespace, {leaf.fact_id for leaf in receipt.leaves if leaf.fact_id}
        )
        return None if hidden or self._uncut(receipt) else receipt

    def ids(self, session_id: str = "", *, after: int = -1, limit: int = 1_000) -> list[str]:
        """Ids of receipts, oldest first; those held in memory come after those of the log."""
        session_id = session_id_of(session_id) if session_id else ""
        with self.namespace.begin(write=False) as transaction:
            logged = _receipts_facet(transaction).ids(
                after=after, limit=limit, session_id=session_id
            )
        return [*logged, *self.world.unwritten.of_session(session_id, self.namespace.residency)]

    @property
    def key(self) -> bytes:
        """The public key that signs now, 32 bytes."""
        return self.keys[-1]

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The public keys of every epoch of the key ring, oldest first."""
        ring = self.world.keyring
        masters = (*retired_of(ring), ring.master())
        return tuple(signing_key(master, self._tenant).public for master in masters)

    def sign(self, payload_type: str, payload: bytes) -> Signed:
        """Sign something that goes with receipts, such as the manifest of an evidence bundle."""
        if payload_type in (IN_TOTO, HEAD_TYPE):
            raise RequestError(f"payload type {payload_type!r:.60} is the ledger's own")
        return signing_key(self.world.keyring.master(), self._tenant).sign(payload_type, payload)

    def head(self) -> SignedHead:
        """The log as it is now, signed."""
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            size = log.size()
            root = root_of(size, log.node)
        now = iso(self.world.clock.now())
        head = Head(log_name(self._tenant, self.namespace.residency), size, root, now)
        return head.sign(signing_key(self.world.keyring.master(), self._tenant))

    def inclusion(self, receipt_id: str, size: int | None = None) -> Inclusion:
        """The proof that a receipt is in the log."""
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            place, now = log.place(receipt_id), log.size()
            wanted = now if size is None else size
            if place is None or not place < wanted <= now:
                raise RequestError(
                    f"receipt {receipt_id!r:.60} is not in a log of {wanted}; it has {now} entries"
                )
            return Inclusion(place, wanted, tuple(inclusion(place, wanted, log.node)))

    def consistency(self, first: int, second: int | None = None) -> Consistency:
        """The proof that the log was only extended between two sizes."""
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            now = log.size()
            last = now if second is None else second
            if not 0 <= first <= last <= now:
                raise RequestError(f"sizes {first} and {last} are not of a log of {now} entries")
            path = consistency(first, last, log.node) if first else []
            return Consistency(first, last, tuple(path))

    def verify(self, name: str) -> Verified:
        """Verify a receipt with this relay's keys, the receipts before it, and its log."""
        receipt = self.get(name)
        if receipt is None:
            raise RequestError(f"there is no receipt {name!r:.60}")
        parents = self._before(receipt)
        head = self.head()
        try:
            proof = self.inclusion(receipt.receipt_id, head.head.size)
        except RequestError:
            proof = None
        return verify(
            write(receipt),
            key=self.keys,
            parents=parents,
            inclusion=proof,
            head=head if proof is not None else None,
        )

    def _before(self, receipt: Receipt) -> list[Receipt]:
        """The receipts on the windows that a receipt's window follows, as far as there are any."""
        wanted, receipts = set(receipt.chain.parents), list[Receipt]()
        # A window mostly follows the last one, so the newest come first; a first window has none.
        for id_ in reversed(self.ids(receipt.chain.session_id)) if wanted else ():
            earlier = self.get(id_)
            if earlier is not None and earlier.chain.hmac in wanted:
                wanted.discard(earlier.chain.hmac)
                receipts.append(earlier)
            if not wanted:
                break
        return receipts

    @property
    def _tenant(self) -> str:
        return self.namespace.subject.tenant

    def _held(self, name: str) -> Receipt | None:
        """A receipt in memory, without the texts of facts that are no longer stored or held.

        Texts that repeat earlier windows go too, once one of those windows has lost a text.
        """
        receipt = self.world.unwritten.find(name, self.namespace.residency)
        if receipt is None:
            return None
        return erased(receipt, self._gone(receipt), answers=self._emptied(receipt))

    def _uncut(self, receipt: Receipt) -> bool:
        """Whether it has personal data that the guard keeps from the relay's subject."""
        texts = {
            leaf.fact_id: receipt.text(number) or ""
            for number, leaf in enumerate(receipt.leaves)
            if leaf.fact_id
        }
        for fact in self.namespace.facts(sorted(texts)):
            kinds, text = self.namespace.decision(fact.labels).redact, texts[fact.fact_id]
            if kinds and text not in fact.content:
                redactor = self.namespace.redactor
                if redactor is None or redactor.redacted(text, kinds) != text:
                    return True
        return False

    def _gone(self, receipt: Receipt) -> set[str]:
        """Facts of a receipt that are neither stored nor held any more."""
        ids = {leaf.fact_id for leaf in receipt.leaves if leaf.fact_id} - summaries(receipt)
        view = self.namespace.view(receipt.chain.session_id)
        held = {fact.fact_id for fact in view.facts(sorted(ids))}
        return ids - self.namespace.stored(sorted(ids)) - held

    def _emptied(self, receipt: Receipt) -> bool:
        """Whether an earlier window of the receipt's session has lost a text."""
        chain, held, region = receipt.chain, self.world.unwritten, self.namespace.residency
        if chain.window_number == 1:
            return False
        before = [held.find(id_, region) for id_ in held.of_session(chain.session_id, region)]
        if any(
            earlier is not None
            and earlier.chain.window_number < chain.window_number
            and self._gone(earlier)
            for earlier in before
        ):
            return True
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            stored = [log.get(id_) for id_ in log.ids(session_id=chain.session_id)]
        return any(LeftOut.ERASED in earlier.texts for earlier in stored if earlier is not None)


def _receipts_facet(transaction: Transaction) -> ReceiptsFacet:
    log = receipts_of(transaction)
    if log is None:
        raise StoreError(f"{type(transaction).__name__} keeps no receipts; give another store")
    return log
