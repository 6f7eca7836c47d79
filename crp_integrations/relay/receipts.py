"""Receipts: their contents, how they are issued, and reading a tenant's receipts and their log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version

from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.window_seals import parents_of
from crp_integrations.dpe.pipeline import Examination
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.candidates import is_summary
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError, StoreError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.policy.records import Policy
from crp_integrations.policy.verdict import DELIVER, UNREACHABLE, WITHHOLD, needs_review
from crp_integrations.ports import retired_of
from crp_integrations.receipt.bundle import KEYS_TYPE, KeyStatement, ReceiptBundle, SigningPeriod
from crp_integrations.receipt.draft import draft
from crp_integrations.receipt.leaves import pseudonym, salt_key
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
from crp_integrations.receipt.records import ID_PREFIX, Draft, OmissionReason, Receipt, issue, write
from crp_integrations.receipt.redaction import erased, summaries
from crp_integrations.receipt.signed_statement import (
    IN_TOTO,
    Chain,
    Signed,
    SigningKey,
    signing_key,
)
from crp_integrations.receipt.verify import Verified, verify
from crp_integrations.receipt.window_values import (
    Asked,
    Decided,
    InForce,
    OriginalValues,
    WindowValues,
)
from crp_integrations.relay.defaults import timestamp
from crp_integrations.relay.memory import IssuedReceipt
from crp_integrations.relay.prior_windows import denied_facts
from crp_integrations.relay.records import Request
from crp_integrations.relay.session_admission import Admission
from crp_integrations.relay.verdict import AnswerVerdict, Unreachable, Withhold
from crp_integrations.relay.window_envelope import WindowEnvelope
from crp_integrations.relay.window_records import DraftMaker, Sealing, SessionUpdate
from crp_integrations.relay.world import World
from crp_integrations.seals import iso
from crp_integrations.session import budget as safety
from crp_integrations.session.ports import sessions_of
from crp_integrations.session.records import session_id_of


def receipt_contents(
    request: Request,
    world: World,
    packing: WindowEnvelope,
    further: Sequence[ModelCall],
    *,
    envelope: Envelope | None,
    text: str,
    reply: Reply | None,
    report: Report,
    examined: tuple[Examination, int] | None,
    sources: Mapping[str, str],
    admission: Admission | None,
    verdict: AnswerVerdict | None,
    original: OriginalValues | None = None,
) -> WindowValues:
    """The values that a window's receipt contains.

    Spec: CRP-SPEC-005 §15.4
    """
    fitted = packing.last
    made = packing.made if fitted is not None and envelope is not None else None
    calls = () if fitted is None else (fitted.call, *further)
    return WindowValues(
        asked=asked_question(request, fitted.call if fitted else None),
        report=report,
        settings=settings_in_force(world),
        fit=made,
        envelope=fitted.envelope if fitted is not None and made is not None else None,
        calls=calls,
        text=text,
        answered_by=reply.model if reply else "",
        finish_reason=reply.finish_reason if reply else "",
        examined=examined[0] if examined else None,
        sources=sources,
        flags_before=examined[1] if examined else len(report.flags),
        decided=decision_of(request, envelope, admission, verdict, world),
        embedder=packing.namespace.embedder.identity,
        reranker=world.engines.reranker.identity if world.engines.reranker else "",
        asker=asker_of(packing.namespace, world),
        documents=packing.documents(envelope, sources.values()),
        judge_prompt=world.engines.judge.prompt.text if world.engines.judge else "",
        state={"state_hash": made.candidates.state_hash} if made else {},
        original=original,
    )


def asker_of(namespace: Namespace, world: World) -> dict[str, str]:
    """The tenant who asked, and the subject under a pseudonym."""
    subject = namespace.subject
    name = pseudonym(world.keyring.master(), subject.tenant, subject.name)
    return {"subject": name, "tenant": subject.tenant}


def settings_in_force(world: World) -> InForce:
    """A world's settings as recorded in a receipt."""
    return InForce(
        world.settings_digest,
        world.settings.envelope,
        world.settings.dpe,
        world.settings.receipt_weights,
    )


@cache
def _version() -> str:
    return version("crp-integrations")


def draft_maker(values: WindowValues) -> DraftMaker:
    """A function that makes the draft of a receipt from the window's seal and report."""

    def drafted(seal: WindowSeal, report: Report) -> Draft:
        hashes = {"response_hash": seal.response_hash, "report_hash": seal.report_hash}
        return draft(values.sealed(report, **hashes), _version())

    return drafted


def asked_question(request: Request, call: ModelCall | None) -> Asked:
    """The question as it was sent to the model."""
    return Asked(
        query=request.query,
        system_prompt=request.system_prompt,
        history=request.history,
        results=request.results,
        instructions=request.instructions,
        tools=request.tools,
        grounding=request.grounding,
        strategy=request.strategy,
        oversight=request.oversight,
        max_tokens=request.max_tokens,
        temperature=call.temperature if call else request.temperature,
        seed=request.seed,
    )


