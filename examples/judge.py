"""Two answers to one question, a right one and a wrong one, and what a judge says of them.

Run it as it stands: `python examples/judge.py`. It needs no key: recorded verdicts stand in for
the model. With a key, `judge="openai/gpt-4o-mini"` or `judge="ollama_chat/qwen3"` takes its place.
Without a judge both answers are UNKNOWN, which it shows last.
"""

import json

from crp_integrations import examine
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.relay.judge import Judge

QUESTION = "What does the Meridian plan cost, and can I cancel it?"
CONTEXT = [
    "The Meridian plan costs 4.20 euros a month, or 42 euros when it is paid for a year.",
    """A plan that is paid by the month can be cancelled at any time.
A plan that is paid for a year can be cancelled in its first 14 days.""",
]
RIGHT = (
    "The Meridian plan is 4.20 euros a month. If you pay for the whole year, you save 8.40 euros. "
    "Plans by the month can be cancelled whenever you like."
)
WRONG = (
    "The Meridian plan is 4.80 euros a month. It comes with a free trial. "
    "You can cancel it at any time."
)

PRICE = {"in": "1", "text": "costs 4.20 euros a month"}
YEAR = {"in": "1", "text": "42 euros when it is paid for a year"}
MONTH = {"in": "2", "text": "paid by the month can be cancelled at any time"}
FIRST = {"in": "2", "text": "paid for a year can be cancelled in its first 14 days"}
# What a model replied on each claim.
VERDICTS = {
    "4.20 euros a month": {"status": "SUPPORTED", "quotes": [PRICE]},
    "you save 8.40": {"status": "SUPPORTED", "quotes": [PRICE, YEAR]},
    "whenever you like": {"status": "SUPPORTED", "quotes": [MONTH]},
    "4.80": {"status": "CONTRADICTED", "kind": "NUMBER", "wrong": "4.80 euros", "quotes": [PRICE]},
    "free trial": {"status": "UNSUPPORTED", "kind": "INVENTION", "wrong": "a free trial"},
    "cancel it": {
        "status": "CONTRADICTED",
        "kind": "CONDITION",
        "wrong": "at any time",
        "quotes": [FIRST],
        "reason": "Only plans by the month can be cancelled at any time.",
    },
}


class RecordedModel:
    """Replies as a model does: one JSON object with the id of what it was asked."""

    model_name = "recorded"

    def call(self, call: ModelCall) -> Reply:
        """Answer what the judge is asked."""
        asked = json.loads(call.messages[-1].content)
        verdicts = [
            {"n": claim[0], **next(v for words, v in VERDICTS.items() if words in claim[1])}
            for claim in asked["answer"]
            if isinstance(claim, list)
        ]
        return Reply(text=json.dumps({"id": asked["id"], "claims": verdicts}), model="recorded")

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        return self.call(call)


def main() -> None:
    judge = Judge(RecordedModel())
    for answer in (RIGHT, WRONG):
        report = examine(answer, CONTEXT, QUESTION, judge=judge)
        print(report.risk_level, report.verification, "by", report.checked_by)
        for claim in report.claims:
            print(f"  {claim.start:3}-{claim.end:3} {claim.status:12} {claim.text}")
        for reason in report.reasons:
            print("  -", reason)
    print("without a judge:", examine(WRONG, CONTEXT, QUESTION).claim_counts)


if __name__ == "__main__":
    main()
