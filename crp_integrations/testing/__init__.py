"""Testing: what a backend of your own must pass, as classes that pytest collects.

In: a fixture that makes your store. Out: passed or failed tests, one for each promise of
`fabric/ports` and of `ports.py` in audit, session and receipt. Subclass `StoreConformance` from
`conformance.py`, or `PersistentStoreConformance` for a store that outlives its process; `hooks.py`
says what else the tests ask for. The records that they put in come from `records.py`. `plugin.py`
is pytest's plug-in with the fixture `assert_context_unchanged`, and `golden.py` what it compares.
The room needs pytest and is imported by nothing else.
"""

import pytest

# A failed assertion of the suite shows its values, as one in a test file does.
pytest.register_assert_rewrite(
    "crp_integrations.testing.closing",
    "crp_integrations.testing.conformance",
    "crp_integrations.testing.conformance_attack",
    "crp_integrations.testing.conformance_concurrency",
    "crp_integrations.testing.conformance_crash",
    "crp_integrations.testing.conformance_edits",
    "crp_integrations.testing.conformance_equal",
    "crp_integrations.testing.conformance_erasure",
    "crp_integrations.testing.conformance_facts",
    "crp_integrations.testing.conformance_faulted",
    "crp_integrations.testing.conformance_finding",
    "crp_integrations.testing.conformance_jobs",
    "crp_integrations.testing.conformance_journal",
    "crp_integrations.testing.conformance_receipts",
    "crp_integrations.testing.conformance_sessions",
    "crp_integrations.testing.conformance_transactions",
    "crp_integrations.testing.conformance_upkeep",
    "crp_integrations.testing.conformance_withdrawal",
    "crp_integrations.testing.writing",
)