def decision_of(
    request: Request,
    envelope: Envelope | None,
    admission: Admission | None,
    verdict: AnswerVerdict | None,
    world: World,
) -> Decided:
    """The policies in force, their judgement, and the decision on the answer."""
    policy = admission.policy if admission else Policy()
    left = admission.safety_budget if admission else 1.0
    if verdict is None:
        return Decided(policy, admission.report_only if admission else None, safety_budget=left)
    decision = DELIVER
    if isinstance(verdict.decision, Withhold):
        decision = WITHHOLD
    elif isinstance(verdict.decision, Unreachable):
        decision = UNREACHABLE
    return Decided(
        policy=verdict.policy,
        report_only=verdict.report_only,
        judgement=verdict.judgement,
        reported=verdict.reported,
        tier=envelope.quality_tier if envelope else None,
        decision=decision,
        reason=str(verdict.reason or ""),
        approved=verdict.approved,
        safety_budget=left,
        reviewed=needs_review(verdict.judgement, safety.round_budget(left), verdict.terms),
        terms=verdict.terms,
    )


def issue_receipt(sealing: Sealing, update: SessionUpdate) -> IssuedReceipt | None:
    """Sign a window's receipt; add it to the log if the window's report and facts are stored."""
    make, seal, world, stored = sealing.end.draft, sealing.seal, sealing.world, sealing.stored
    log = receipts_of(sealing.transaction)
    if make is None or log is None:
        return None
    with world.tracer.step("receipt"):
        draft = make(seal, sealing.report)
        sources = {leaf.fact_id: leaf.source_id for leaf in draft.leaves if leaf.fact_id}
        written = update.reported and (
            sources.keys() <= stored
            or all(id_ in stored or is_summary(source_id) for id_, source_id in sources.items())
        )
        tenant = sealing.namespace.subject.tenant
        master = world.keyring.master()
        receipt = issue(
            draft,
            Chain.of(seal, parents_of(seal)),
            signing_key(master, tenant),
            salt_key(master, tenant),
        )
        if written:
            if sessions_of(sealing.transaction).report(seal.window_id) is None:
                # One of its sources was withdrawn while the question was being answered.
                receipt = erased(receipt, sources.keys(), answers=True)
            log.add(receipt, {id_: source_id for id_, source_id in sources.items() if source_id})
    return IssuedReceipt(receipt, written)


