"""Recognisers of Microsoft Presidio beside the package's own, behind the extra `presidio`.

Without a spaCy pipeline of the caller's a blank one is used: then Presidio finds what has a
pattern, and neither names nor places. Nothing is fetched: Presidio's check of domains reads the
list of public suffixes that comes with its library, and its own download is switched off.
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
# Presidio's names for what the package has a kind for.
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
# Found by a model of names only, so a blank pipeline has none of them.
_OF_MODELS: Final = frozenset({"PERSON", "NRP"})


class PresidioRecogniser:
    """Presidio's recognisers as a `Recogniser`; one text at a time.

    Args:
        pipeline: a loaded spaCy pipeline, None for a blank one.
        pin: SHA-256 that the pipeline's bytes must have; needed with a pipeline (decision D19).
        language: of the texts, two letters.
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
        # Presidio's e-mail recogniser asks this library, which would fetch a list at first use.
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
        """What the loaded recognisers look for."""
        names = set(self._engine.get_supported_entities(self._language))
        if not self._models:
            names -= _OF_MODELS
        kinds = sorted({_KINDS[name] for name in names if name in _KINDS})
        return {kind: KINDS[kind] for kind in kinds}

    def find(self, text: str) -> Sequence[PersonalSpan]:
        """Presidio's findings of the kinds that this package knows."""
        if not text.strip():
            return ()
        with self._lock:
            try:
                results = self._engine.analyze(text=text, language=self._language)
            except Exception as error:
                raise _failed(
                    f"Presidio ended with {type(error).__name__}", "presidio-analyzer"
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
    """An analyzer over a loaded pipeline, with domains checked from the shipped list."""
    from presidio_analyzer.nlp_engine import NerModelConfiguration, SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import EmailRecognizer

    # Presidio loads models by name and would fetch what is missing; with one in place it does not.
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
