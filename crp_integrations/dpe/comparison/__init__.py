"""Compares claims word for word with the passages; claims without an exact result stay unread."""

from crp_integrations.dpe.comparison.claim_comparison import compare_claims, compare_with_each_other

__all__ = ["compare_claims", "compare_with_each_other"]
