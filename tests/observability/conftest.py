from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.governance.window_trace import WindowTrace
from crp_integrations.messages import Reply, Usage
from crp_integrations.ports import Silent
from tests.doubles import NOON, HashEmbedder, ScriptedModel

FACTS = (
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
)
QUESTION = "When was the Meridian reactor commissioned?"
ANSWER = "The Meridian reactor was commissioned on 4 March 2019."
WRONG = "The Meridian reactor was commissioned on 9 July 2011."
SECRETS = (*FACTS, QUESTION, ANSWER, WRONG)


class Ticking:
    """A clock that goes on by a millisecond whenever it is asked."""

    def __init__(self, step: timedelta = timedelta(milliseconds=1)) -> None:
        self.moment, self.step = NOON, step

    def now(self) -> datetime:
        self.moment += self.step
        return self.moment


class Seen(Silent):
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.traces: list[WindowTrace] = []

    def sealed(self, trace: WindowTrace) -> None:
        self.traces.append(trace)

    def calling(self, call: Any) -> Any:
        from contextlib import nullcontext

        return nullcontext(lambda reply: None)


def replied(text: str) -> Reply:
    usage = Usage(prompt_tokens=120, completion_tokens=12, cost_usd=0.0021)
    return Reply(text=text, model="scripted", usage=usage)


Opener = Callable[..., Relay]


@pytest.fixture
def opener(tmp_path: Path) -> Opener:
    """Opens a relay over a store on disk with facts of four sources, and a scripted model."""

    def open_one(*texts: str, **options: Any) -> Relay:
        given: dict[str, Any] = {
            "embedder": HashEmbedder(),
            "clock": Ticking(),
            "models": ScriptedModel(*map(replied, texts or (ANSWER,))),
            **options,
        }
        relay = Relay.open(tmp_path / "kb", **given)
        if not relay.fabric.sources():
            docs = tmp_path / "docs"
            docs.mkdir()
            for place, fact in enumerate(FACTS):
                (docs / f"part-{place}.md").write_text(fact + "\n", encoding="utf-8")
            relay.ingest(docs, prefix="docs:/")
        return relay

    return open_one
