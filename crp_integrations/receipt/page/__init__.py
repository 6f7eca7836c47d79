"""Renders a receipt as one HTML page that works offline.

The page contains the receipt only as base64. Its script draws everything from those bytes and
checks them with WebCrypto, so the page shows nothing that is not in the receipt, and no text of it
is parsed as markup. Read in this order: `page.html`, `main.js` (entry point), `check.js` (the
checks), `judge.js` (reads a judge's replies again), `view.js` (values to show), `answer.js` and
`figures.js` (how to show them), `elements.js`, `bytes.js`, `page.css`.

The page fetches nothing, stores nothing, and shows no green badge unless a check was made.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template

from crp_integrations.dpe import derivation
from crp_integrations.dpe.judge import belief, reasons, reply, verdict
from crp_integrations.dpe.records import COMPARISON, CONTRADICTION, DOUBTS, REJECTED
from crp_integrations.dpe.stages.report import STAGE_ERRORS
from crp_integrations.language import folded_text
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import ErrorKind

# Joined into one script in this order.
SCRIPTS = (
    "bytes.js",
    "elements.js",
    "check.js",
    "judge.js",
    "view.js",
    "answer.js",
    "figures.js",
    "main.js",
)
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; "
    "base-uri 'none'; form-action 'none'"
)


def page(receipt: bytes, others: Sequence[bytes] = ()) -> str:
    """The text of an HTML file that shows and checks a receipt.

    The receipt is not verified here: the page does that when it is opened.
    """
    script = (
        '"use strict";\n(() => {\n' + judge_constants() + "\n".join(map(_part, SCRIPTS)) + "})();\n"
    )
    style = _part("page.css")
    return Template(_part("page.html")).substitute(
        policy=POLICY.format(script=_source(script), style=_source(style)),
        style=style,
        embedded="\n".join(map(_block, (receipt, *others))),
        script=script,
    )


def _block(receipt: bytes) -> str:
    return f'<script type="text/plain">{base64.b64encode(receipt).decode("ascii")}</script>'


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """The SHA-256 by which a content security policy allows an inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


@cache
def judge_constants() -> str:
    """The constants for reading a judge's replies, as a line of JavaScript."""
    constants = {
        "apostrophes": "".join(sorted(folded_text.APOSTROPHES)),
        "base": {level.value: to_fixed(score) for level, score in derivation.BASE.items()},
        "asking": sorted(belief.ASKING),
        "cellBegins": sorted(belief.CELL_BEGINS),
        "cellEnds": sorted(belief.CELL_ENDS),
        "citation": belief.CITATION,
        "comparison": COMPARISON,
        "clauseEnds": sorted(belief.CLAUSE_ENDS),
        "dashes": "".join(sorted(folded_text.DASHES)),
        "edges": folded_text.EDGES,
        "ends": sorted(belief.ENDS),
        "errors": {kind: error.value for kind, error in verdict.EXACT_ERRORS.items()},
        "measured": {kind: error.value for kind, error in STAGE_ERRORS.items()},
        "family": belief.FAMILY,
        "contradiction": CONTRADICTION,
        "doubts": list(DOUBTS),
        "functionWords": sorted(belief.FUNCTION_WORDS),
        "german": sorted(belief.GERMAN),
        "judged": sorted(belief.JUDGED),
        "leastLetters": belief.LEAST_LETTERS,
        "leastWords": belief.LEAST_WORDS,
        "mostGerman": belief.MOST_GERMAN,
        "sameLanguage": round(belief.SAME_LANGUAGE * 100),
        "sentenceEnds": list(belief.STOPS),
        "verdicts": sorted(belief.VERDICTS),
        "first": [status.value for status in verdict.FIRST],
        "formula": folded_text.FORMULA,
        "further": to_fixed(derivation.FURTHER),
        "group": folded_text.GROUP,
        "hanFigures": "".join(sorted(folded_text.HAN_FIGURES)),
        "hyphenation": folded_text.HYPHENATION,
        "kinds": [kind.value for kind in ErrorKind],
        "levels": [level.value for level in derivation.LEVELS],
        "longestName": reply.LONGEST_NAME,
        "longestQuote": reply.LONGEST_QUOTE,
        "longestSaid": reply.LONGEST_REASON,
        "longestReason": reasons.LONGEST,
        "marks": "".join(sorted(folded_text.MARKS)),
        "mostBraces": reply.MOST_BRACES,
        "mostFurther": derivation.MOST_FURTHER,
        "mostQuotes": reply.MOST_QUOTES,
        "mostReasons": reasons.MOST,
        "mostListed": reply.MOST_LISTED,
        "nothing": "".join(sorted(folded_text.NOTHING)),
        "references": folded_text.REFERENCES,
        "rejected": REJECTED,
        "sentences": {name: dict(words) for name, words in reasons.SENTENCES.items()},
        "separated": folded_text.SEPARATED,
        "separators": "".join(sorted(folded_text.SEPARATORS)),
        "settings": folded_text.SETTINGS,
        "specific": sorted(kind.value for kind in derivation.SPECIFIC),
        "stops": "".join(sorted(folded_text.STOPS)),
        "symbols": folded_text.SYMBOLS,
        "unspaced": folded_text.UNSPACED,
        "unsupported": {
            mode.value: level.value for mode, level in derivation.UNSUPPORTED_LEVEL.items()
        },
    }
    # `<` is escaped, since it could end the script element that contains this line.
    return f"const JUDGING = {json.dumps(constants, sort_keys=True)};\n".replace("<", "\\u003c")
