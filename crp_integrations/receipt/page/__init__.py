"""The page of a receipt: bytes of a receipt come in, one HTML file without a network goes out.

The receipt is embedded as base64 and nothing else of it is written into the page: the page's own
script draws all that is shown from those bytes and checks them with WebCrypto, so nothing can be
shown that is not in the receipt, and no text of it is ever read as markup. Read in this order:
`page.html` (the frame), `main.js` (what happens), `check.js` (the checks), `judge.js` (a
judge's word, read again), `view.js` (what of the
receipt is shown), `answer.js`, `figures.js` (how), `elements.js`, `bytes.js`, `page.css`.

Never fetches, never stores, and never shows a green badge where a check was not made.
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
from crp_integrations.dpe.records import COMPARISON, HIDDEN_TEXT, REJECTED
from crp_integrations.dpe.stages.report import STAGE_ERRORS
from crp_integrations.language import folded_text
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import ErrorKind

# In this order they are one script.
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
    """The page that shows and checks a receipt, as text of one HTML file.

    Whether the receipt holds is not asked here: the page asks it where it is opened.
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
    """A content security policy's name of an inline script or style: its SHA-256."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


@cache
def judge_constants() -> str:
    """The words and numbers by which a judge's replies are read, as a line of JavaScript."""
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
        "hidden": HIDDEN_TEXT,
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
    # An escaped `<` cannot end the script element that holds this line.
    return f"const JUDGING = {json.dumps(constants, sort_keys=True)};\n".replace("<", "\\u003c")
