"""The words and numbers by which a judge's replies are read, as the page's script has them."""

from __future__ import annotations

import json
from functools import cache

from crp_integrations.dpe.judge import quotation, reasons, reply, verdict
from crp_integrations.scores import to_fixed
from crp_integrations.vocabulary import ErrorKind


@cache
def constants() -> str:
    """A line of JavaScript that says what the package's own modules say."""
    told = {
        "base": {level.value: to_fixed(score) for level, score in verdict.BASE.items()},
        "checkable": [kind.value for kind in verdict.CHECKABLE],
        "dashes": "".join(sorted(quotation.DASHES)),
        "dropped": "".join(sorted(quotation.QUOTES | quotation.NOTHING)),
        "edges": quotation.EDGES,
        "first": [status.value for status in verdict.FIRST],
        "further": to_fixed(verdict.FURTHER),
        "kinds": [kind.value for kind in ErrorKind],
        "levels": [level.value for level in verdict.ORDER],
        "longestQuote": reply.LONGEST_QUOTE,
        "longestReason": reasons.LONGEST,
        "mostFurther": verdict.MOST_FURTHER,
        "mostQuotes": reply.MOST_QUOTES,
        "mostReasons": reasons.MOST,
        "mostUnnumbered": reply.MOST_UNNUMBERED,
        "sentences": {name: dict(words) for name, words in reasons.SENTENCES.items()},
        "specific": sorted(kind.value for kind in verdict.SPECIFIC),
        "unspaced": quotation.UNSPACED,
        "unsupported": {
            mode.value: level.value for mode, level in verdict.UNSUPPORTED_LEVEL.items()
        },
    }
    # Nothing in it ends the script that it stands in.
    return f"const JUDGING = {json.dumps(told, sort_keys=True)};\n".replace("<", "\\u003c")
