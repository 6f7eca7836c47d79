"""Testing: the conformance suite of stores, and goldens of what a model sees.

Subclass `StoreConformance` from `conformance.py`, or `PersistentStoreConformance` for a store that
outlives its process, with a fixture that makes your store; pytest then collects one test for each
promise of `fabric/ports` and of `ports.py` in audit, session and receipt. `plugin.py` is pytest's
plug-in, with the fixture `assert_context_unchanged`, and `golden.py` what it compares. The room
needs pytest, and no other room imports it.
"""

import pytest

# A failed assertion of the suite shows its values, as one in a test file does.
pytest.register_assert_rewrite(
    "crp_integrations.testing.conformance",
    "crp_integrations.testing.conformance_facts",
    "crp_integrations.testing.conformance_sessions",
    "crp_integrations.testing.conformance_transactions",
)