@dataclass(frozen=True, slots=True)
class Receipts:
    """Reads receipts and proves that they are in the log. Safe under threads."""

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
            receipt = self._in_memory(name)
        if receipt is None:
            return None
        hidden = denied_facts(
            self.namespace, {leaf.fact_id for leaf in receipt.leaves if leaf.fact_id}
        )
        return None if hidden or self._has_hidden_data(receipt) else receipt

    def ids(self, session_id: str = "", *, after: int = -1, limit: int = 1_000) -> list[str]:
        """Ids of receipts, oldest first; those in memory come after those in the log."""
        session_id = session_id_of(session_id) if session_id else ""
        with self.namespace.begin(write=False) as transaction:
            logged = _receipts_facet(transaction).ids(
                after=after, limit=limit, session_id=session_id
            )
        return [
            *logged,
            *self.world.memory.receipts.of_session(session_id, self.namespace.residency),
        ]

    @property
    def key(self) -> bytes:
        """The public key of the current signing key, 32 bytes."""
        return self.keys[-1]

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The public keys of every epoch of the key ring, oldest first."""
        return tuple(key.public for key in self._signing_keys)

    def pseudonym(self, name: str) -> str:
        """The pseudonym under which receipts of the current key name a subject."""
        return pseudonym(self.world.keyring.master(), self._tenant, name)

    def sign(self, payload_type: str, payload: bytes) -> Signed:
        """Sign a payload that accompanies receipts, such as an evidence bundle's manifest."""
        if payload_type in (IN_TOTO, HEAD_TYPE, KEYS_TYPE):
            raise RequestError(f"payload type {payload_type!r:.60} is reserved for the ledger")
        return self._signing_keys[-1].sign(payload_type, payload)

    def head(self) -> SignedHead:
        """The signed head of the current log."""
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            size = log.size()
            root = root_of(size, log.node)
        now = iso(self.world.clock.now())
        head = Head(log_name(self._tenant, self.namespace.residency), size, root, now)
        return head.sign(self._signing_keys[-1])

    def key_statement(self) -> Signed:
        """The keys of the log with the entries that each signed, signed by all of them."""
        keys = self._signing_keys
        epochs = {key.public: epoch for epoch, key in enumerate(keys)}
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            places = range(log.size())

            def entry(place: int) -> Receipt:
                receipt = log.get(log.ids(after=place - 1, limit=1)[0])
                if receipt is None:
                    raise StoreError(f"the log of receipts has no entry {place}")
                return receipt

            periods = []
            start = 0
            for epoch, key in enumerate(keys):
                # Along a log the epoch never falls (ADR 23).
                end = bisect_right(
                    places, epoch, lo=start, key=lambda place: epochs.get(entry(place).key, 0)
                )
                times = [entry(place).chain.timestamp for place in (start, end - 1) if start < end]
                first, last = times or ("", "")
                periods.append(SigningPeriod(key.public, end - start, first, last))
                start = end
        now = iso(self.world.clock.now())
        log_of_tenant = log_name(self._tenant, self.namespace.residency)
        return KeyStatement(log_of_tenant, now, tuple(periods)).sign(keys)

    def bundle(self, name: str) -> ReceiptBundle:
        """A receipt with its proof, the head, the keys, and a time stamp if one is configured.

        Raises:
            RequestError: there is no such receipt, or it is in no log.
            EngineError: the time-stamping authority does not answer.
        """
        receipt = self.get(name)
        if receipt is None:
            raise RequestError(
                f"the store has no receipt {name!r:.80}; crp receipt show lists them"
            )
        head = self.head()
        proof = self.inclusion(receipt.receipt_id, head.head.size)
        settings = self.world.settings
        stamped = b""
        if settings.timestamp_authority:
            stamped = timestamp(settings, sha256(head.write()).digest())
        return ReceiptBundle(receipt, proof, head, self.key_statement(), stamped)

    def inclusion(self, receipt_id: str, size: int | None = None) -> Inclusion:
        """A proof that a receipt is in the log."""
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            place, now = log.place(receipt_id), log.size()
            wanted = now if size is None else size
            if place is None or not place < wanted <= now:
                raise RequestError(
                    f"receipt {receipt_id!r:.60} is not in the first {wanted} of {now} log entries"
                )
            return Inclusion(place, wanted, tuple(inclusion(place, wanted, log.node)))

    def consistency(self, first: int, second: int | None = None) -> Consistency:
        """A proof that the log was only extended between two sizes."""
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            now = log.size()
            last = now if second is None else second
            if not 0 <= first <= last <= now:
                raise RequestError(f"sizes {first} and {last} do not fit a log of {now} entries")
            path = consistency(first, last, log.node) if first else []
            return Consistency(first, last, tuple(path))

    def verify(self, name: str) -> Verified:
        """Verify a receipt with this relay's keys, the receipts before it, and its log."""
        receipt = self.get(name)
        if receipt is None:
            raise RequestError(f"there is no receipt {name!r:.60}")
        parents = self._parents(receipt)
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

    def _parents(self, receipt: Receipt) -> list[Receipt]:
        """The available receipts of the windows that a receipt's window follows."""
        wanted, receipts = set(receipt.chain.parents), list[Receipt]()
        # Newest first, since a window mostly follows the last one. A first window has none.
        for id_ in reversed(self.ids(receipt.chain.session_id)) if wanted else ():
            earlier = self.get(id_)
            if earlier is not None and earlier.chain.hmac in wanted:
                wanted.discard(earlier.chain.hmac)
                receipts.append(earlier)
            if not wanted:
                break
        return receipts

    @property
    def _signing_keys(self) -> tuple[SigningKey, ...]:
        """The signing key of each epoch of the key ring, oldest first."""
        ring = self.world.keyring
        masters = (*retired_of(ring), ring.master())
        return tuple(signing_key(master, self._tenant) for master in masters)

    @property
    def _tenant(self) -> str:
        return self.namespace.subject.tenant

    def _in_memory(self, name: str) -> Receipt | None:
        """A receipt in memory, without the texts of facts that no longer exist.

        Texts that repeat earlier windows are removed too if one of those windows has lost a text.
        """
        receipt = self.world.memory.receipts.find(name, self.namespace.residency)
        if receipt is None:
            return None
        return erased(receipt, self._missing_facts(receipt), answers=self._follows_erased(receipt))

    def _has_hidden_data(self, receipt: Receipt) -> bool:
        """Whether a receipt has personal data that the guard hides from the relay's subject."""
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

    def _missing_facts(self, receipt: Receipt) -> set[str]:
        """Facts of a receipt that are no longer in the store or in memory."""
        ids = {leaf.fact_id for leaf in receipt.leaves if leaf.fact_id} - summaries(receipt)
        view = self.namespace.view(receipt.chain.session_id)
        in_memory = {fact.fact_id for fact in view.facts(sorted(ids))}
        return ids - self.namespace.stored(sorted(ids)) - in_memory

    def _follows_erased(self, receipt: Receipt) -> bool:
        """Whether an earlier window of the receipt's session has lost a text."""
        chain, held, region = receipt.chain, self.world.memory.receipts, self.namespace.residency
        if chain.window_number == 1:
            return False
        before = [held.find(id_, region) for id_ in held.of_session(chain.session_id, region)]
        if any(
            earlier is not None
            and earlier.chain.window_number < chain.window_number
            and self._missing_facts(earlier)
            for earlier in before
        ):
            return True
        with self.namespace.begin(write=False) as transaction:
            log = _receipts_facet(transaction)
            stored = [log.get(id_) for id_ in log.ids(session_id=chain.session_id)]
        return any(
            OmissionReason.ERASED in earlier.texts for earlier in stored if earlier is not None
        )


def _receipts_facet(transaction: Transaction) -> ReceiptsFacet:
    log = receipts_of(transaction)
    if log is None:
        raise StoreError(f"{type(transaction).__name__} keeps no receipts; give another store")
    return log
