"""Everything that a Turn is handed from outside, made once by `build`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crp_integrations.dpe.ports import Recogniser, Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.ports import Reranker, Walker
from crp_integrations.envelope.reuse import KnownEnvelopes
from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.governance.artifacts.records import ObjectStore
from crp_integrations.governance.window_trace import Observer
from crp_integrations.guard.injection.detector import Detector
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.policy.ports import ViolationSink
from crp_integrations.ports import Clock, Ids, KeyRing, TokenCounter, Tracer
from crp_integrations.relay.judge import Judge
from crp_integrations.relay.memory import Remembered
from crp_integrations.relay.personal import Searched
from crp_integrations.relay.sealing.unwritten import Unwritten
from crp_integrations.relay.settings import Settings

# Takes the report on each window that is sealed, such as a compliance system of the operator's.
# That of a `World` neither waits nor raises.
Receiver = Callable[[Report], None]
# Whether an answer may be shown, asked of a person; the report and the text are all they get.
Reviewer = Callable[[Report, str], bool]


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a Turn is handed from outside.

    Attributes:
        namespace: the only way to facts, bound to tenant, subject and guard.
        regions: the same by region, for requests that name one.
        fleeting: makes a place for artifacts in memory, gone with whoever holds it.
        objects: where artifacts lie, by region; `""` for none.
        reranker: looks at the best candidates again; None for none.
        counter_for: the token counter of a model.
        limit_for: a model's context limit in tokens and where the number is from.
        settings_digest: hash of the settings, computed once.
        known: earlier envelopes, for conditional requests.
        policy: evaluates the control catalogue; None leaves that out.
        recognisers: look for personal data beside the package's own.
        code_verified: the engine's code was compared with its published hashes.
        remembered: what `no-store` sessions said.
        reviewer: a person's word on an answer that must be reviewed; None withholds it.
        sink: where violations of a policy are reported to; None for nowhere.
        receiver: gets the report on each sealed window; None for nobody.
        personal: which facts hold personal data, as far as they were looked at.
        unwritten: receipts that may not be on disk.
        observer: told of each window that is sealed; None for nobody.
        detector: looks for injections in what is selected.
        walker: walks the graph around the best facts; None for no graph.
        judge: is asked whether answers hold; None for nobody.
    """

    namespace: Namespace
    clock: Clock
    ids: Ids
    keyring: KeyRing
    tracer: Tracer
    verifier: Verifier
    counter_for: Callable[[str], TokenCounter]
    limit_for: Callable[[str], tuple[int, str]]
    settings: Settings
    settings_digest: str
    known: KnownEnvelopes
    fleeting: Callable[[], ObjectStore]
    regions: Mapping[str, Namespace] = field(default_factory=dict)
    objects: Mapping[str, ObjectStore] = field(default_factory=dict)
    reranker: Reranker | None = None
    policy: PolicyEngine | None = None
    recognisers: tuple[Recogniser, ...] = ()
    code_verified: bool = False
    remembered: Remembered = field(default_factory=Remembered)
    reviewer: Reviewer | None = None
    sink: ViolationSink | None = None
    receiver: Receiver | None = None
    personal: Searched = field(default_factory=Searched)
    unwritten: Unwritten = field(default_factory=Unwritten)
    observer: Observer | None = None
    detector: Detector = field(default_factory=Detector)
    walker: Walker | None = None
    judge: Judge | None = None

    def namespace_in(self, residency: str) -> Namespace:
        """The namespace of a region; the one of no region for an empty name.

        Spec: CRP-SPEC-009 §7.2

        Raises:
            RequestError: there is no such region; names those that there are.
        """
        found = self.regions.get(residency.lower()) if residency else self.namespace
        if found is None:
            raise RequestError(
                f"residency {residency!r:.40} is not one of the regions {sorted(self.regions)}"
            )
        return found
