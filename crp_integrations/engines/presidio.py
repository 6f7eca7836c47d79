"""Microsoft Presidio's recognisers, in addition to the package's own; needs extra `presidio`.

Without a spaCy pipeline from the caller a blank one is used: Presidio then finds only kinds that
have a pattern, not names or places. Nothing is downloaded: Presidio's check of domains uses the
list of public suffixes that comes with its library, and the library's download is disabled.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.dpe.pii.spans import KINDS, PersonalSpan
from crp_integrations.errors import ConfigError, EngineError, MissingExtra
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import PersonalCategory

EXTRA: Final = "presidio"
# Presidio's entity names, and the package's kind for each.
_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PERSON": "person",
        "EMAIL_ADDRESS": "email",
        "PHONE_NUMBER": "phone",
        "CREDIT_CARD": "credit_card",
        "IBAN_CODE": "iban",
        "IP_ADDRESS": "ip",
        "MAC_ADDRESS": "mac",
        "CRYPTO": "crypto",
        "US_SSN": "ssn",
        "US_ITIN": "itin",
        "US_PASSPORT": "passport",
        "US_DRIVER_LICENSE": "driving_licence",
        "US_BANK_NUMBER": "bank_account",
        "UK_NHS": "national_id",
        "UK_NINO": "national_id",
        "ES_NIF": "national_id",
        "ES_NIE": "national_id",
        "IT_FISCAL_CODE": "national_id",
        "AU_TFN": "national_id",
        "IN_AADHAAR": "national_id",
        "PL_PESEL": "national_id",
        "FI_PERSONAL_IDENTITY_CODE": "national_id",
        "NRP": "ethnicity",
    }
)
# Only a model can find these, so a blank pipeline finds none of them.
_MODEL_ONLY: Final = frozenset({"PERSON", "NRP"})


class PresidioRecogniser:
    """Presidio's recognisers as a `Recogniser`; one text at a time.

    Args:
        pipeline: a loaded spaCy pipeline, None for a blank one.
        pin: SHA-256 that the pipeline's bytes must have; needed with a pipeline (decision D19).
        language: language code of the texts, two letters.
    """

    def __init__(self, pipeline: Any = None, *, pin: str = "", language: str = "en") -> None:
        try:
            import presidio_analyzer
            import spacy
            import tldextract
        except ModuleNotFoundError as error:
            raise MissingExtra(EXTRA, "the recogniser Presidio") from error
        self._language = language
        self._lock = threading.Lock()
        self._models = pipeline is not None
        model = "blank"
        if pipeline is not None:
            if not pin:
                raise ConfigError("a spaCy pipeline needs its pin; give the SHA-256 of its bytes")
            model = sha256_hex(pipeline.to_bytes())
            if model != pin:
                raise _failed(f"the spaCy pipeline has SHA-256 {model}, wanted {pin}", "spacy")
        # Presidio's e-mail recogniser uses this library, which would download a list at first use.
        offline = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
        try:
            self._engine = _analyzer(
                presidio_analyzer, pipeline or spacy.blank(language), language, offline
            )
        except (ValueError, OSError, TypeError, KeyError) as error:
            raise _failed("Presidio could not be set up", "presidio-analyzer") from error
        self._identity = f"presidio-analyzer {version('presidio-analyzer')} with {model[:23]}"

    @property
    def identity(self) -> str:
        """Library, version, and `blank` or the hash of the pipeline."""
        return self._identity

    @property
    def kinds(self) -> Mapping[str, PersonalCategory]:
        """The kinds that the loaded recognisers look for."""
        names = set(self._engine.get_supported_entities(self._language))
        if not self._models:
            names -= _MODEL_ONLY
        kinds = sorted({_KINDS[name] for name in names if name in _KINDS})
        return {kind: KINDS[kind] for kind in kinds}

    def find(self, text: str) -> Sequence[PersonalSpan]:
        """Presidio's findings of kinds that this package has."""
        if not text.strip():
            return ()
        with self._lock:
            try:
                results = self._engine.analyze(text=text, language=self._language)
            except Exception as error:
                raise _failed(
                    f"Presidio failed with {type(error).__name__}", "presidio-analyzer"
                ) from error
        return [
            PersonalSpan(
                KINDS[_KINDS[result.entity_type]],
                _KINDS[result.entity_type],
                result.start,
                result.end,
                "presidio",
                min(1.0, max(0.0, float(result.score))),
            )
            for result in results
            if result.entity_type in _KINDS and result.start < result.end
        ]


def _analyzer(presidio: Any, pipeline: Any, language: str, offline: Any) -> Any:
    """An analyzer with a loaded pipeline, which checks domains with the shipped list."""
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import EmailRecognizer

    # Presidio would download a model that is missing; a pipeline set here prevents that.
    engine: Any = SpacyNlpEngine(
        models=[{"lang_code": language, "model_name": "given"}],
        ner_model_configuration=NerModelConfiguration(),
    )
    engine.nlp = {language: pipeline}
    email: Any = EmailRecognizer(supported_language=language)
    email.validate_result = lambda text: bool(offline(text).fqdn)
    registry = presidio.RecognizerRegistry(supported_languages=[language])
    registry.load_predefined_recognizers(languages=[language])
    registry.remove_recognizer("EmailRecognizer")
    registry.add_recognizer(email)
    return presidio.AnalyzerEngine(
        nlp_engine=engine, registry=registry, supported_languages=[language]
    )


def _failed(what: str, library: str) -> EngineError:
    return EngineError(what, engine=library, version=version(library))
