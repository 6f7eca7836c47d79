"""presidio's recognisers of patterns, over a spaCy pipeline without a model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

# presidio's names on the left, those of its own data set on the right.
SAME = {
    "CREDIT_CARD": "CREDIT_CARD",
    "IBAN_CODE": "IBAN_CODE",
    "EMAIL_ADDRESS": "EMAIL_ADDRESS",
    "IP_ADDRESS": "IP_ADDRESS",
    "PHONE_NUMBER": "PHONE_NUMBER",
    "US_SSN": "US_SSN",
    "URL": "DOMAIN_NAME",
    "DATE_TIME": "DATE_TIME",
    "PERSON": "PERSON",
    "LOCATION": "GPE",
    "NRP": "NRP",
}
Finder = Callable[[str], list[tuple[str, int, int]]]


def patterns() -> tuple[str, Finder]:
    """The analyzer with all recognisers that it loads by itself, overlaps resolved by it.

    Its check of e-mail addresses would fetch a list of suffixes at the first use; it gets the
    list that comes with the library.
    """
    suffixes: Any = import_module("tldextract")
    suffixes.extract = suffixes.TLDExtract(suffix_list_urls=(), cache_dir=None)
    analyzer = import_module("presidio_analyzer")
    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    engine = _blank()
    registry = analyzer.RecognizerRegistry()
    registry.load_predefined_recognizers(languages=["en"], nlp_engine=engine)
    whole = analyzer.AnalyzerEngine(
        registry=registry, nlp_engine=engine, supported_languages=["en"]
    )

    def find(text: str) -> list[tuple[str, int, int]]:
        found = whole.analyze(text=text, language="en")
        named = [(SAME[one.entity_type], one) for one in found if one.entity_type in SAME]
        return [(name, one.start, one.end) for name, one in named]

    return f"presidio {version('presidio-analyzer')}", find


def _blank() -> Any:
    """The English tokenizer of spaCy as presidio's engine; it knows no entities and no lemmas."""
    engines = import_module("presidio_analyzer.nlp_engine")
    engine = engines.SpacyNlpEngine(models=[{"lang_code": "en", "model_name": "blank"}])
    engine.nlp = {"en": import_module("spacy").blank("en")}
    return engine
