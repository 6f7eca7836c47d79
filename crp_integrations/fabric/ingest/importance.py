"""How important a fact is by itself: a base weight by kind of source, plus what is added.

Rules only, and each looks at one thing: the passage, its heading, or what the document says
about itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import JsonValue

from crp_integrations.fabric.settings import ImportanceSettings
from crp_integrations.vocabulary import SourceKind

# "Article 12", "Art. 5(1)", "§ 3", "Section 4.2", "Clause 7", "Annex III", "Rule 10b-5".
_ARTICLE = re.compile(
    r"(?:\b(?:articles?|art\.|sections?|sec\.|clauses?|annex|regulation|rule)\s*"
    r"(?:\d+[\w.()-]*|[IVXLC]+\b)|§+\s*\d)",
    re.IGNORECASE,
)
# "version 2", "v1.4", "release 3.0", "since 2.1", "1.2.3".
_VERSION = re.compile(
    r"\b(?:version|release|since|as of)\s+v?\d+(?:\.\d+)*\b|\bv\d+(?:\.\d+)*\b|\b\d+\.\d+\.\d+\b",
    re.IGNORECASE,
)
_META_ANALYSIS = re.compile(r"\bmeta[- ]?analy(?:sis|ses|tic)\b", re.IGNORECASE)
# A passage that speaks of its own paper; one that only cites a meta-analysis gets nothing.
_OWN_META_ANALYSIS = re.compile(
    r"\b(?:this|our|the present|we (?:conducted|performed|report|did) an?)\b[\w ,-]{0,40}?"
    r"\bmeta[- ]?analy(?:sis|tic)\b",
    re.IGNORECASE,
)


def importance(
    kind: SourceKind,
    *,
    content: str,
    settings: ImportanceSettings,
    heading: str = "",
    title: str = "",
    uri: str = "",
    metadata: Mapping[str, JsonValue] | None = None,
) -> float:
    """The importance weight of a passage: base plus modifier, within [0, 1].

    Spec: CRP-SPEC-009 §4.4

    Args:
        kind: kind of the source.
        content: the passage.
        heading: the headings above it.
        title, uri, metadata: of the document; `version`, `study`, `classification` and `url`
            in the metadata are looked at.

    Returns:
        A weight in [0, 1].
    """
    known = metadata or {}
    match kind:
        case SourceKind.REGULATORY:
            specific = _ARTICLE.search(heading) or _ARTICLE.search(content)
            weight = settings.regulatory + (settings.regulatory_article if specific else 0.0)
        case SourceKind.OFFICIAL:
            versioned = (
                _named(known, "version") or _VERSION.search(heading) or _VERSION.search(content)
            )
            weight = settings.official + (settings.official_version if versioned else 0.0)
        case SourceKind.RESEARCH:
            pooled = (
                _META_ANALYSIS.search(_named(known, "study"))
                or _META_ANALYSIS.search(title)
                or _OWN_META_ANALYSIS.search(content)
            )
            weight = settings.research + (settings.research_meta_analysis if pooled else 0.0)
        case SourceKind.INTERNAL:
            label = _named(known, "classification").casefold()
            weight = settings.internal + settings.internal_classification.get(label, 0.0)
        case SourceKind.WEB:
            trusted = _authoritative(_named(known, "url") or uri, settings.authoritative_domains)
            weight = settings.web + (settings.web_authoritative if trusted else 0.0)
        case SourceKind.USER:
            weight = settings.user + settings.user_modifier
    # Rounded, so that .90 + .05 is .95 on disk and in every comparison.
    return round(min(1.0, max(0.0, weight)), 6)


def _named(metadata: Mapping[str, JsonValue], name: str) -> str:
    value = metadata.get(name)
    return "" if value is None else str(value).strip()


def _authoritative(uri: str, domains: tuple[str, ...]) -> bool:
    try:
        host = urlsplit(uri).hostname or ""
    except ValueError:
        return False
    return any(host == domain or host.endswith("." + domain) for domain in domains)
