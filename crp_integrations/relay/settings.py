"""One frozen tree of settings, read once: arguments, then `CRP_*`, then the store's crp.toml.

Every number of a specification is a field in the settings class of its subpackage. The digest of
all settings is in every envelope and report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from crp_integrations.dpe.judge.messages import LANGUAGES
from crp_integrations.dpe.settings import DpeSettings, Registration
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import ConfigError, PolicySyntaxError
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.governance.settings import (
    ArtifactSettings,
    HistorySettings,
    PackSettings,
    StepSettings,
)
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.headers import grammar
from crp_integrations.headers.records import HeaderSettings
from crp_integrations.policy.directives import ReportSettings
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.records import Part
from crp_integrations.seals import digest
from crp_integrations.session.settings import SessionSettings


class DispatchSettings(Part):
    """Limits and permissions for everything that a relay does beyond one model call.

    Attributes:
        redispatches: maximum number of re-dispatches of one window (CRP-SPEC-005 §19.2).
        redispatch_on_contradiction, redispatch_on_repetition, redispatch_on_flow: permit a
            re-dispatch that a policy without `upgrade-on-risk` does not (decision D11).
        continue_partial, continue_incomplete: continue a PARTIAL or an INCOMPLETE answer while
            windows remain; `require-completeness` continues both (CRP-SPEC-005 §10.3, D17).
        flow: remedy for a continuation that does not connect to the text before: `augment` asks
            again if permitted, else writes a bridge; `stitch` always writes a bridge; `none` only
            reports it (CRP-SPEC-005 §11.5).
        pull_k: number of candidates of the pull strategy (related facts §7).
        draft_temperature: temperature of a first pass if the request has none (CRP-SPEC-005 §19.2).
        verify_temperature, refine_temperature: temperatures of the reflexive passes.
        agentic_iterations, agentic_tool_calls: maximum numbers for one agentic answer.
        agentic_completion: completeness at which an agentic answer is done, [0, 1].
        agentic_floor: safety budget at which an agentic answer ends, [0, 1].
        hierarchical_parts: maximum number of sub-queries that are answered one by one.
        batch_size: maximum number of questions in one batch.
        searched_characters: maximum number of characters of an envelope's facts that are searched
            for personal data; the report counts the other facts (CRP-SPEC-003 §16.1).
    """

    redispatches: int = Field(default=2, ge=0, le=2)
    redispatch_on_contradiction: bool = False
    redispatch_on_repetition: bool = False
    redispatch_on_flow: bool = False
    continue_partial: bool = False
    continue_incomplete: bool = False
    flow: Literal["augment", "stitch", "none"] = "augment"
    pull_k: int = Field(default=100, ge=1)
    draft_temperature: float = Field(default=0.7, ge=0.0)
    verify_temperature: float = Field(default=0.2, ge=0.0)
    refine_temperature: float = Field(default=0.3, ge=0.0)
    agentic_iterations: int = Field(default=8, ge=1)
    agentic_tool_calls: int = Field(default=10, ge=0)
    agentic_completion: float = Field(default=0.85, ge=0.0, le=1.0)
    agentic_floor: float = Field(default=0.10, ge=0.0, le=1.0)
    hierarchical_parts: int = Field(default=8, ge=1)
    batch_size: int = Field(default=100, ge=1)
    searched_characters: int = Field(default=20_000, ge=0)


ALWAYS: Final = "always"
DOUBT: Final = "doubt"
Price = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_SAMPLE: Final = re.compile(r"sample:(0(?:\.\d+)?|1(?:\.0+)?)")


class JudgeSettings(Part):
    """How and when a judge is asked, and what happens if it fails. Without a model there is none.

    Attributes:
        model: LiteLLM name of the judge, such as `openai/gpt-4o-mini`; empty for no judge.
        api_base: address of its provider; empty for the provider's default.
        api_key: key of its provider; None for the provider's environment variable.
        fallback: model that is asked if the first one fails; empty for none.
        second: model that is then asked about the claims that the first one doubts; or empty.
        confirm: ask the same model about these once more, past the cache.
        when: `always`; `doubt`: only if some claim is not found literally, by words or values, in
            the evidence; `sample:0.1`: for that share of the answers, chosen by their hash.
        budget_calls, budget_tokens, budget_usd: maximum within the two fields below; None for no
            limit. Each request counts, retries too; cached replies cost nothing.
        budget_per: `hour`, `day` or `month`, in UTC, after which it begins anew; empty for never.
        budget_of: `process`, `store`, `tenant` or `session`; empty for the process, but with a
            `budget_per` for the store, if there is one that outlasts the process.
        usd_per_million: price of a million tokens, or of input and output: `[0.15, 0.6]`; None
            for LiteLLM's. A budget in USD needs a price.
        breaker_failures, breaker_s: failures in a row that end calls, and seconds until the next.
        mode: `wait`, or `background`: the answer is delivered at once, and the judge's report goes
            to `on_report`.
        failure: `report`: deliver the results of the stages without a model, flagged; or `halt`.
        timeout_s: maximum seconds for one call.
        retries: retries after status 408, 409, 429 or 5xx, or no connection.
        temperature: sampling temperature; None for the provider's.
        max_tokens: cap on a reply; None for the provider's.
        window_tokens: context limit of the model, input and output; None looks it up by name.
        most_calls: maximum calls for one answer; the report lists the evidence that did not fit.
        concurrency: maximum number of concurrent calls.
        language: language of the reasons.
        prompt: instructions instead of the default ones; they must ask for the same JSON.
        rubric: additional criteria, added to the instructions.
        withhold_labels: access labels of facts that must not be sent to the judge's provider.
        cache_size: number of replies cached in memory, by content; 0 for none.
    """

    model: str = ""
    api_base: str = ""
    api_key: SecretStr | None = None
    fallback: str = ""
    second: str = ""
    confirm: bool = False
    when: str = ALWAYS
    budget_calls: int | None = Field(default=None, ge=0)
    budget_tokens: int | None = Field(default=None, ge=0)
    budget_usd: float | None = Field(default=None, ge=0.0)
    budget_per: Literal["", "hour", "day", "month"] = ""
    budget_of: Literal["", "process", "store", "tenant", "session"] = ""
    usd_per_million: Price | tuple[Price, Price] | None = None
    breaker_failures: int = Field(default=5, ge=0)
    breaker_s: float = Field(default=30.0, gt=0.0)
    mode: Literal["wait", "background"] = "wait"
    failure: Literal["report", "halt"] = "report"
    timeout_s: float = Field(default=60.0, gt=0.0)
    retries: int = Field(default=2, ge=0)
    temperature: float | None = Field(default=0.0, ge=0.0)
    max_tokens: int | None = Field(default=None, gt=0)
    window_tokens: int | None = Field(default=None, ge=2_000)
    most_calls: int = Field(default=8, ge=1)
    concurrency: int = Field(default=8, ge=1)
    language: str = "en"
    prompt: str = ""
    rubric: str = ""
    withhold_labels: tuple[str, ...] = ()
    cache_size: int = Field(default=1_000, ge=0)

    @field_validator("when")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in (ALWAYS, DOUBT) and not _SAMPLE.fullmatch(value):
            raise ValueError(f"when is {value!r:.40}, wanted always, doubt or sample:0.1")
        return value

    @field_validator("language")
    @classmethod
    def _spoken(cls, value: str) -> str:
        if value not in LANGUAGES:
            raise ValueError(f"language {value!r:.40} is not one of {', '.join(LANGUAGES)}")
        return value

    @property
    def share(self) -> float:
        """Share of the answers that are judged, [0, 1]."""
        return float(match[1]) if (match := _SAMPLE.fullmatch(self.when)) else 1.0


def connection_fields(
    settings: JudgeSettings | None, model: object, own: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings' fields, without address and key if they belong to another provider or judge."""
    fields = (settings or JudgeSettings()).model_dump()
    named = fields["model"]
    other = isinstance(model, str) and bool(named) and not same_provider(model, named)
    if other or not isinstance(model, str):
        fields |= {"api_base": "", "api_key": None}
    elif "api_base" in own and own["api_base"] != fields["api_base"]:
        fields["api_key"] = None
    return fields


