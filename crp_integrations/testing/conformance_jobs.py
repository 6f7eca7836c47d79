"""What a table of jobs promises, in a store that keeps one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.ports.store import ClaimedJob, Jobs, jobs_of
from crp_integrations.testing.records import NAMESPACE, OTHER

BATCH = "a batch"


def kept(store: Store, ids: Sequence[str] = ("b", "a", "c")) -> Jobs:
    """The jobs of a store with a few of them; a store without has nothing to show here."""
    jobs = jobs_of(store)
    if jobs is None:
        pytest.skip("this store keeps no jobs")
    jobs.put(NAMESPACE, BATCH, ids)
    return jobs


def taken(claim: ClaimedJob | None) -> ClaimedJob:
    """A claim that was expected."""
    assert claim is not None
    return claim


class JobsConformance:
    """Jobs are had by one at a time and get one result each."""

    def test_jobs_come_in_the_order_they_were_put_each_once(self, store: Store) -> None:
        """What is there stays as it is when it is put again."""
        jobs = kept(store)
        assert jobs.put(NAMESPACE, BATCH, ["a", "d", "d"]) == 1
        assert jobs.results(NAMESPACE, BATCH) == dict.fromkeys("bacd")
        seen = []
        for _ in range(4):
            with jobs.claim(NAMESPACE, BATCH) as claim:
                seen.append(taken(claim).job_id)
                taken(claim).finish(f'"{len(seen)}"')
        assert seen == [*"bacd"]
        with jobs.claim(NAMESPACE, BATCH) as claim:
            assert claim is None
        assert jobs.put(NAMESPACE, BATCH, ["a"]) == 0
        assert jobs.results(NAMESPACE, BATCH) == {"b": '"1"', "a": '"2"', "c": '"3"', "d": '"4"'}

    def test_what_one_has_no_other_gets(self, store: Store) -> None:
        """Claims that are held at the same time are of different jobs."""
        jobs = kept(store)
        with ExitStack() as held:
            claims = [held.enter_context(jobs.claim(NAMESPACE, BATCH)) for _ in range(4)]
            assert [claim and claim.job_id for claim in claims] == ["b", "a", "c", None]

    def test_a_job_without_a_result_is_free_again(self, store: Store) -> None:
        """After an error too, which takes the result back that was said before it."""
        jobs = kept(store)
        with jobs.claim(NAMESPACE, BATCH) as claim:
            assert taken(claim).job_id == "b"

        def failing() -> None:
            with jobs.claim(NAMESPACE, BATCH) as again:
                assert taken(again).job_id == "b"
                taken(again).finish("1")
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            failing()
        assert jobs.results(NAMESPACE, BATCH)["b"] is None
        with jobs.claim(NAMESPACE, BATCH) as claim:
            assert taken(claim).job_id == "b"

    def test_batches_and_namespaces_have_their_own_jobs(self, store: Store) -> None:
        """A batch that is forgotten takes no other one along."""
        jobs = kept(store)
        jobs.put(NAMESPACE, "other", ["a"])
        jobs.put(OTHER, BATCH, ["x"])
        assert jobs.forget(NAMESPACE, BATCH) == 3
        assert jobs.results(NAMESPACE, BATCH) == {}
        assert jobs.results(NAMESPACE, "other") == {"a": None}
        assert jobs.results(OTHER, BATCH) == {"x": None}

    def test_threads_do_each_job_once(self, store: Store) -> None:
        """However many take them."""
        ids = [f"{number:03}" for number in range(40)]
        jobs = kept(store, ids)
        done: list[str] = []

        def work() -> None:
            while True:
                with jobs.claim(NAMESPACE, BATCH) as claim:
                    if claim is None:
                        return
                    done.append(claim.job_id)
                    claim.finish("1")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == ids
        assert {*jobs.results(NAMESPACE, BATCH).values()} == {"1"}
