"""Settings that an older receipt does not tell are read as what was done then."""

from __future__ import annotations

import pytest

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


def test_settings_are_read_once_for_all_receipts_that_tell_the_same() -> None:
    in_force = InForce(digest="sha256:" + "2" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    again = dict(reversed(told.items()))
    assert envelope_settings(told, ()) is envelope_settings(again, ())
    other = envelope_settings({**told, "promote": not told["promote"]}, ())
    assert other.promote is not envelope_settings(told, ()).promote
    # Nor is a number another's text, or the other way about.
    with pytest.raises(ValueError, match="cannot be read"):
        envelope_settings({**told, "packing": 1}, ())
    assert envelope_settings(told, ()).packing == told["packing"]


def test_settings_without_end_are_not_kept() -> None:
    in_force = InForce(digest="sha256:" + "3" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = {**disclosed(in_force)["envelope"], "reuse.of_other_times": "x" * 70_000}
    # What is told of phases before the scores is not read at all.
    first, second = envelope_settings(told, ()), envelope_settings(told, ())
    assert first == second == envelope_settings(disclosed(in_force)["envelope"], ())
    assert first is not second
