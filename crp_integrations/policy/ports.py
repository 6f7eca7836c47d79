"""What the policy room needs of the world: somebody who takes violation reports away."""

from __future__ import annotations

from typing import Protocol

from crp_integrations.policy.records import Policy, ViolationReport


class ViolationSink(Protocol):
    """Carries violation reports to the addresses of a policy. Safe under threads."""

    def take(self, report: ViolationReport, policy: Policy) -> None:
        """Take a report for `report-uri` and `report-to` of a policy.

        Never waits and never raises: an answer does not depend on its report's way.
        """
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was taken is delivered or given up.

        Returns:
            False when the time ran out before.
        """
        ...

    def close(self, timeout_s: float) -> None:
        """Flush, then stop; what is taken afterwards is dropped."""
        ...
