"""The sessions facet over one draft."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from crp_integrations.envelope.records import PriorWindow
from crp_integrations.session.records import Session, WindowNode
from crp_integrations.stores import said
from crp_integrations.stores.memory import receipts
from crp_integrations.stores.memory.state import Draft, State
from crp_integrations.vocabulary import FactStatus


class MemorySessions:
    """Sessions, windows and what they said, of one namespace."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def session(self, session_id: str) -> Session | None:
        """A session's state; None for one that is not known."""
        return self._draft.state.sessions.get(session_id)

    def keep(self, session: Session) -> None:
        """Keep a session's state; replaces that of the same id."""
        self._draft.gate.writing()
        said.check_kept(session, self._draft.state.sessions.get(session.session_id))
        said.moment(session.modified_at, f"session {session.session_id!r:.60}")
        self._draft.change("sessions").sessions[session.session_id] = session

    def add_window(
        self,
        node: WindowNode,
        *,
        prior: PriorWindow | None = None,
        report: str = "",
        facts: Sequence[str] = (),
        sources: Sequence[str] = (),
        given: Sequence[str] | None = None,
    ) -> None:
        """Add a window of a session that is kept."""
        self._draft.gate.writing()
        state = self._draft.state
        said.check_window(
            node,
            kept=node.session_id in state.sessions,
            known=node.window_id in state.windows,
            continued=node.continuation_id in state.continued,
        )
        closed_at = said.moment(node.timestamp, f"window {node.window_id!r:.60}")
        made = said.said(node, prior, report, facts, sources)
        state = self._draft.change("windows", "of_session")
        state.windows[node.window_id] = node
        others = (*state.of_session.get(node.session_id, ()), node.window_id)
        state.of_session[node.session_id] = tuple(
            sorted(others, key=lambda id_: (state.windows[id_].window_number, id_))
        )
        if node.continuation_id:
            self._draft.change("continued").continued[node.continuation_id] = node.window_id
        self._trim(closed_at)
        if made is None or self._is_overtaken(made, node, given):
            return
        state = self._draft.change("said")
        own = {state.facts[id_].source_id for id_ in made.facts if id_ in state.facts} - {""}
        state.said[node.window_id] = said.Said(
            made.prior, made.report, made.facts, tuple(sorted(own | {*made.sources}))
        )

    def windows(self, session_id: str) -> list[WindowNode]:
        """A session's windows by number, then id."""
        state = self._draft.state
        return [state.windows[id_] for id_ in state.of_session.get(session_id, ())]

    def continued(self, continuation_id: str) -> WindowNode | None:
        """The window that an id continues."""
        state = self._draft.state
        return state.windows.get(state.continued.get(continuation_id, ""))

    def priors(self, window_ids: Sequence[str]) -> dict[str, PriorWindow]:
        """What is kept of windows, by id; those of which nothing is kept are left out."""
        kept = self._draft.state.said
        found = {id_: kept[id_].prior for id_ in window_ids if id_ in kept}
        return {
            id_: PriorWindow.model_validate_json(text)
            for id_, text in found.items()
            if text is not None
        }

    def report(self, window_id: str) -> str | None:
        """A window's report as JSON; None where none is kept."""
        kept = self._draft.state.said.get(window_id)
        return None if kept is None else kept.report

    def session_ids(self) -> Iterator[str]:
        """Ids of all sessions, ascending."""
        return iter(sorted(self._draft.state.sessions))

    def withdraw(self, fact_ids: Sequence[str], at: datetime, *, source_id: str = "") -> int:
        """Remove what windows said with some facts, and keep nothing of what is on its way."""
        self._draft.gate.writing()
        self._trim(at)
        if fact_ids:
            moment = at.astimezone(UTC)
            self._draft.change("withdrawn").withdrawn.update(dict.fromkeys(fact_ids, moment))
        return empty(self._draft, fact_ids, source_id)

    def has(self, session_id: str) -> bool:
        """Whether a session is kept."""
        return session_id in self._draft.state.sessions

    def idle(self, since: datetime) -> list[str]:
        """Ids of the sessions not gone on with since a moment, ascending."""
        sessions = self._draft.state.sessions
        return sorted(
            id_ for id_, one in sessions.items() if said.moment(one.modified_at, id_) < since
        )

    def forget(self, session_id: str) -> bool:
        """Remove a session, its windows and all that they said; whether there was one."""
        self._draft.gate.writing()
        state = self._draft.state
        if session_id not in state.sessions:
            return False
        receipts.forget(self._draft, session_id)
        names = ("sessions", "windows", "of_session", "continued", "said", "emptied")
        state = self._draft.change(*names)
        del state.sessions[session_id]
        for id_ in state.of_session.pop(session_id, ()):
            state.continued.pop(state.windows.pop(id_).continuation_id, None)
            state.said.pop(id_, None)
            state.emptied.discard(id_)
        return True

    def _is_overtaken(self, made: said.Said, node: WindowNode, given: Sequence[str] | None) -> bool:
        """Whether something that the window came from was withdrawn while it was under way."""
        state = self._draft.state
        for id_ in made.facts:
            stored = state.facts.get(id_)
            here = stored is not None and stored.status is not FactStatus.DELETED
            if id_ in state.withdrawn and not here:
                return True
        if given is None:
            return not state.emptied.isdisjoint(node.parents)
        return any(id_ not in state.said for id_ in given)

    def _trim(self, now: datetime) -> None:
        """Forget withdrawals that no window under way can have missed."""
        withdrawn = self._draft.state.withdrawn
        old = [id_ for id_, at in withdrawn.items() if at < now - said.UNDER_WAY]
        if old:
            table = self._draft.change("withdrawn").withdrawn
            for id_ in old:
                del table[id_]


