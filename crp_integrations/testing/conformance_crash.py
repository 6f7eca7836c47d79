"""What a store keeps when a process that writes is killed at any moment."""

from __future__ import annotations

import random
import time

from crp_integrations.fabric.ports import Store
from crp_integrations.testing import closing, writing
from crp_integrations.testing.hooks import Hooks
from crp_integrations.testing.others import Others
from crp_integrations.testing.records import NAMESPACE

# The longest that a process lives after it was last heard.
SECONDS = 0.08
# Acknowledgements that a killed process is waited for, apart from the first one.
HEARD = 3


class CrashConformance(Hooks):
    """Nothing acknowledged is lost, nothing removed comes back, and no part of a batch is there."""

    def test_killed_while_facts_are_added_and_removed(self, store: Store) -> None:
        """The trail, and each facet by it, holds whole batches alone."""
        opener, chance = self.opener(store), random.Random(5)  # noqa: S311 - no secret
        told: set[writing.Deed] = set()
        with Others(self.kills) as others:
            for run in range(self.kills):
                other = others.start(writing.write_until_killed, opener, run)
                # The first one is killed while it makes the place.
                told.update(other.hear() for _ in range(HEARD if run else 0))
                time.sleep(chance.uniform(0.0, SECONDS))
                told.update(other.kill())
                again = opener()
                done = writing.whole(again)
                assert told <= done
                # At most one deed a run was committed and not told of.
                assert len(done) <= len(told) + run + 1
                if run % 2:
                    again.close()
        assert len(told) >= HEARD * (self.kills - 1)

    def test_killed_while_windows_are_closed(self, store: Store) -> None:
        """Seal, event, node, what was said, charge and fact are each where the others are."""
        opener, chance = self.opener(store), random.Random(7)  # noqa: S311 - no secret
        told: set[str] = set()
        with Others(self.kills) as others:
            for run in range(self.kills):
                other = others.start(closing.close_until_killed, opener, run)
                told.update(other.hear() for _ in range(HEARD if run else 0))
                time.sleep(chance.uniform(0.0, SECONDS))
                told.update(other.kill())
                again = opener()
                found = closing.check(again)
                assert told <= found
                assert len(found) <= len(told) + run + 1
                assert again.check(NAMESPACE) == []
                if run % 2:
                    again.close()
        assert len(told) >= HEARD * (self.kills - 1)