def same_provider(model: str, other: str) -> bool:
    """Whether two names have one provider; without a prefix the provider is not known here."""
    return model == other or ("/" in model and model.partition("/")[0] == other.partition("/")[0])


Preset = Literal["default", "literal"]
Profile = Literal["observe", "protocol"]
# Actions that the specifications take by default: continuation and remedies (CRP-SPEC-005 §10.3,
# §19.1), enforcing the safety budget (related facts §8), ending a session at 50 windows (§5),
# quarantine (CRP-SPEC-009 §8.4).
PROTOCOL: Final[dict[str, Any]] = {
    "dispatch": {"continue_incomplete": True, "redispatch_on_contradiction": True},
    "sessions": {
        "budget": {"enforce": True}, "graph": {"nodes": 50}, "transfer": {"summaries": True},
    },
    "fabric": {"lifecycle": {"quarantine": True}},
}  # fmt: skip
TOML_NAME = "crp.toml"
MASTER_KEY_BYTES = 32
# Variables that are not settings: of the command line, and documented ones for key files.
_OTHER_VARIABLES: Final = frozenset({"CRP_KEYS", "CRP_MASTER_KEYS", "CRP_SESSION", "CRP_STORE"})
# Minimum similarity at which a name counts as misspelt: about one wrong letter in twelve.
_MISSPELT: Final = 0.88


