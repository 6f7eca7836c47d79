"""Artifacts as one subject may use them: the guard decides each access, the journal records it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pydantic import ValidationError

from crp_integrations.audit.drafts import EventDraft, non_empty
from crp_integrations.errors import AccessDenied, LimitReached, RequestError
from crp_integrations.governance.artifacts import storage
from crp_integrations.governance.artifacts.storage import (
    TEXT,
    AddressClaim,
    Artifact,
    ArtifactContent,
    ObjectStore,
    tenant_keys,
)
from crp_integrations.governance.compaction.records import ArtifactRef
from crp_integrations.governance.settings import ArtifactSettings
from crp_integrations.guard.decisions import Action, Decision, Guard, Subject, require
from crp_integrations.guard.ports import Redactor
from crp_integrations.ports import Clock, Ids, KeyRing
from crp_integrations.seals import HANDLE_INFO, sha256
from crp_integrations.vocabulary import EventType


def _no_labels(ids: Sequence[str]) -> Iterable[str]:
    return ()


def _never_withdrawn(ids: Sequence[str]) -> bool:
    return False


def _always_held(subject: Subject) -> bool:
    return True


class _WithdrawnError(AccessDenied):
    """Raised if a source of an artifact was forgotten or is in quarantine."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The artifacts of one tenant, for one subject. Thread-safe.

    It can be the `ArtifactStore` of a compaction: a text that is put is replaced by a handle, which
    a model may see because it contains neither an address nor a permission.

    Spec: Summit §Isolation Strategy

    Attributes:
        guard: asked for each read, write and erasure, with the artifact's labels.
        tell: writes an event to the tenant's journal; if it raises, nothing is returned.
        redactor: removes personal data if the guard's decision demands it; None refuses the text.
        labels: labels of every artifact that is put here.
        labels_of: labels of the given sources; they count as labels of the artifact as well.
        withdrawn: whether one of the given sources was forgotten or is in quarantine; if so, the
            artifact is neither kept nor read.
        session_id: session named in the journal; empty for none.
    """

    objects: ObjectStore
    subject: Subject
    guard: Guard
    clock: Clock
    ids: Ids
    keyring: KeyRing
    tell: Callable[[EventDraft], object]
    redactor: Redactor | None = None
    labels: tuple[str, ...] = ()
    labels_of: Callable[[Sequence[str]], Iterable[str]] = _no_labels
    withdrawn: Callable[[Sequence[str]], bool] = _never_withdrawn
    session_id: str = ""
    residency: str = ""
    settings: ArtifactSettings = field(default_factory=ArtifactSettings)

    def put(
        self,
        text: str | bytes,
        *,
        kind: str,
        sources: Sequence[str],
        labels: Sequence[str] = (),
        redacted: Sequence[str] = (),
        media_type: str = TEXT,
    ) -> ArtifactRef:
        """Keep a text or bytes; an equal artifact with equal sources gets an equal handle.

        Spec: Summit §Isolation Strategy

        Args:
            kind: `prose`, `log`, `search`, `data`, `summary`, or a tool's own word.
            sources: ids of the items, facts, sources or sessions that it was made from.
            labels: access labels in addition to those of the sandbox and of the sources.
            redacted: kinds of personal data that were already removed from it.

        Raises:
            RequestError: sources, labels or kinds are a text instead of a list, or the kind or
                media type is not valid.
            AccessDenied: the guard denies writing things with these labels, or one of the sources
                was forgotten or is in quarantine.
            LimitReached: it is too large.
            StoreError: it could not be kept.
        """
        lists = {"sources": sources, "labels": labels, "redacted": redacted}
        for name, values in lists.items():
            if isinstance(values, str):
                # Each letter would count as a source, and erasing the real one would miss this.
                raise RequestError(
                    f"{name} is the text {values!r:.40}, wanted a list: [{values!r:.40}]"
                )
        data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        if len(data) > self.settings.most_bytes:
            most = self.settings.most_bytes
            raise LimitReached(f"an artifact of {len(data)} bytes is too large, at most {most}")
        held = {*self.labels, *labels, *self.labels_of(sources)}
        try:
            artifact = Artifact(
                kind=kind,
                media_type=media_type,
                checksum=sha256(data),
                size=len(data),
                # With the session as a source, forgetting the session erases the artifact.
                sources=tuple(sorted({*sources, *([self.session_id] if self.session_id else [])})),
                labels=tuple(sorted(held)),
                redacted=tuple(sorted(set(redacted))),
            )
        except ValidationError as error:
            wrong = ", ".join(sorted({str(fault["loc"][0]) for fault in error.errors()}))
            raise RequestError(f"an artifact cannot be kept: {wrong} is not valid") from None
        self._ask("write", artifact.labels)
        self._check_sources("what is to be kept", artifact)
        ref = storage.keep_artifact(self.objects, self.subject.tenant, artifact, data, self._keys)
        self._note("put", ref)
        unique = tuple(sorted(set(sources)))
        return ArtifactRef(ref=ref, checksum=artifact.checksum, kind=kind, sources=unique)

    def get(self, ref: str) -> ArtifactContent:
        """An artifact, for a tool or a person; a model sees only extracts.

        Raises:
            RequestError: no such artifact is kept for this tenant.
            AccessDenied: the guard denies reading it, or one of its sources was forgotten or is in
                quarantine.
            StoreDamaged: its bytes are not those that were kept.
        """
        content = self._known(ref, "read")
        self._note("read", ref)
        return content

    def sign(self, ref: str, *, seconds: int | None = None) -> str:
        """A signed address that opens an artifact once, until it expires; path and query, no host.

        Spec: Summit §Privacy & Security

        Args:
            seconds: how long the address is valid; None for the setting's value.

        Raises:
            RequestError: no such artifact is kept, or the time is out of its range.
            AccessDenied: as for `get`.
        """
        chosen = self.settings.url_seconds if seconds is None else seconds
        longest = self.settings.longest_url_seconds
        if not 1 <= chosen <= longest:
            raise RequestError(f"an address is valid for 1 to {longest} seconds; got {chosen}")
        self._known(ref, "read")
        now = self.clock.now()
        margin = timedelta(seconds=self.settings.clock_skew_seconds)
        storage.sweep_nonces(self.objects, self.subject.tenant, now, margin)
        claim, address = storage.sign_address(
            ref,
            self.subject,
            self.keyring,
            self.ids,
            until=storage.expiry_after(now, chosen),
            residency=self.residency,
        )
        self._note("signed", ref, nonce=claim.nonce)
        return address

    def open(
        self, artifact_id: str, token: str, *, held: Callable[[Subject], bool] = _always_held
    ) -> ArtifactContent:
        """The artifact that a signed address opens; an address works once.

        Args:
            artifact_id: from the address's path.
            token: from the address's query.
            held: whether the subject for whom the address was made still has its roles; asked now,
                because the roles may have changed since then.

        Raises:
            AccessDenied: the address was altered, has expired or was used, belongs to another
                subject or to one that no longer exists, or reading is denied by now. For a genuine
                address the refusal is written to the journal.
            RequestError: the artifact was erased.
        """
        claim = storage.read_address(artifact_id, token, self.keyring)
        if (claim.subject, claim.residency) != (self.subject, self.residency):
            raise AccessDenied("the address was made for another subject, or another region")
        now = self.clock.now()
        if now >= claim.expires_at:
            raise self._refused(claim, "expired", "the address has expired; ask for another one")
        if not held(claim.subject):
            raise self._refused(claim, "revoked", "the subject of the address no longer has a key")
        try:
            content = self._known(claim.ref, "read")
        except _WithdrawnError as error:
            raise self._refused(claim, "withdrawn", str(error)) from None
        except AccessDenied:
            raise self._refused(claim, "denied", "the guard denies reading the artifact") from None
        except RequestError:
            self._tell_refusal(claim, "unknown")
            raise
        if not storage.spend_nonce(self.objects, claim):
            raise self._refused(claim, "replayed", "the address was used; ask for another one")
        self._note("opened", claim.ref, nonce=claim.nonce)
        return content

    def refs(self) -> tuple[str, ...]:
        """Handles of the artifacts that the subject may read, ascending; reads each of them."""
        refs = []
        for ref in storage.list_refs(self.objects, self.subject.tenant):
            content = storage.find_artifact(self.objects, self.subject.tenant, ref, self._keys)
            if (
                content is not None
                and self._may("read", self._labels(content.artifact))
                and not self.withdrawn(content.artifact.sources)
            ):
                refs.append(ref)
        return tuple(refs)

    def erase(self, ref: str) -> None:
        """Erase an artifact with its bytes.

        Raises:
            RequestError: no such artifact is kept for this tenant.
            AccessDenied: the guard denies erasing it.
        """
        content = self._known(ref, "erase")
        storage.remove_artifact(self.objects, self.subject.tenant, ref, content.artifact.sources)
        self._note("erased", ref)

    # --- within ------------------------------------------------------------------------

    @property
    def _keys(self) -> list[bytes]:
        return tenant_keys(self.keyring, self.subject.tenant, HANDLE_INFO)

    def _ask(self, action: Action, labels: tuple[str, ...]) -> Decision:
        return require(self.guard, self.subject, action, labels)

    def _may(self, action: Action, labels: tuple[str, ...]) -> bool:
        try:
            self._ask(action, labels)
        except AccessDenied:
            return False
        return True

    def _labels(self, artifact: Artifact) -> tuple[str, ...]:
        """The artifact's own labels, and those that its sources have now."""
        return tuple(sorted({*artifact.labels, *self.labels_of(artifact.sources)}))

    def _known(self, ref: str, action: Action) -> ArtifactContent:
        content = None
        if storage.REF.fullmatch(ref):
            content = storage.find_artifact(self.objects, self.subject.tenant, ref, self._keys)
        if content is None:
            raise RequestError(f"no artifact is kept as {ref!r:.60}")
        decision = self._ask(action, self._labels(content.artifact))
        if action == "erase":
            return content
        self._check_sources(ref, content.artifact)
        return self._clean(content, decision)

    def _check_sources(self, what: str, artifact: Artifact) -> None:
        if self.withdrawn(artifact.sources):
            raise _WithdrawnError(
                f"{what} comes from something that was withdrawn: forgotten, or in quarantine "
                "until it is lifted"
            )

    def _clean(self, content: ArtifactContent, decision: Decision) -> ArtifactContent:
        """The content without the personal data that the decision demands to remove."""
        if set(decision.redact) <= set(content.artifact.redacted):
            return content
        try:
            text = content.data.decode()
        except UnicodeDecodeError:
            text = None
        if text is None or self.redactor is None:
            raise AccessDenied(f"personal data must be taken out of {content.ref}, and cannot be")
        data = self.redactor.redacted(text, decision.redact).encode()
        # The hash of the original would confirm a guess at the removed data.
        changes = {"checksum": sha256(data), "size": len(data)}
        return replace(content, artifact=content.artifact.model_copy(update=changes), data=data)

    def _refused(self, claim: AddressClaim, reason: str, message: str) -> AccessDenied:
        self._tell_refusal(claim, reason)
        return AccessDenied(message)

    def _tell_refusal(self, claim: AddressClaim, reason: str) -> None:
        # Once per address and reason, so that repeating a used address cannot fill the journal.
        if storage.spend_nonce(self.objects, claim, reason):
            self._note("refused", claim.ref, nonce=claim.nonce, reason=reason)

    def _note(self, action: str, ref: str, *, nonce: str = "", reason: str = "") -> None:
        data = non_empty(
            artifacts=[ref], action=action, reason=reason, nonce=nonce, subject=self.subject.name
        )
        self.tell(EventDraft(EventType.ARTIFACT_ACCESS, data, self.session_id))


@dataclass(frozen=True, slots=True)
class ArtifactErasure:
    """Erases artifacts together with the facts that they were made from.

    Attributes:
        tell: writes an event to a tenant's journal.
    """

    objects: ObjectStore
    tell: Callable[[str, EventDraft, datetime], object]

    def erase(self, namespace: str, ids: Iterable[str], now: datetime) -> int:
        """Erase artifacts made from these facts or sources; return how many there were.

        Spec: CRP-SPEC-009 §8.3
        """
        gone = storage.erase_derived(self.objects, namespace, ids)
        if gone:
            data = {"artifacts": sorted(gone), "action": "erased", "count": len(gone)}
            self.tell(namespace, EventDraft(EventType.ARTIFACT_ACCESS, data), now)
        return len(gone)

    def erase_all(self, namespace: str) -> int:
        """Erase all artifacts of a tenant, unrecorded, since its trail is erased as well."""
        return storage.erase_tenant(self.objects, namespace)
