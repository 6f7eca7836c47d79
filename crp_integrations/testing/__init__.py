"""Testing: the conformance suite for stores, and golden files of what a model sees.

Subclass `StoreConformance` from `conformance.py`, or `PersistentStoreConformance` for a store that
outlives its process, and override the fixture that creates your store; pytest then collects a test
for each guarantee of `fabric/ports` and of `ports.py` in audit, session and receipt. `plugin.py` is
the pytest plug-in with the fixture `assert_context_unchanged`; `golden.py` does its comparison. No
other subpackage imports this one, which needs pytest.
"""

import pytest

# Make failed assertions of the suite show their values, as in test files.
pytest.register_assert_rewrite(
    "crp_integrations.testing.conformance",
    "crp_integrations.testing.conformance_facts",
    "crp_integrations.testing.conformance_sessions",
    "crp_integrations.testing.conformance_transactions",
)
