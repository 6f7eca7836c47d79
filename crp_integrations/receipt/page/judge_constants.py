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
        "apostrophes": "".join(sorted(quotation.APOSTROPHES)),
        "base": {level.value: to_fixed(score) for level, score in verdict.BASE.items()},
        "checkable": [kind.value for kind in verdict.CHECKABLE],
        "dashes": "".join(sorted(quotation.DASHES)),
        "edges": quotation.EDGES,
        "first": [status.value for status in verdict.FIRST],
        "further": to_fixed(verdict.FURTHER),
        "group": quotation.GROUP,
        "hanFigures": "".join(sorted(quotation.HAN_FIGURES)),
        "kinds": [kind.value for kind in ErrorKind],
        "levels": [level.value for level in verdict.ORDER],
        "longestName": reply.LONGEST_NAME,
        "longestQuote": reply.LONGEST_QUOTE,
        "longestReason": reasons.LONGEST,
        "marks": "".join(sorted(quotation.MARKS)),
        "mostBraces": reply.MOST_BRACES,
        "mostFurther": verdict.MOST_FURTHER,
        "mostQuotes": reply.MOST_QUOTES,
        "mostReasons": reasons.MOST,
        "mostUnnumbered": reply.MOST_UNNUMBERED,
        "nothing": "".join(sorted(quotation.NOTHING)),
        "sentences": {name: dict(words) for name, words in reasons.SENTENCES.items()},
        "separators": "".join(sorted(quotation.SEPARATORS)),
        "specific": sorted(kind.value for kind in verdict.SPECIFIC),
        "stops": "".join(sorted(quotation.STOPS)),
        "unspaced": quotation.UNSPACED,
        "unsupported": {
            mode.value: level.value for mode, level in verdict.UNSUPPORTED_LEVEL.items()
        },
    }
    # Nothing in it ends the script that it stands in.
    return f"const JUDGING = {json.dumps(told, sort_keys=True)};\n".replace("<", "\\u003c")
