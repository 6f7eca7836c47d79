"""What the content of a receipt says of a judge: what it was asked, and where its replies are."""

from __future__ import annotations

from crp_integrations.receipt.numbers import Count, Decimal
from crp_integrations.records import Part


class JudgeCallTold(Part):
    """One call of a judge.

    Attributes:
        id: hash of what was asked, which the reply repeats.
        first, last: numbers of the claims that were asked about, from 1.
        passages: numbers of the passages that were shown, from 1.
        pieces: number, start and end of each of them that was shown in part.
        prompt_hash: of the messages that were sent.
        error: name of the error in the place of a reply; empty for none.
        cost: in USD; None where no price is known.
        leaf: of the reply's text; None where no reply came.
    """

    id: str
    first: Count
    last: Count
    passages: tuple[Count, ...] = ()
    pieces: tuple[tuple[Count, Count, Count], ...] = ()
    prompt_hash: str
    model: str = ""
    error: str = ""
    cached: bool = False
    milliseconds: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    cost: Decimal | None = None
    leaf: Count | None = None


class Spoken(Part):
    """A message before the question, as the judge was told of it.

    Attributes:
        leaf: of its text.
    """

    role: str
    leaf: Count


class JudgedTold(Part):
    """What a judge was asked about the answer.

    Attributes:
        model: the judge as it was named.
        prompt: name of its prompt, and hash of the system message.
        own_answer: the model judged an answer of its own.
        skipped: why none was asked; empty where one was.
        language: of the reasons.
        passages: how many there are.
        left_out: id and reason of each passage that no call showed whole.
        calls: in order.
        conversation: messages before the question, as far as they were spoken.
        instructions: leaf of the system prompt; None for none.
    """

    model: str = ""
    prompt: str = ""
    own_answer: bool = False
    skipped: str = ""
    language: str = "en"
    passages: Count = 0
    left_out: tuple[tuple[str, str], ...] = ()
    calls: tuple[JudgeCallTold, ...] = ()
    conversation: tuple[Spoken, ...] = ()
    instructions: Count | None = None
