"""What a second judge changes, by arithmetic: judges that err in each verdict, independently.

python -m tests.bench.second_judge
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

# Claims of an answer; a wrong answer has one wrong claim.
CLAIMS = 7


@dataclass(frozen=True, slots=True)
class PairRates:
    """Shares of answers: right ones flagged, wrong ones passed, and those the second judge reads.

    Half of the answers are right.
    """

    flagged: float
    passed: float
    asked: float


def pair_rates(first: float, second: float | None, claims: int = CLAIMS) -> PairRates:
    """The rates of a judge that errs in a share of its verdicts, and of a second one after it."""
    again = 1.0 if second is None else second
    # A right claim stays flagged if both err; a wrong one passes if either of them errs.
    wrongly, missed = first * again, first + (1 - first) * (again if second is not None else 0.0)
    unflagged = (1 - wrongly) ** (claims - 1)
    quiet = (1 - first) ** (claims - 1)
    return PairRates(
        flagged=1 - unflagged * (1 - wrongly),
        passed=unflagged * missed,
        asked=0.0 if second is None else 1 - quiet * ((1 - first) + first) / 2,
    )


def table() -> str:
    """The rates as a table in Markdown."""
    rows = ["| judges | right answers flagged | wrong answers passed | read by the second |"]
    rows.append("|---|---|---|---|")
    for name, second in (
        ("one that errs in one verdict of ten", None),
        ("the same with `confirm`", 0.1),
        ("then one that errs in one of a hundred", 0.01),
    ):
        rates = pair_rates(0.1, second)
        shares = (rates.flagged, rates.passed, rates.asked)
        rows.append(f"| {name} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(table())
