"""The event loop behind the synchronous calls, in a thread of its own.

LiteLLM's own synchronous path never asks what an attempt should carry, so it is not used.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, Final, TypeVar

from crp_integrations.errors import RequestError

T = TypeVar("T")
# At the end of the process: how long open calls get to be cancelled.
END_SECONDS: Final = 5.0


def wait(work: Coroutine[Any, Any, T]) -> T:
    """The result of asynchronous work, for a caller outside that loop."""
    loop = own_loop()
    if _running() is loop:
        work.close()
        raise RequestError(
            "completion was called from within a call of the router; await acompletion there"
        )
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def made_in_a_loop(make: Callable[[], T]) -> T:
    """What a function makes while a loop runs: a router with budgets starts a task of its own."""
    if _running() is not None:
        return make()

    async def made() -> T:
        return make()

    return wait(made())


@cache
def own_loop() -> asyncio.AbstractEventLoop:
    """The loop, which lasts as long as the process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_serve, args=(loop,), name="crp-litellm", daemon=True)
    thread.start()
    atexit.register(_end, loop, thread)
    return loop


# A forked process has the loop and not its thread, and would wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=own_loop.cache_clear)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    # LiteLLM leaves a worker for its logs in every loop; unfinished, it would complain.
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=END_SECONDS)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
