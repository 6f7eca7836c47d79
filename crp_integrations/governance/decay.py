"""Decay functions of memories; they live where the fabric can read them of a fact."""

from __future__ import annotations

from crp_integrations.fabric.decay import CURVES, DECAY_KEY, Decay, carried, decay, known

__all__ = ["CURVES", "DECAY_KEY", "Decay", "carried", "decay", "known"]
