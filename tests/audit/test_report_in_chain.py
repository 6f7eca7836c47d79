"""The report is an input of its window's HMAC: who changes it breaks the chain."""

from __future__ import annotations

import pytest

from crp_integrations import Relay
from crp_integrations.audit import window_seals
from crp_integrations.audit.window_seals import session_key
from crp_integrations.dpe.stages.report import report_hash
from crp_integrations.seals import sha256
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.vocabulary import ChainIntegrity, RiskLevel
from tests.doubles import NOON, HashEmbedder, ScriptedModel

KEYS = FixedKeyRing(bytes(range(32)))
FACT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."
SESSION = "crp_sess_7f3a9bc2d4e1f083"


@pytest.mark.requirement("005-21.1-2")
def test_a_changed_report_breaks_the_chain() -> None:
    said = ["It was commissioned on 4 March 2019.", "It delivers 999 megawatts."]
    relay = Relay.open(
        embedder=HashEmbedder(), keyring=KEYS, clock=NOON, models=ScriptedModel(*said)
    )
    relay.fabric.add([FACT])
    answers = [relay.ask("When was it commissioned?", session_id=SESSION) for _ in said]
    with relay.fabric.begin(write=False) as transaction:
        seals = transaction.journal.seals(SESSION)
    key = session_key(KEYS, SESSION)
    assert window_seals.verify_seals(seals, key) is ChainIntegrity.VALID
    for place, (answer, seal) in enumerate(zip(answers, seals, strict=True)):
        report = answer.report
        assert seal.report_hash == report.report_hash == report_hash(report)
        assert seal.response_hash == report.response_content_hash == sha256(said[place])
        changes = {
            "risk_level": next(one for one in RiskLevel if one is not report.risk_level),
            "composite_score": report.composite_score / 2 + 0.25,
            "grounding_pct": report.grounding_pct / 2 + 0.2,
            "claims": report.claims[1:],
            "window_id": report.window_id + "0",
            "timestamp": "2026-05-25T12:00:01Z",
        }
        for name, value in changes.items():
            changed = report.model_copy(update={name: value})
            assert report_hash(changed) != seal.report_hash, name
            forged = [*seals]
            forged[place] = seal.model_copy(update={"report_hash": report_hash(changed)})
            assert window_seals.first_break(forged, key) == place
