"""Artifacts: handles instead of texts, bound to tenant and labels, gone with their sources."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.errors import (
    AccessDenied,
    LimitReached,
    RequestError,
    StoreDamaged,
    StoreError,
)
from crp_integrations.governance.artifacts import Artifact, Sandbox, places
from crp_integrations.governance.artifacts.records import packed, unpacked
from crp_integrations.governance.compaction import AutoCompactor
from crp_integrations.guard.decisions import Decision
from crp_integrations.guard.subjects import Subject
from crp_integrations.messages import Message, ToolCall
from crp_integrations.seals import sha256
from crp_integrations.stores.objects import FolderObjects, MemoryObjects
from crp_integrations.vocabulary import EventType
from tests.doubles import FixedClock, HashEmbedder

SOURCE = "The crane on pier 7 lifts eighteen tons and was inspected by Northfield in the spring."
LOG = "2026-05-01 12:00:01 ERROR crane 7 stopped at 18 tons, wind 31 knots\n" * 300


class Roles:
    """Lets things labelled `role:x` be used by subjects with that role alone."""

    name = "roles"

    def decide(self, subject: Subject, action: str, labels: tuple[str, ...]) -> Decision:
        needed = {label.removeprefix("role:") for label in labels if label.startswith("role:")}
        allowed = needed <= set(subject.roles)
        return Decision(allowed=allowed, guard=self.name, reason="roles are missing")


def opened(store: Path | None, **more: object) -> Relay:
    return Relay.open(store, embedder=HashEmbedder(), **more)


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@given(data=st.binary(max_size=200), kind=st.sampled_from(["log", "prose"]), flip=st.integers(0))
def test_any_changed_byte_is_noticed(data: bytes, kind: str, flip: int) -> None:
    artifact = Artifact(kind=kind, checksum=sha256(data), size=len(data), sources=("s",))
    ref, whole = packed(artifact, data)
    assert packed(artifact, data) == (ref, whole)
    assert unpacked(ref, whole).data == data
    place = flip % len(whole)
    changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    with pytest.raises(StoreDamaged):
        unpacked(ref, changed)


@pytest.mark.requirement("SUM-isolation-4")
@pytest.mark.requirement("SUM-isolate-14")
def test_a_bulky_result_is_a_handle_with_an_extract_in_the_prompt(tmp_path: Path) -> None:
    call = ToolCall(id="c1", name="read_log", arguments="{}")
    history = [
        Message(role="user", content="Why did crane 7 stop?"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", tool_call_id="c1", content=LOG + "12:07 INFO rare word zugzwang\n"),
    ]
    with opened(tmp_path) as relay:
        sandbox = relay.sandbox(session_id="s1", labels=["tenant:local"])
        compactor = AutoCompactor(QuarterCounter(), artifacts=sandbox)
        compact = compactor.compact_history(history, 2_000, now=relay.fabric.clock.now())
        (kept,) = compact.account.artifacts
        prompt = "\n".join(message.content for message in compact.messages)
        address = sandbox.sign(kept.ref)
        artifact_id, _, token = address.rpartition("/")[2].partition("?token=")
        # The whole text is behind the address; the prompt has the handle, an extract, no address.
        assert sandbox.open(artifact_id, token).text == history[-1].content
        assert kept.ref in prompt
        assert len(prompt) < len(LOG) / 4
        assert token not in prompt
        assert "zugzwang" not in prompt
        with pytest.raises(AccessDenied, match="was used"):
            sandbox.open(artifact_id, token)


class QuarterCounter:
    """A token for every four characters."""

    identity, source = "quarter", "tests"

    def count(self, text: str) -> int:
        return -(-len(text) // 4)

    def count_many(self, texts: list[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def count_messages(self, messages: list[Message]) -> int:
        return sum(self.count(message.content) + 4 for message in messages)

    def count_tools(self, tools: object) -> int:
        return 0


def test_equal_texts_get_equal_handles_and_other_labels_another(tmp_path: Path) -> None:
    with opened(tmp_path) as relay:
        sandbox = relay.sandbox()
        first = sandbox.put(LOG, kind="log", sources=["b", "a"])
        assert sandbox.put(LOG, kind="log", sources=["a", "b"]) == first
        assert sandbox.put(LOG, kind="log", sources=["a"]).ref != first.ref
        assert sandbox.put(LOG, kind="log", sources=["a", "b"], labels=["x:y"]).ref != first.ref
        assert len(sandbox.refs()) == 3
        assert sandbox.get(first.ref).data == LOG.encode()


def test_labels_of_its_sources_are_an_artifacts_own(tmp_path: Path) -> None:
    chief = Subject(tenant="acme", name="chief", roles=("board",))
    with opened(tmp_path, subject=chief, guard=Roles()) as relay:
        report = relay.fabric.add([SOURCE])
        relay.fabric.update(report.facts[0], labels=["role:board"])
        ref = relay.sandbox().put(LOG, kind="log", sources=report.facts).ref
    clerk = Subject(tenant="acme", name="clerk")
    with opened(tmp_path, subject=clerk, guard=Roles()) as relay:
        sandbox = relay.sandbox()
        for use in (sandbox.get, sandbox.sign, sandbox.erase):
            with pytest.raises(AccessDenied):
                use(ref)
        assert sandbox.refs() == ()
        with pytest.raises(AccessDenied):
            sandbox.put(LOG, kind="log", sources=[], labels=["role:board"])
    stranger = Subject(tenant="globex", roles=("board",))
    with (
        opened(tmp_path, subject=stranger) as relay,
        pytest.raises(RequestError, match="no artifact"),
    ):
        relay.sandbox().get(ref)


def test_a_subject_without_a_tenant_keeps_nothing() -> None:
    with opened(None) as relay:
        nobody = relay.sandbox()
        bare = Sandbox(
            objects=nobody.objects,
            subject=Subject(tenant=" "),
            guard=nobody.guard,
            clock=nobody.clock,
            ids=nobody.ids,
            keyring=nobody.keyring,
            tell=nobody.tell,
        )
        with pytest.raises(AccessDenied, match="no tenant"):
            bare.put("x", kind="log", sources=[])


@pytest.mark.parametrize("store", ["disk", "memory"])
def test_erasing_a_source_erases_what_came_from_it(tmp_path: Path, store: str) -> None:
    with opened(tmp_path if store == "disk" else None) as relay:
        report = relay.fabric.add([SOURCE])
        (fact,) = relay.fabric.facts(report.facts)
        sandbox = relay.sandbox()
        of_fact = sandbox.put(LOG, kind="log", sources=[fact.fact_id, "call-1"]).ref
        of_source = sandbox.put("from the source " + LOG, kind="log", sources=[fact.source_id]).ref
        other = sandbox.put("of something else", kind="log", sources=["call-1"]).ref
        relay.fabric.erase(fact.source_id)
        assert sandbox.refs() == (other,)
        for ref in (of_fact, of_source):
            with pytest.raises(RequestError):
                sandbox.get(ref)
        if store == "disk":
            assert b"wind 31 knots" not in bytes_below(tmp_path)
        with relay.fabric.begin(write=False) as transaction:
            erased = [
                event.data
                for event in transaction.journal.events()
                if event.event_type is EventType.ARTIFACT_ACCESS
                and event.data["action"] == "erased"
            ]
        assert [sorted(one["artifacts"]) for one in erased] == [sorted([of_fact, of_source])]
        relay.verify()


def test_what_retention_purges_takes_its_artifacts_along(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path, clock=clock) as relay:
        report = relay.fabric.add([SOURCE])
        ref = relay.sandbox().put(LOG, kind="log", sources=report.facts).ref
        relay.fabric.forget(facts=report.facts)
        assert relay.sandbox().refs() == (ref,)
        clock.moment += timedelta(days=40)
        relay.fabric.maintain()
        assert relay.sandbox().refs() == ()


def test_an_artifact_whose_source_is_erased_meanwhile_is_not_kept() -> None:
    class Slow(MemoryObjects):
        """Something is erased while the object is written."""

        def create(self, key: str, data: bytes) -> bool:
            done = super().create(key, data)
            if "/objects/" in key:
                places.erase(self, "t", ["gone"])
            return done

    objects = Slow()
    artifact = Artifact(kind="log", checksum=sha256(b"x"), size=1, sources=("gone", "there"))
    with pytest.raises(StoreError, match="erased meanwhile"):
        places.keep(objects, "t", artifact, b"x")
    assert list(places.refs(objects, "t")) == []
    assert list(objects._held) == []


def test_a_damaged_artifact_is_refused_and_can_be_erased(tmp_path: Path) -> None:
    with opened(tmp_path) as relay:
        sandbox = relay.sandbox()
        ref = sandbox.put(LOG, kind="log", sources=["a"]).ref
        (path,) = [
            p for p in (tmp_path / "artifacts").rglob("*") if p.stat().st_size > 100 and p.is_file()
        ]
        path.write_bytes(path.read_bytes().replace(b"18 tons", b"81 tons"))
        with pytest.raises(StoreDamaged, match=ref):
            sandbox.get(ref)
        assert places.erase(FolderObjects(tmp_path / "artifacts"), "local", ["a"]) == [ref]
        assert not path.exists()


def test_limits_and_times_are_said_clearly(tmp_path: Path) -> None:
    with opened(tmp_path) as relay:
        sandbox = relay.sandbox()
        ref = sandbox.put("x", kind="log", sources=[]).ref
        for seconds in (0, -1, 3_601):
            with pytest.raises(RequestError, match="1 to 3600 seconds"):
                sandbox.sign(ref, seconds=seconds)
        for unknown in ("artifact:0", "../../keys", "", ref.upper()):
            with pytest.raises(RequestError, match="no artifact is kept"):
                sandbox.get(unknown)
        most = sandbox.settings.most_bytes
        with pytest.raises(LimitReached, match=f"at most {most}"):
            sandbox.put(b"x" * (most + 1), kind="log", sources=[])


def test_an_address_outlives_a_rotation_and_spent_nonces_are_swept(tmp_path: Path) -> None:
    clock = FixedClock()
    with opened(tmp_path, clock=clock) as relay:
        sandbox = relay.sandbox()
        ref = sandbox.put(LOG, kind="log", sources=[]).ref
        address = sandbox.sign(ref)
        artifact_id, _, token = address.rpartition("/")[2].partition("?token=")
        sandbox.keyring.rotate()  # type: ignore[attr-defined]
    with opened(tmp_path, clock=clock) as relay:
        sandbox = relay.sandbox()
        assert sandbox.open(artifact_id, token).text == LOG
        spent = [key for key in sandbox.objects.list(key_folder(sandbox)) if "/spent/" in key]
        assert len(spent) == 1
        clock.moment += timedelta(minutes=10)
        with pytest.raises(AccessDenied, match="expired"):
            sandbox.open(artifact_id, token)
        sandbox.sign(ref)
        assert [key for key in sandbox.objects.list(key_folder(sandbox)) if "/spent/" in key] == []


def key_folder(sandbox: Sandbox) -> str:
    return places._folder(sandbox.subject.tenant)
