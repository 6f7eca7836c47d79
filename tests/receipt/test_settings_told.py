"""The settings that a receipt tells are read back to the same ones."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.receipt.disclosed import disclosed, dpe_settings, envelope_settings
from crp_integrations.receipt.told import InForce


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
    assert dpe_settings(disclosed(in_force)["dpe"], ()) == in_force.dpe


@pytest.mark.parametrize("limit", [None, 2])
def test_a_limit_that_is_none_is_told_as_well(limit: int | None) -> None:
    hybrid = EnvelopeSettings().hybrid.model_copy(update={"passed_over": limit})
    settings = EnvelopeSettings(hybrid=hybrid)
    in_force = InForce(digest=f"sha256:{limit}", envelope=settings, dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    assert told["hybrid.passed_over"] == limit
    assert envelope_settings(told, ()).hybrid.passed_over == limit


def test_settings_without_end_are_not_kept() -> None:
    in_force = InForce(digest="sha256:" + "3" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = {**disclosed(in_force)["envelope"], "layout": "x" * 70_000}
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be read"):
            envelope_settings(told, ())


def test_a_setting_that_there_is_not_is_refused() -> None:
    in_force = InForce(digest="sha256:" + "4" * 64, envelope=EnvelopeSettings(), dpe=DpeSettings())
    told = disclosed(in_force)["envelope"]
    for path in ("reuse.of_other_times", "of_other_times"):
        with pytest.raises(ValueError, match="cannot be read"):
            envelope_settings({**told, path: 1}, ())