class Settings(BaseSettings):
    """The whole tree.

    Attributes:
        preset: `default`, or `literal` for exactly what the specifications say.
        profile: `observe` only reports; `protocol` turns on what the specifications do by
            default: continuation, remedies, quarantine, at most 50 windows a session, and a
            safety budget that withholds answers. Individual settings take precedence over it.
        model: model asked when a call names none; `extractive` needs no key.
        max_windows: maximum windows of a session, the total in `CRP-Context-Window: 1/5`.
        context_limits: tokens by model name; they take precedence over every table.
        tokenizer_files: vocabulary file by model name: `.model`, `tokenizer.json`, `.tiktoken`.
        embedder: embedder if no argument gives one, as `onnx:FOLDER`; empty for the shipped one.
        reranker: reranker if no argument gives one, such as `onnx:FOLDER`; empty for none.
        vector_cache: folder that keeps vectors of the texts that you bring; empty for none.
        vector_cache_mb: maximum size of cached vectors in memory, and of a file; 0 for no cache.
        timeout_s: maximum seconds for a model call.
        clock: fixed ISO 8601 time, for reproducible runs; None for real time.
        key: master key, 64 hexadecimal digits; after a rotation all keys, separated by commas,
            the current one last. None for the key kept with the store.
        regions: folder or address of a separate store for each region (CRP-SPEC-009 §7.2), by a
            name in lower case; headers can name only regions of two letters.
        guard: access policy of the fabric, and the registered exceptions.
        system: registration of the AI system that answers (CRP-SPEC-005 §14).
        headers: contents of response headers.
        sessions: limits of sessions, safety budgets and agents.
        packs: shares, depths and minimum values of context packs.
        dispatch: re-dispatches, continuations and strategies.
        policy: the operator's safety policy, which no session and no call can relax.
        reports: delivery of violation reports.
        artifacts: where bulky texts are stored, and how long their addresses are valid.
        compaction: how a conversation is shortened before a model is asked; off unless enabled.
        judge: the model that is asked which claims hold; none without a name.
        steps: guardrails of writing, selecting, compressing and isolating; none by default.
        receipts: whether a receipt is signed and kept for each window.
        receipt_weights: whether receipts contain custom weights, or only their digest.
        timestamp_authority: address of an RFC 3161 authority that stamps a bundle's head.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        # An error must not show the key.
        hide_input_in_errors=True,
        env_prefix="CRP_",
        env_nested_delimiter="__",
    )

    preset: Preset = "default"
    profile: Profile = "observe"
    model: str = Field(default="extractive", min_length=1)
    max_windows: int = Field(default=5, ge=1)
    context_limits: dict[str, int] = {}
    tokenizer_files: dict[str, Path] = {}
    embedder: str = ""
    reranker: str = ""
    vector_cache: str = ""
    vector_cache_mb: int = Field(default=32, ge=0)
    timeout_s: float = Field(default=60.0, gt=0.0)
    clock: datetime | None = None
    key: SecretStr | None = None
    regions: dict[str, str | Path] = {}
    envelope: EnvelopeSettings = EnvelopeSettings()
    fabric: FabricSettings = FabricSettings()
    dpe: DpeSettings = DpeSettings()
    guard: GuardSettings = GuardSettings()
    system: Registration = Registration()
    headers: HeaderSettings = HeaderSettings()
    sessions: SessionSettings = SessionSettings()
    dispatch: DispatchSettings = DispatchSettings()
    packs: PackSettings = PackSettings()
    policy: str = ""
    reports: ReportSettings = ReportSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    compaction: HistorySettings = HistorySettings()
    judge: JudgeSettings = JudgeSettings()
    steps: StepSettings = StepSettings()
    receipts: bool = True
    receipt_weights: bool = False
    timestamp_authority: str = ""

    # The path of crp.toml does not affect answers, so it is not a field.
    toml_file: ClassVar[Path | None] = None

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        fields = dict(data)
        preset = fields.get("preset", "default")
        if preset not in get_args(Preset):
            return fields
        presets: dict[str, BaseModel] = {
            "envelope": EnvelopeSettings.preset(preset),
            "fabric": FabricSettings.preset(preset),
            "dpe": DpeSettings.preset(preset),
        }
        base = {name: part.model_dump() for name, part in presets.items()}
        protocol = fields.get("profile") == "protocol"
        if protocol:
            base = _merged(base, PROTOCOL)
        for name, own in base.items():
            explicit = fields.get(name)
            if name in PROTOCOL and isinstance(explicit, BaseModel):
                explicit = explicit.model_dump(exclude_unset=True) if protocol else explicit
            if explicit is None or isinstance(explicit, Mapping):
                fields[name] = _merged(own, explicit or {})
        return fields

    @field_validator("clock")
    @classmethod
    def _aware(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError(f"clock {value.isoformat()} has no time zone; write it with Z")
        return value

    @field_validator("policy")
    @classmethod
    def _in_grammar(cls, value: str) -> str:
        try:
            if value:
                parse_policy(value)
        except PolicySyntaxError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("regions")
    @classmethod
    def _plain_names(cls, value: dict[str, str | Path]) -> dict[str, str | Path]:
        for name in value:
            if not grammar.TOKEN.fullmatch(name) or name != name.lower():
                raise ValueError(
                    f"region {name!r:.40} is not a word of lower-case letters, digits and ._-"
                )
        return value

    @field_validator("key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        try:
            length = min(len(bytes.fromhex(k)) for k in value.get_secret_value().split(","))
        except ValueError:
            raise ValueError("the key is not hexadecimal; give 64 hexadecimal digits") from None
        if length < MASTER_KEY_BYTES:
            raise ValueError(f"the key has {length} bytes; give at least {MASTER_KEY_BYTES}")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Sources in order of precedence: arguments, environment, crp.toml."""
        del dotenv_settings, file_secret_settings
        toml = (TomlConfigSettingsSource(settings_cls, cls.toml_file),) if cls.toml_file else ()
        return (init_settings, env_settings, *toml)

    def __copy__(self) -> Self:
        """A copy without the cached digest, since `model_copy` changes its fields."""
        (copied := super().__copy__()).__dict__.pop("digest", None)
        return copied

    # Cached: an examination hashes its settings, which took a seventh of its time.
    @cached_property
    def digest(self) -> str:
        """`sha256:` hash of all settings that can affect an answer; not keys, clock or paths."""
        aside = {"clock", "key", "timeout_s", "regions", "reports", "receipts", "receipt_weights"}
        aside |= {"artifacts", "timestamp_authority", "vector_cache", "vector_cache_mb"}
        left_out: dict[str, Any] = dict.fromkeys(aside, True)
        left_out["judge"] = {"api_key", "api_base", "timeout_s", "concurrency", "cache_size"}
        return digest(self.model_dump(mode="json", exclude=left_out))


