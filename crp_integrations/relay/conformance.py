"""The conformance report: the weights, factors and thresholds that are in force.

It is the operator's own, so custom numbers are in it; headers and answers hold their digest only.

Spec: CRP-SPEC-005 §7.3, §16.3, §17 (decision D18)
"""

from __future__ import annotations

from crp_integrations.dpe.catalogue import named
from crp_integrations.dpe.records import COMPARISON
from crp_integrations.dpe.settings import LEVEL_CUTS
from crp_integrations.records import Record
from crp_integrations.relay.defaults import (
    default_embedder,
    default_policy,
    default_verifier,
    verified_engine,
)
from crp_integrations.relay.settings import Settings


class Conformance(Record):
    """What decides a verdict here.

    Attributes:
        weights: of the four signals, in the order of their importance.
        levels: lower bound of the composite for each level but the lowest; no setting moves them.
        amplifiers: factor of each, strongest first.
        loop_depth: above which depth the amplifier applies, and above which a call is stopped.
        omissions: importance from which an omission has each severity.
        omission_cosine: from which a sentence covers a fact.
        embedder_thresholds: calibrated for the embedder, from its card.
        verifier_thresholds: that the verifier's judgements are read with.
        catalogue: name and hash of the control catalogue.
        policy: the engine that evaluates it.
        code_verified: the engine's code was compared with its published hashes.
        settings_digest: hash of every setting.
    """

    SCHEMA = "conformance/1"

    preset: str
    weights: dict[str, float]
    levels: dict[str, float]
    amplifiers: dict[str, float]
    loop_depth: dict[str, int]
    omissions: dict[str, float]
    omission_cosine: float
    embedder: str
    embedder_thresholds: dict[str, float]
    verifier: str
    verifier_thresholds: dict[str, float]
    catalogue: str
    policy: str
    code_verified: bool
    settings_digest: str


def conformance(settings: Settings) -> Conformance:
    """The report on these settings, with the package's own engines.

    Spec: CRP-SPEC-005 §16.3

    Raises:
        EngineError: a file of the engine's code or weights was altered.
    """
    dpe, embedder = settings.dpe, default_embedder()
    verifier = default_verifier(dpe.verifier)
    factors = dpe.amplifiers
    return Conformance(
        preset=settings.preset,
        weights=dpe.weights,
        levels={name.value: cut for cut, name in LEVEL_CUTS},
        amplifiers={name.value: factor for name, factor in factors.factors.items()},
        loop_depth={"amplified above": factors.deep_above, "stopped above": factors.stop_above},
        omissions={
            "CRITICAL": dpe.omission.critical,
            "HIGH": dpe.omission.high,
            "MEDIUM": dpe.omission.medium,
        },
        omission_cosine=dpe.omission.threshold(embedder.thresholds),
        embedder=embedder.identity,
        embedder_thresholds=dict(sorted(embedder.thresholds.items())),
        verifier=verifier.identity if verifier else COMPARISON,
        verifier_thresholds=dict(sorted(verifier.thresholds.items())) if verifier else {},
        catalogue=named(),
        policy=policy.identity if (policy := default_policy()) else "none",
        code_verified=verified_engine(),
        settings_digest=settings.digest,
    )
