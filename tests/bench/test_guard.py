"""What `crp bench guard` tells of decisions: every class, also the dearest one."""

from __future__ import annotations

from typing import Any

import pytest

from crp_integrations.bench.guard.speed import WORST, decisions
from crp_integrations.engines.rego import RegoEngine


def test_an_operator_who_reads_personal_data_is_a_class_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, Any]] = []
    decide = RegoEngine.decide

    def noted(self: RegoEngine, bundle: Any, question: Any) -> Any:
        said = decide(self, bundle, question)
        asked.append((question, said))
        return said

    monkeypatch.setattr(RegoEngine, "decide", noted)
    told = decisions(5)
    assert "operator+pii" in told["by_labels"]
    operators = [(q, said) for q, said in asked if q["subject"]["roles"] == ["operator"]]
    # The first, which makes the class known, and the five that are new.
    assert len(operators) == 1 + 5
    for question, said in operators:
        assert "pii:high" in question["resource"]["labels"]
        assert said == {"allow": True, "redact": ["*"]}
    # The figure that the bar is laid to is the dearest class's, whichever that is.
    for name in WORST:
        assert told[name] == max(one[name] for one in told["by_labels"].values())
