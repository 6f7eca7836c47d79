"""Renders a receipt as one HTML page that works offline.

The page contains the receipt only as base64. Its script draws everything from those bytes and
checks them with WebCrypto, so the page shows nothing that is not in the receipt, and no text of it
is parsed as markup. Read in this order: `page.html`, `main.js` (entry point), `check.js` (the
checks), `judge.js` (reads a judge's replies again), `recompute.js` (computes the rest again),
`view.js` (values to show), `answer.js` and `figures.js` (how to show them), `elements.js`,
`bytes.js`, `page.css`.

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
from types import ModuleType
from typing import Any

from crp_integrations.dpe import derivation
from crp_integrations.dpe.judge import belief, messages, reasons, reply, verdict
from crp_integrations.dpe.records import COMPARISON, CONTRADICTION, DOUBTS, REJECTED
from crp_integrations.dpe.stages.report import STAGE_ERRORS
from crp_integrations.envelope import prompt
from crp_integrations.language import folded_text
from crp_integrations.receipt.verify import Verified, verify
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import ErrorKind, GroundingMode, Strategy

# Joined into one script in this order.
SCRIPTS = (
    "bytes.js",
    "elements.js",
    "check.js",
    "judge.js",
    "recompute.js",
    "view.js",
    "answer.js",
    "figures.js",
    "main.js",
)
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; "
    "base-uri 'none'; form-action 'none'"
)


def page(receipt: bytes, others: Sequence[bytes] = (), verification: Verified | None = None) -> str:
    """The text of an HTML file that shows and checks a receipt.

    The page checks the receipt when it is opened. It also has the word of `verify`, for that
    computes more, and the list of what is only stated.

    Args:
        verification: what `verify` says of the receipt, if you know it.
    """
    constants = judge_constants() + _written(receipt, verification or verify(receipt))
    script = '"use strict";\n(() => {\n' + constants + "\n".join(map(_part, SCRIPTS)) + "})();\n"
    style = _part("page.css")
    return Template(_part("page.html")).substitute(
        policy=POLICY.format(script=_source(script), style=_source(style)),
        style=style,
        embedded="\n".join(map(_block, (receipt, *others))),
        script=script,
    )


def _written(receipt: bytes, verification: Verified) -> str:
    """What `verify` says of a receipt, as a line of JavaScript; its texts are strangers'."""
    values = verification.model_dump(mode="json", include={"word", "place", "reason", "stated"})
    values["receipt"] = hashlib.sha256(receipt).hexdigest()
    encoded = base64.b64encode(json.dumps(values, sort_keys=True).encode()).decode()
    return f'const VERIFIED = JSON.parse(atob("{encoded}"));\n'


def _block(receipt: bytes) -> str:
    return f'<script type="text/plain">{base64.b64encode(receipt).decode("ascii")}</script>'


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """The SHA-256 by which a content security policy allows an inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def _constants(module: ModuleType, names: str) -> dict[str, Any]:
    """Constants of a module as JSON, under their names in camel case."""
    made = {}
    for name in names.split():
        first, *rest = name.lower().split("_")
        value = getattr(module, name)
        made[first + "".join(map(str.capitalize, rest))] = (
            sorted(value) if isinstance(value, (set, frozenset)) else value
        )
    return made


@cache
def judge_constants() -> str:
    """The constants for computing statuses and prompt again, as a line of JavaScript."""
    constants = {
        **_constants(
            belief,
            "ASKING CELL_BEGINS CELL_ENDS CITATION CLAUSE_ENDS ENDS FAMILY FUNCTION_WORDS GERMAN "
            "JUDGED LEAST_LETTERS LEAST_SHARED LEAST_WORDS MOST_GERMAN VERDICTS",
        ),
        **_constants(
            folded_text,
            "APOSTROPHES DASHES EDGES FORMULA GROUP HAN_FIGURES HYPHENATION MARKS NOTHING "
            "REFERENCES SEPARATED SEPARATORS SETTINGS STOPS SYMBOLS UNSPACED",
        ),
        **_constants(reply, "LONGEST_NAME LONGEST_QUOTE MOST_BRACES MOST_LISTED MOST_QUOTES"),
        **_constants(
            messages,
            "AGAIN EARLIER EARLIER_CHARACTERS ID_DIGITS QUESTION_CHARACTERS SYSTEM_CHARACTERS",
        ),
        **_constants(prompt, "BETWEEN CONTEXT_CLOSE CONTEXT_OPEN"),
        **_constants(derivation, "MOST_FURTHER"),
        "base": {level.value: to_fixed(score) for level, score in derivation.BASE.items()},
        "comparison": COMPARISON,
        "errors": {kind: error.value for kind, error in verdict.EXACT_ERRORS.items()},
        "contradiction": CONTRADICTION,
        "doubts": list(DOUBTS),
        "first": [status.value for status in verdict.FIRST],
        "further": to_fixed(derivation.FURTHER),
        "instructions": {mode.value: prompt.grounding_instruction(mode) for mode in GroundingMode},
        "kinds": [kind.value for kind in ErrorKind],
        "levels": [level.value for level in derivation.LEVELS],
        "longestReason": reasons.LONGEST,
        "longestSaid": reply.LONGEST_REASON,
        "measured": {kind: error.value for kind, error in STAGE_ERRORS.items()},
        "mostReasons": reasons.MOST,
        "rejected": REJECTED,
        "sameLanguage": round(belief.SAME_LANGUAGE * 100),
        "sentenceEnds": list(belief.STOPS),
        "sentences": {name: dict(words) for name, words in reasons.SENTENCES.items()},
        "specific": sorted(kind.value for kind in derivation.SPECIFIC),
        "strategies": {way.value: prompt.strategy_instruction(way) for way in Strategy},
        "unsupported": {
            mode.value: level.value for mode, level in derivation.UNSUPPORTED_LEVEL.items()
        },
    }
    # `<` is escaped, since it could end the script element that contains this line.
    return f"const JUDGING = {json.dumps(constants, sort_keys=True)};\n".replace("<", "\\u003c")
