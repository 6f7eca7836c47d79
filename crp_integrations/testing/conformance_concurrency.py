"""What several processes may do with one store at once."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.fabric.ports import Store
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing import closing, writing
from crp_integrations.testing.hooks import Hooks
from crp_integrations.testing.others import Other, Others
from crp_integrations.testing.records import NAMESPACE

WRITERS, READERS = 3, 2
BATCHES = 12
WINDOWS = 20


def at_once(others: Sequence[Other]) -> None:
    """Let processes that are ready begin."""
    for other in others:
        assert other.hear() == "ready"
    for other in others:
        other.tell("begin")


class ConcurrencyConformance(Hooks):
    """Writers take turns, and nobody sees a part of what another one does."""

    def test_processes_write_and_read_at_once(self, store: Store) -> None:
        """Every batch of every writer is there at the end, and each look shows whole ones."""
        opener = self.opener(store)
        with Others(WRITERS + READERS) as others:
            readers = [others.start(writing.read_until_told, opener) for _ in range(READERS)]
            writers = [
                others.start(writing.write_some, opener, writer, BATCHES)
                for writer in range(WRITERS)
            ]
            at_once([*readers, *writers])
            assert [writer.hear() for writer in writers] == ["done"] * WRITERS
            for reader in readers:
                reader.tell("end")
                looks, _ = reader.hear()
                assert looks
        again = opener()
        added = {
            ("add", f"{writer}-{number}") for writer in range(WRITERS) for number in range(BATCHES)
        }
        removed = {
            ("remove", f"{writer}-{number - 1}")
            for writer in range(WRITERS)
            for number in range(2, BATCHES, 3)
        }
        assert writing.whole(again) == added | removed
        again.close()

    def test_processes_close_windows_of_one_session(self, store: Store) -> None:
        """Each window is charged once, and nobody sees the budget rise."""
        opener = self.opener(store)
        seen = [1.0]
        with Others(2) as others:
            writers = [
                others.start(closing.close_some, opener, writer, WINDOWS) for writer in range(2)
            ]
            at_once(writers)
            again = opener()
            while not all(writer.wire.poll() for writer in writers):
                with again.begin(NAMESPACE, write=False) as transaction:
                    session = sessions_of(transaction).session(closing.SESSIONS[0])
                    seen.append(seen[-1] if session is None else session.safety_budget)
            assert [writer.hear() for writer in writers] == ["done"] * 2
        assert seen == sorted(seen, reverse=True)
        assert closing.check(again) == {
            closing.id_of(closing.SESSIONS[0], f"{writer}-{number}")
            for writer in range(2)
            for number in range(WINDOWS)
        }
        again.close()

    def test_a_session_read_before_another_process_charged_it_is_refused(
        self, store: Store
    ) -> None:
        """What was spent cannot be had back by keeping what was read earlier."""
        opener = self.opener(store)
        again = opener()
        with again.begin(NAMESPACE) as transaction:
            closing.close_window(transaction, closing.SESSIONS[0], "first", fan=False)
        with Others(1) as others:
            other = others.start(closing.keep_stale, opener)
            assert other.hear() == "read"
            with again.begin(NAMESPACE) as transaction:
                closing.close_window(transaction, closing.SESSIONS[0], "second", fan=False)
            other.tell("charged")
            assert "never rises" in other.hear()
        assert len(closing.check(again)) == 2
        again.close()
