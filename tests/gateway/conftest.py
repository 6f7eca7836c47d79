"""A gateway over a store with two tenants, in front of a server in the OpenAI shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import here as here
from tests.gateway.application import Gateway, opened
from tests.judges import judge_double, named
from tests.servers import Double, openai_double


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double(text="Plant 7 was built in 1957.") as double:
        yield double


@pytest.fixture
def judge() -> Iterator[Double]:
    with judge_double() as double:
        yield double


@pytest.fixture
def judged(tmp_path: Path, server: Double, judge: Double) -> Iterator[Gateway]:
    """A gateway whose answers are read."""
    with opened(tmp_path, server, options={"judge": named(judge)}) as found:
        yield found


@pytest.fixture
def gateway(tmp_path: Path, server: Double) -> Iterator[Gateway]:
    with opened(tmp_path, server) as found:
        yield found