def _merged(base: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the overrides applied, recursively for mappings."""
    merged = {**base, **overrides}
    for name in base.keys() & overrides.keys():
        if isinstance(base[name], dict) and isinstance(overrides[name], Mapping):
            merged[name] = _merged(base[name], overrides[name])
    return merged


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Name of the first invalid field, empty for the whole, and the problem; without its value."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "tuple_type":  # "Tuple" is a Python term; files and requests have lists.
        return field, "wanted a list"
    problem = first["msg"].removeprefix("Value error, ").replace("Tuple should have", "wanted")
    return field, problem.replace(" after validation, not", ", got")


def _toml(root: Path | None) -> Path | None:
    path = root and root / TOML_NAME
    try:
        return path if path and path.is_file() else None
    except OSError as error:
        raise ConfigError(f"store {str(root)!r:.80} cannot be used: {error.strerror}") from error


@lru_cache(maxsize=16)
def _settings_class(path: Path | None) -> type[Settings]:
    """A settings class that also reads a file; cached, since creating a class is slow."""

    class Located(Settings):
        toml_file = path

    return Located


def _setting_names() -> list[str]:
    """Names of all settings and of their direct fields, as `setting.field`."""
    parts = Settings.model_fields
    pairs = ((name, getattr(part.annotation, "model_fields", ())) for name, part in parts.items())
    return [*parts, *(f"{name}.{field}" for name, fields in pairs for field in fields)]


def _refuse_misspelt() -> None:
    """Refuse a variable whose name is nearly a setting's: it could turn a safeguard on."""
    prefix, parts = "CRP_", Settings.model_fields
    unknown = [
        name
        for name in sorted(os.environ)
        if (upper := name.upper()).startswith(prefix)
        and upper.removeprefix(prefix).partition("__")[0].lower() not in parts
        and upper not in _OTHER_VARIABLES
    ]
    if not unknown:
        return
    known = [prefix + name.replace(".", "__").upper() for name in _setting_names()]
    for name in unknown:
        upper = name.upper()
        near = get_close_matches(upper, known, n=1, cutoff=_MISSPELT)
        near = near or get_close_matches(upper.partition("__")[0], known, n=1, cutoff=_MISSPELT)
        if near:
            raise ConfigError(
                f"environment variable {name!r:.60} is not a setting; if {near[0]} is meant, "
                "rename it, else unset it"
            )


def load(root: Path | None = None, **arguments: Any) -> Settings:
    """Read the settings; those from the environment only are cached, since every `examine` asks."""
    path = _toml(root)
    if path or arguments:
        return _read(path, arguments)
    return _of_environment(tuple(row for row in os.environ.items() if row[0].upper()[:4] == "CRP_"))


@lru_cache(maxsize=4)
def _of_environment(_variables: tuple[tuple[str, str], ...]) -> Settings:
    return _read(None, {})


def _read(path: Path | None, arguments: Mapping[str, Any]) -> Settings:
    _refuse_misspelt()
    try:
        located = _settings_class(path)(**arguments)
    except ValidationError as error:
        field, problem = first_problem(error)
        if error.errors(include_url=False, include_input=False)[0]["type"] == "extra_forbidden":
            near = get_close_matches(field, _setting_names(), n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"setting {field!r:.80} is unknown{meant}") from error
        raise ConfigError(f"setting {field or 'settings'!r} is not usable: {problem}") from error
    except (ValueError, OSError) as error:
        places = "arguments and CRP_*" if path is None else f"arguments, CRP_* and {path}"
        raise ConfigError(f"the settings of {places} cannot be read: {error}") from error
    fields = {name: getattr(located, name) for name in Settings.model_fields}
    return Settings.model_construct(**fields)
