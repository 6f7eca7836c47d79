"""Default engines of a relay and of functions without a store, and a report on their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from crp_integrations import weights
from crp_integrations.dpe.catalogue import named
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import COMPARISON
from crp_integrations.dpe.settings import LEVEL_CUTS
from crp_integrations.engines.context_limits import context_limit, model_price
from crp_integrations.engines.system import clock_of
from crp_integrations.envelope.ports import Reranker
from crp_integrations.errors import ConfigError, MissingExtra
from crp_integrations.guard.ports import PolicyEngine
from crp_integrations.messages import ModelPrice
from crp_integrations.ports import Clock, Embedder, Model, TokenCounter
from crp_integrations.records import Record
from crp_integrations.relay.settings import Settings, load
from crp_integrations.validation import require_settings
from crp_integrations.weights.manifest import PACKAGE, has_manifest, verify_code

if TYPE_CHECKING:
    from crp_integrations.engines.vector_cache import VectorCache

# Accepted arguments: the object itself, a string such as `litellm:text-embedding-3-small` or
# `onnx:FOLDER`, a folder, or an object of LangChain, LlamaIndex or sentence-transformers.
EmbedderSource: TypeAlias = Embedder | str | Path | Any
RerankerSource: TypeAlias = Reranker | str | Path | Any

# Model whose tokenizer counts fact lengths; o200k and cl100k both come with the default install.
FACT_TOKENIZER_MODEL: Final = "gpt-4"
# Verifiers in this package only compare texts; those from elsewhere are models that read claims.
_COMPARING_MODULES: Final = "crp_integrations.dpe."


def chosen_settings(settings: Settings | None) -> Settings:
    """The settings of a caller, or those of the `CRP_*` variables and the defaults."""
    return require_settings(settings, Settings, load)


def chosen_embedder(source: EmbedderSource | None, settings: Settings) -> Embedder:
    """The embedder given as argument, else that of the settings, else the shipped one.

    All callers share its cached vectors, within `vector_cache_mb`.
    """
    from crp_integrations.engines.vector_cache import CachedEmbedder, SharedEmbedder, object_scope

    # Also made where it gets no vectors: an erasure removes the files of earlier processes.
    cache = _vector_cache(settings.vector_cache, settings.vector_cache_mb)
    choice = source or settings.embedder or None
    if isinstance(choice, CachedEmbedder):
        return choice
    scope = None
    if choice is None:
        embedder = default_embedder()
    elif isinstance(choice, str | Path):
        embedder = _named_embedder(str(choice))
    else:
        embedder = _embedder(choice)
        # The identity of a framework's object is a guess, which can name two models alike.
        if embedder is not choice or not settings.vector_cache:
            scope = object_scope(choice)
            # An object whose model was changed gives other vectors.
            scope = scope and f"{scope} {embedder.identity}"
    if not settings.vector_cache_mb or scope == "":
        return embedder
    return SharedEmbedder(embedder, cache, scope=scope)


@lru_cache(maxsize=8)
def _vector_cache(folder: str, megabytes: int) -> VectorCache:
    from crp_integrations.engines.vector_cache import VectorCache
    from crp_integrations.language.memo import forgotten_with

    cache = VectorCache(megabytes, folder or None)
    # Erasure empties the caches of the process.
    forgotten_with(cache.forget, partial(cache.forget, lasting=False))
    return cache


def chosen_reranker(source: RerankerSource | None, settings: Settings) -> Reranker | None:
    """The reranker given as argument, else that of the settings; None if neither is set."""
    choice = source or settings.reranker or None
    if choice is None:
        return None
    return _named_reranker(str(choice)) if isinstance(choice, str | Path) else _reranker(choice)


def _embedder(source: object) -> Embedder:
    from crp_integrations.engines.embeddings import embedder_of

    return embedder_of(source)


def _reranker(source: object) -> Reranker:
    from crp_integrations.engines.rerankers import reranker_of

    return reranker_of(source)


# A model given by name is loaded once.
_named_embedder = lru_cache(maxsize=8)(_embedder)
_named_reranker = lru_cache(maxsize=8)(_reranker)


@cache
def default_embedder() -> Embedder:
    """The shipped embedder, created once per process; an altered file raises (decision D19)."""
    from crp_integrations.engines.onnx import OnnxEmbedder

    embedder = OnnxEmbedder()
    embedder.verify()
    return embedder


@cache
def _shipped_identity() -> str:
    from crp_integrations.engines.onnx import OnnxEmbedder

    return OnnxEmbedder().identity


def first_stage(embedder: Embedder) -> Embedder | None:
    """The embedder that decides what another reads; None unless that is the shipped one."""
    from crp_integrations.engines.vector_cache import SharedEmbedder

    if embedder.identity != _shipped_identity():
        return None
    static = _named_embedder("static")
    return embedder.beside(static) if isinstance(embedder, SharedEmbedder) else static


def judge_engine(
    source: object, *, timeout_s: float, options: Mapping[str, Any]
) -> tuple[str, Model]:
    """The name of a judge and its model."""
    from crp_integrations.engines.extractive import EXTRACTIVE
    from crp_integrations.engines.models import judge_model, model_object_name

    name = model_object_name(source)
    if name.partition("/")[0] == EXTRACTIVE:
        raise ConfigError(f"judge {name!r} quotes and does not read; give a language model")
    return name, judge_model(source, timeout_s=timeout_s, options=options)


def judge_window(name: str) -> int:
    """Context limit of a judge in tokens, input and output together, looked up by its name."""
    return context_limit(name, {})[0]


def judge_most_output(source: object) -> int | None:
    """The most tokens of a reply that a judge's model object states; None if it states none."""
    from crp_integrations.engines.models import most_output_of

    return most_output_of(source)


