"""A session of a real relay over a small handbook, with a model whose words are scripted."""

from __future__ import annotations

from crp_integrations import Relay
from crp_integrations.receipt.records import write
from crp_integrations.relay.judge import Judge
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, ScriptedModel
from tests.relay.judges import CONTRADICTED, scripted_judge

KEY = "ab" * 32
SESSION = "crp_sess_handbook20260525ab"
HANDBOOK = (
    "Transport workers may be posted for at most 12 months.",
    (
        "The posting may be extended once by six months when the employer gives reasons before "
        "the end of the twelfth month."
    ),
    "An employer must notify the labour authority before the posting begins.",
    "A late notification costs between 500 and 2,500 euros for each worker.",
    "The notification names the site, the beginning and the expected duration of the posting.",
    "Directive 96/71/EC applies to postings between member states of the union.",
    "Posted workers are paid at least the minimum wage of the host state.",
    "Overtime of posted workers is paid at 150 percent.",
    "A posted worker keeps the sick pay of the home state.",
    "Housing on the site is inspected every six months.",
    "Safety shoes are worn on every site, and gloves where the sign asks for them.",
    "Travel costs to the site are borne by the employer.",
    "Apprentices are not posted without the consent of a parent.",
    "The works council is heard before a posting of more than three months.",
)
QUESTIONS = (
    "Which law applies to postings?",
    "What is paid to posted workers?",
    "How long may a worker be posted, and what must the employer do first?",
)
ANSWERS = (
    "Directive 96/71/EC applies to postings between member states.",
    "Posted workers get at least the minimum wage of the host state, and 150 percent for overtime.",
    (
        "Transport workers may be posted for at most 12 months. The posting may be extended once "
        "by eight months. An employer must notify the labour authority before the posting begins, "
        "and late notifications cost at least 500 euros. Most firms in Lisbon hire a consultant "
        "for this. Tell me if you need a template."
    ),
)
# Reads every answer: that figure is wrong, all else is right.
JUDGE = scripted_judge({"eight months": CONTRADICTED})
POLICY = "warn-on MEDIUM; block-pii"


def session(judge: Judge | None = JUDGE) -> list[bytes]:
    """The receipts of a session of three windows; the last one's answer is wrong in one number."""
    made = []
    model = ScriptedModel(*ANSWERS)
    with Relay.open(MemoryStore(), key=KEY, clock=NOON, models=model, judge=judge) as relay:
        relay.fabric.add(list(HANDBOOK))
        for question in QUESTIONS:
            answer = relay.ask(
                question,
                model="gpt-4o",
                session_id=SESSION,
                budget_tokens=130,
                policy=POLICY,
            )
            receipt = relay.receipt(answer.receipt_id)
            assert receipt is not None
            made.append(write(receipt))
    return made
