"""Settings that an older receipt does not tell are read as what was done then."""

from __future__ import annotations

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.receipt.disclosed import disclosed, envelope_settings
from crp_integrations.receipt.told import InForce


def test_a_receipt_from_before_the_setting_packs_as_it_did() -> None:
    in_force = InForce(digest="sha256:" + "0" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    now = envelope_settings(told, ())
    assert now.hybrid.passed_over == EnvelopeSettings().hybrid.passed_over == 2
    older = {path: value for path, value in told.items() if path != "hybrid.passed_over"}
    assert envelope_settings(older, ()).hybrid.passed_over is None
    # No limit is told as well.
    free = EnvelopeSettings(
        hybrid=EnvelopeSettings().hybrid.model_copy(update={"passed_over": None})
    )
    told = disclosed(InForce(digest="sha256:" + "1" * 64, envelope=free, dpe=in_force.dpe))[
        "envelope"
    ]
    assert told["hybrid.passed_over"] is None
    assert envelope_settings(told, ()).hybrid.passed_over is None
