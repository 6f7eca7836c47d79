"""What `python -m tests.bench.guard` tells of decisions: every class, also the dearest one."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.engines.rego import RegoEngine
from crp_integrations.guard.access import access
from tests.bench.guard import WORST, decisions


def test_the_dearest_questions_are_classes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any]] = []
    decide = RegoEngine.decide

    def noted(self: RegoEngine, bundle: Any, question: Any) -> Any:
        said = decide(self, bundle, question)
        asked.append((question, said))
        return said

    monkeypatch.setattr(RegoEngine, "decide", noted)
    told = decisions(5)
    assert {"operator+pii", "operator+own", "roles+denied"} <= set(told["by_labels"])
    redacted = [["class:internal", "pii:high"], ["class:internal", "pii:high", "project:pumps"]]
    granted = {label for table in access().data["granted"].values() for label in table["read"]}
    assert "project:pumps" not in granted
    for roles, labels, wanted in [
        (["operator"], redacted[0], {"allow": True, "redact": ["*"]}),
        (["operator"], redacted[1], {"allow": True, "redact": ["*"]}),
        (["auditor", "reader"], ["class:secret", "pii:high"], None),
    ]:
        answers = [
            said
            for question, said in asked
            if (question["subject"]["roles"], question["resource"]["labels"]) == (roles, labels)
        ]
        # The first, which makes the class known, and the five that are new.
        assert len(answers) == 1 + 5
        assert all(said == wanted if wanted else not said["allow"] for said in answers)
    # The figure that the bar is laid to is the dearest class's, whichever that is.
    for name in WORST:
        assert told[name] == max(one[name] for one in told["by_labels"].values())
