"""Sessions whose windows are kept nowhere else: in memory, until they end."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from crp_integrations.envelope.records import PriorWindow
from crp_integrations.session.records import Session, WindowNode

# Of one session: the oldest go first, and no caller fills the memory through one name.
MOST_WINDOWS = 4_096
MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of a session in memory alone.

    Attributes:
        session: its state; None where the store keeps that.
        nodes: windows that the store does not keep, by number.
        said: what windows said, by their ids.
    """

    session: Session | None = None
    nodes: tuple[WindowNode, ...] = ()
    said: dict[str, PriorWindow] = field(default_factory=dict)


class Remembered:
    """What `no-store` sessions, and windows with facts held in memory, have said.

    Safe under threads.

    Spec: CRP-SPEC-003 §17.1
    """

    def __init__(self, most_sessions: int = 1_000) -> None:
        self._most = most_sessions
        self._sessions: OrderedDict[str, Held] = OrderedDict()
        self._lock = threading.Lock()
        # Held from the reading of a session until what became of it is kept.
        self._turns = threading.Lock()

    @contextmanager
    def one_by_one(self, *, wanted: bool = True) -> Iterator[list[tuple[Session, WindowNode]]]:
        """Keep what a block leaves in the list, once it has ended well; no two blocks overlap.

        Args:
            wanted: False for a block that leaves nothing here, which may overlap with others.
        """
        left: list[tuple[Session, WindowNode]] = []
        with self._turns if wanted else nullcontext():
            yield left
            for session, node in left:
                self.keep(session, node)

    def keep(self, session: Session, node: WindowNode | None = None) -> None:
        """Hold a session's state and a window; the one longest unused goes when there are many."""
        with self._lock:
            held = self._sessions.get(session.session_id, Held())
            nodes = held.nodes if node is None else (*held.nodes, node)[-MOST_WINDOWS:]
            self._put(session.session_id, replace(held, session=session, nodes=nodes))

    def say(self, session_id: str, window: PriorWindow) -> None:
        """Hold what a window said; of a session that says much, what it said last."""
        with self._lock:
            held = self._sessions.get(session_id, Held())
            said = {**held.said, window.window_id: window}
            room = MOST_CHARACTERS - sum(map(_characters, said.values()))
            # The last window stays whatever its length: the next one continues it.
            for id_ in [*said][:-1]:
                if room >= 0 and len(said) <= MOST_WINDOWS:
                    break
                room += _characters(said.pop(id_))
            self._put(session_id, replace(held, said=said))

    def of(self, session_id: str) -> Held:
        """What is held of a session; nothing of an unknown one."""
        with self._lock:
            return self._sessions.get(session_id, Held())

    def end(self, session_id: str) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def _put(self, session_id: str, held: Held) -> None:
        self._sessions[session_id] = held
        self._sessions.move_to_end(session_id)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)


def _characters(window: PriorWindow) -> int:
    return len(window.answer) + len(window.summary)
