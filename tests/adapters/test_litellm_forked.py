"""A server that makes a router, and then its workers by forking, as gunicorn and celery do."""

from __future__ import annotations

import os

import pytest

from tests.forking import FRAMEWORKS, run
from tests.requirements.rows import ROOT

SCRIPT = """
import os
import sys

from crp_integrations import Relay
from crp_integrations.litellm import CRPRouter
from tests.doubles import HashEmbedder

fact = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."
asked = [{"role": "user", "content": "How much power does the Meridian reactor deliver?"}]
entry = {"model_name": "quoting", "litellm_params": {"model": "extractive/best"}}


def answered():
    with Relay.open(embedder=HashEmbedder()) as relay:
        relay.fabric.add([fact])
        response = CRPRouter([entry], relay=relay).completion("quoting", asked)
    return "412" in response.choices[0].message.content


assert answered()
child = os.fork()
if not child:
    os._exit(0 if answered() else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_worker_has_a_loop_of_its_own() -> None:
    """The loop's thread stays behind in the first process; to wait for it would be for ever."""
    done = run(["-c", SCRIPT], cwd=ROOT, env=os.environ, modules=FRAMEWORKS)
    assert done.returncode == 0, done.stderr[-800:]
