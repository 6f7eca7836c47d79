"""Claims compared word for word with the passages: what is exact is said, the rest is unread."""

from crp_integrations.dpe.comparison.claim_comparison import compare_claims

__all__ = ["compare_claims"]