def empty(draft: Draft, fact_ids: Collection[str], source_id: str = "") -> int:
    """Take what windows said with some facts, and what later windows may repeat of it.

    Returns:
        How many windows were emptied, or lost texts of their receipt alone.
    """
    state = draft.state
    wanted = {*fact_ids}
    roots = [
        state.windows[id_]
        for id_, one in state.said.items()
        if not wanted.isdisjoint(one.facts) or (source_id and source_id in one.sources)
    ]
    by_session: dict[str, list[WindowNode]] = {}
    for node in roots:
        by_session.setdefault(node.session_id, []).append(node)
    gone: set[str] = set()
    children = _children(state) if roots else {}
    for session_id, shown in by_session.items():
        own = [state.windows[id_] for id_ in state.of_session[session_id]]
        gone |= said.following(own, [node.window_id for node in shown])
        first = min(map(_closed, shown))
        for name in _family(state, session_id, children) - {session_id}:
            others = state.of_session.get(name, ())
            gone.update(id_ for id_ in others if _closed(state.windows[id_]) >= first)
    emptying = frozenset(gone)
    gone &= state.said.keys()
    if gone:
        state = draft.change("said", "emptied")
        state.emptied.update(gone)
        for id_ in gone:
            del state.said[id_]
    return len(gone | receipts.erase(draft, fact_ids, source_id, emptying))


def _children(state: State) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for id_, one in state.sessions.items():
        if one.parent_session:
            found.setdefault(one.parent_session, []).append(id_)
    return found


def _family(state: State, session_id: str, children: Mapping[str, Sequence[str]]) -> set[str]:
    """A session with those that it was delegated from and to, however far."""
    found: set[str] = set()
    waiting = [session_id]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        one = state.sessions.get(name)
        if one is not None and one.parent_session:
            waiting.append(one.parent_session)
        waiting.extend(children.get(name, ()))
    return found


def _closed(node: WindowNode) -> datetime:
    return said.moment(node.timestamp, node.window_id)
