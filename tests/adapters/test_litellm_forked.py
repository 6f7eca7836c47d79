"""A server that makes a router, and then its workers by forking, as gunicorn and celery do."""

from __future__ import annotations

import os

import pytest

from tests.forking import FRAMEWORKS, run
from tests.requirements.rows import ROOT

FORKING = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

BEGIN = """
import os
import sys

from crp_integrations import Relay
from crp_integrations.errors import EngineError
from crp_integrations.litellm import CRPRouter
from tests.doubles import HashEmbedder

fact = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."
asked = [{"role": "user", "content": "How much power does the Meridian reactor deliver?"}]
entry = {"model_name": "quoting", "litellm_params": {"model": "extractive/best"}}


def made():
    relay = Relay.open(embedder=HashEmbedder())
    relay.fabric.add([fact])
    return CRPRouter([entry], relay=relay)


def answered(router):
    return "412" in router.completion("quoting", asked).choices[0].message.content


def forked(work):
    child = os.fork()
    if not child:
        try:
            os._exit(work())
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

# What is documented: the parent makes its router, the workers call it.
BEFORE = """
router = made()
sys.exit(max(forked(lambda: 0 if answered(router) else 3) for _ in range(2)))
"""

# A call in the parent starts the loop of the synchronous path, and LiteLLM's native runtime.
AFTER = """
def worker():
    try:
        return 0 if answered(made()) else 3
    except EngineError as error:
        return 0 if "in the worker, after the fork" in str(error) else 3


assert answered(made())
sys.exit(forked(worker))
"""


@FORKING
@pytest.mark.parametrize("script", [BEFORE, AFTER], ids=["made before", "called before"])
def test_a_forked_worker_answers_or_says_where_the_first_call_belongs(script: str) -> None:
    """The loop's thread stays behind in the first process; to wait for it would be for ever.

    LiteLLM's native runtime, where it has one, works in no process that was forked after its start.
    """
    done = run(["-c", BEGIN + script], cwd=ROOT, env=os.environ, modules=FRAMEWORKS)
    assert done.returncode == 0, done.stderr[-800:]
