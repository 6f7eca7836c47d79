"""What was sent to models whose answers are awaited, by run; as far as it is text."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from uuid import UUID

from langchain_core.messages import BaseMessage

from crp_integrations.errors import RequestError
from crp_integrations.langchain.ancestry import MOST_TREES
from crp_integrations.langchain.wire import message_of
from crp_integrations.messages import Message


class Sent:
    """Messages of calls in progress. Bounded: nobody is told of a call that is cancelled."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._messages: OrderedDict[UUID, tuple[Message, ...]] = OrderedDict()

    def note(self, run_id: UUID, messages: Sequence[Sequence[BaseMessage]]) -> None:
        """Note what is sent.

        Of several conversations in one call, and of one with a role of its own, nothing is noted.
        """
        if len(messages) != 1:
            return
        try:
            read = tuple(message_of(message) for message in messages[0])
        except RequestError:
            return
        with self._lock:
            self._messages[run_id] = read
            while len(self._messages) > MOST_TREES:
                self._messages.popitem(last=False)

    def taken(self, run_id: UUID) -> tuple[Message, ...]:
        """What was sent in a call, once; empty where it was not seen."""
        with self._lock:
            return self._messages.pop(run_id, ())