def judge_price(name: str) -> ModelPrice | None:
    """The price of a judge's tokens, looked up by its name; None if it is not known."""
    return model_price(name)


@cache
def default_verifier(name: str = "none") -> Verifier | None:
    """A verifier by name: `none`, `alignment`, or a published one that was downloaded before."""
    if name == "none":
        return None
    if name == "alignment":
        from crp_integrations.dpe.verifier.alignment import AlignmentVerifier

        return AlignmentVerifier()
    from crp_integrations.engines.verifiers.model_catalogue import published_verifier

    return published_verifier(name)


@cache
def default_policy(*, registered: bool = False) -> PolicyEngine | None:
    """The Rego engine; None if `regopy` is not installed. It is loaded at the first decision.

    Args:
        registered: whether the settings register a system, whose use must be classified.

    Raises:
        MissingExtra: `regopy` is missing and a registered system cannot be classified without it.
    """
    if find_spec("regopy") is None:
        if registered:
            raise MissingExtra("policy", "the classification of a registered system")
        return None
    from crp_integrations.engines.rego import RegoEngine

    return RegoEngine()


def reads_claims(settings: Settings, verifier: Verifier | None = None) -> bool:
    """Whether claims are decided without a judge: by the composite score or a model verifier."""
    if settings.dpe.decides == "composite":
        return True
    if verifier is not None:
        return not type(verifier).__module__.startswith(_COMPARING_MODULES)
    from crp_integrations.engines.verifiers.model_catalogue import PUBLISHED

    return settings.dpe.verifier in PUBLISHED


def timestamp(settings: Settings, digest: bytes) -> bytes:
    """The reply of the configured time-stamping authority about a digest."""
    from crp_integrations.engines.timestamp_authority import stamp

    return stamp(settings.timestamp_authority, digest, settings.timeout_s)


def clock(settings: Settings) -> Clock:
    """The clock of the settings: fixed at their time, or the system's."""
    return clock_of(settings.clock)


def tokenizers(settings: Settings) -> Callable[[str], TokenCounter]:
    """A function that returns a model's token counter, created once for each name."""
    from crp_integrations.engines.tokens import counter_for

    @lru_cache(maxsize=64)
    def choose(model: str) -> TokenCounter:
        path = settings.tokenizer_files.get(model)
        return counter_for(model, tokenizer_file=None if path is None else str(path))

    return choose


def limits(
    settings: Settings, stated: Callable[[str], int | None] | None = None
) -> Callable[[str], tuple[int, str]]:
    """A function that returns a model's context limit in tokens, and the limit's source.

    Args:
        stated: returns the limit that an operator or the models' server states. It applies after
            the settings and before every table. None for no such statement.
    """

    def limit(model: str) -> tuple[int, str]:
        known, source = context_limit(model, settings.context_limits)
        stated_limit = stated(model) if stated is not None and source != "setting" else None
        return (stated_limit, "stated") if stated_limit else (known, source)

    return limit


@cache
def verified_engine() -> bool:
    """Check the engine's code and every shipped weight, once per process.

    Spec: CRP-SPEC-005 §21.1 (decision D19)
    """
    root = Path(str(files(PACKAGE)))
    checked = verify_code(root, installed=has_manifest())
    for name in weights.names():
        weights.load(name)
    return checked


class Conformance(Record):
    """The weights, factors and thresholds that are in force.

    It is for the operator, so it includes custom numbers; headers and answers contain only their
    digest.

    Spec: CRP-SPEC-005 §7.3, §16.3, §17 (decision D18)

    Attributes:
        levels: lower bound of the composite for each level but the lowest; no setting moves them.
        loop_depth: depths above which the amplifier applies, and above which a call is stopped.
        omission_cosine: minimum cosine at which a sentence covers a fact.
        verifier_thresholds: thresholds for the verifier's scores.
        code_verified: whether the engine's code was compared with its published hashes.
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
