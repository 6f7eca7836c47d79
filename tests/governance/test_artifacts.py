"""Artifacts: handles instead of texts, bound to tenant and labels, gone with their sources."""

from __future__ import annotations

from dataclasses import replace
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
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.governance.artifacts import Artifact, Sandbox, storage
from crp_integrations.governance.artifacts.storage import pack_object, unpack_object
from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.guard.decisions import Decision, Subject
from crp_integrations.messages import Message, ToolCall
from crp_integrations.relay.settings import Settings
from crp_integrations.seals import canonical, sha256, sha256_hex
from crp_integrations.stores.files import FolderObjects, MemoryObjects
from crp_integrations.vocabulary import EventType
from tests.doubles import FixedClock, HashEmbedder

SOURCE = "The crane on pier 7 lifts eighteen tons and was inspected by Northfield in the spring."
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
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
    ref, whole = pack_object(artifact, data, KEY)
    assert pack_object(artifact, data, KEY) == (ref, whole)
    assert unpack_object(ref, whole, [OTHER_KEY, KEY]).data == data
    place = flip % len(whole)
    changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    for bytes_, keys in ((changed, [KEY]), (whole, [OTHER_KEY]), (whole, [])):
        with pytest.raises(StoreDamaged):
            unpack_object(ref, bytes_, keys)


def test_a_handle_confirms_no_guess_at_a_text(tmp_path: Path) -> None:
    """Whoever sees a handle and guesses the rest has no key to try the guess with."""
    refs = []
    for name in ("one", "other"):
        with opened(tmp_path / name) as relay:
            sandbox = relay.sandbox()
            refs.append(sandbox.put(LOG, kind="log", sources=["a"]).ref)
            assert sandbox.put(LOG, kind="log", sources=["a"]).ref == refs[-1]
            artifact = sandbox.get(refs[-1]).artifact
    # The same text with the same things said of it, in a store with another key.
    assert refs[0] != refs[1]
    whole = canonical(artifact.model_dump(mode="json")) + b"\n" + LOG.encode()
    assert not any(sha256_hex(whole).startswith(ref.partition(":")[2]) for ref in refs)
    # Nor has another tenant's process, which holds the same master key.
    with opened(tmp_path / "one", subject=Subject(tenant="globex")) as relay:
        assert relay.sandbox().put(LOG, kind="log", sources=["a"]).ref not in refs


def test_handles_stay_when_the_key_is_rotated(tmp_path: Path) -> None:
    with opened(tmp_path) as relay:
        sandbox = relay.sandbox()
        before = sandbox.put(LOG, kind="log", sources=["a"])
        sandbox.keyring.rotate()  # type: ignore[attr-defined]
    with opened(tmp_path) as relay:
        sandbox = relay.sandbox()
        assert sandbox.get(before.ref).text == LOG
        # What is compacted again is shown as it was.
        assert sandbox.put(LOG, kind="log", sources=["a"]) == before
        assert sandbox.refs() == (before.ref,)
        new = sandbox.put("another text", kind="log", sources=["a"]).ref
        assert sandbox.get(new).text == "another text"
        assert storage.erase_derived(sandbox.objects, "local", ["a"]) == sorted([before.ref, new])


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
        sandbox = relay.sandbox()
        relay.fabric.forget(facts=report.facts)
        # What somebody puts past the sandbox after the fact was forgotten is handed to nobody.
        past = replace(sandbox, withdrawn=lambda ids: False)
        ref = past.put(LOG, kind="log", sources=report.facts).ref
        assert list(storage.list_refs(sandbox.objects, "local")) == [ref]
        assert sandbox.refs() == ()
        clock.moment += timedelta(days=40)
        relay.fabric.maintain()
        assert list(storage.list_refs(sandbox.objects, "local")) == []


@pytest.mark.parametrize("by", ["fact", "source"])
def test_forgetting_takes_what_came_from_it_at_once(tmp_path: Path, by: str) -> None:
    with opened(tmp_path) as relay:
        report = relay.fabric.add([SOURCE, f"{SOURCE} A second crane stands beside it."])
        one, two = relay.fabric.facts(report.facts)
        sandbox = relay.sandbox()
        of_one = sandbox.put(LOG, kind="log", sources=[one.fact_id]).ref
        of_two = sandbox.put("of two " + LOG, kind="log", sources=[two.fact_id, "call-1"]).ref
        of_both = sandbox.put("the source " + LOG, kind="log", sources=[one.source_id]).ref
        other = sandbox.put("of something else", kind="log", sources=["call-1"]).ref
        if by == "fact":
            relay.fabric.forget(facts=[one.fact_id])
            left = {of_two, of_both, other}
        else:
            relay.fabric.forget(source=one.source_id)
            left = {other}
        assert set(storage.list_refs(sandbox.objects, "local")) == left
        assert set(sandbox.refs()) == left
        assert of_one not in left
        with pytest.raises(RequestError):
            sandbox.get(of_one)
        # Nor is anything kept that comes from what is gone.
        with pytest.raises(AccessDenied, match="withdrawn"):
            sandbox.put(LOG, kind="log", sources=[one.fact_id])
        relay.verify()


@pytest.mark.parametrize("of", ["fact", "source"])
def test_what_comes_from_a_quarantined_fact_is_read_by_nobody_until_it_is_lifted(
    tmp_path: Path, of: str
) -> None:
    with opened(tmp_path) as relay:
        (fact,) = relay.fabric.facts(relay.fabric.add([SOURCE]).facts)
        sandbox = relay.sandbox()
        sources = [fact.fact_id if of == "fact" else fact.source_id, "call-1"]
        ref = sandbox.put(LOG, kind="log", sources=sources).ref
        other = sandbox.put("of something else", kind="log", sources=["call-1"]).ref
        address = sandbox.sign(ref)
        artifact_id, _, token = address.rpartition("/")[2].partition("?token=")
        relay.fabric.quarantine([fact.fact_id])
        for use in (sandbox.get, sandbox.sign, lambda _: sandbox.open(artifact_id, token)):
            with pytest.raises(AccessDenied, match="withdrawn"):
                use(ref)
        with pytest.raises(AccessDenied, match="withdrawn"):
            sandbox.put("more of it", kind="log", sources=sources)
        assert sandbox.refs() == (other,)
        relay.fabric.lift([fact.fact_id])
        assert sandbox.get(ref).text == LOG
        # The address was not used up by the refusal.
        assert sandbox.open(artifact_id, token).text == LOG
        relay.fabric.quarantine([fact.fact_id])
        sandbox.erase(ref)
        assert list(storage.list_refs(sandbox.objects, "local")) == [other]
        with relay.fabric.begin(write=False) as transaction:
            told = [
                event.data
                for event in transaction.journal.events()
                if event.event_type is EventType.ARTIFACT_ACCESS
            ]
        assert [one["reason"] for one in told if one["action"] == "refused"] == ["withdrawn"]


def test_what_an_operator_quarantines_is_read_by_no_tenant(tmp_path: Path) -> None:
    settings = Settings(fabric=FabricSettings(shared=("law",)))
    with opened(tmp_path, settings=settings) as relay:
        law = relay.fabric._region.bind_shared("law")
        (fact,) = law.facts(law.add([SOURCE]).facts)
        sandbox = relay.sandbox()
        ref = sandbox.put(LOG, kind="log", sources=[fact.fact_id]).ref
        law.quarantine([fact.fact_id])
        with pytest.raises(AccessDenied, match="withdrawn"):
            sandbox.get(ref)
        law.lift([fact.fact_id])
        assert sandbox.get(ref).text == LOG
        law.forget(facts=[fact.fact_id])
        assert list(storage.list_refs(sandbox.objects, "local")) == []


def test_of_a_session_that_keeps_nothing_artifacts_are_in_memory_alone(tmp_path: Path) -> None:
    session = "crp_sess_" + "a" * 16
    with opened(tmp_path) as relay:
        # The store's key alone is made at the first use.
        relay.keyring.master()
        before = bytes_below(tmp_path)
        sandbox = relay.sandbox(session_id=session, cache="no-store")
        ref = sandbox.put(LOG, kind="log", sources=["call-1"]).ref
        assert sandbox.get(ref).text == LOG
        artifact_id, _, token = sandbox.sign(ref).rpartition("/")[2].partition("?token=")
        assert sandbox.open(artifact_id, token).text == LOG
        # Not a byte of it, of its handle or of the session reached the disk.
        assert bytes_below(tmp_path) == before
        assert relay.sandbox().refs() == ()
        with pytest.raises(RequestError, match="wanted no-store"):
            relay.sandbox(cache="max-age=60")
        # A session that holds facts in memory said so already.
        relay.add([SOURCE], session_id=session, cache="no-store")
        relay.sandbox(session_id=session).put(LOG, kind="log", sources=["call-1"])
        assert bytes_below(tmp_path) == before


def test_an_artifact_whose_source_is_erased_meanwhile_is_not_kept() -> None:
    class Slow(MemoryObjects):
        """Something is erased while the object is written."""

        def create(self, key: str, data: bytes) -> bool:
            done = super().create(key, data)
            if "/objects/" in key:
                storage.erase_derived(self, "t", ["gone"])
            return done

    objects = Slow()
    artifact = Artifact(kind="log", checksum=sha256(b"x"), size=1, sources=("gone", "there"))
    with pytest.raises(StoreError, match="erased meanwhile"):
        storage.keep_artifact(objects, "t", artifact, b"x", [KEY])
    assert list(storage.list_refs(objects, "t")) == []
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
        assert storage.erase_derived(FolderObjects(tmp_path / "artifacts"), "local", ["a"]) == [ref]
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
        clock.moment += timedelta(minutes=6)
        with pytest.raises(AccessDenied, match="expired"):
            sandbox.open(artifact_id, token)
        sandbox.sign(ref)
        # A machine whose clock is behind still finds the address used.
        late = FixedClock(clock.moment - timedelta(minutes=4))
        with pytest.raises(AccessDenied, match="was used"):
            replace(sandbox, clock=late).open(artifact_id, token)
        clock.moment += timedelta(minutes=5)
        sandbox.sign(ref)
        assert [key for key in sandbox.objects.list(key_folder(sandbox)) if "/spent/" in key] == []


def key_folder(sandbox: Sandbox) -> str:
    return storage._folder(sandbox.subject.tenant)


@pytest.mark.parametrize("wrong", ["sources", "labels", "redacted"])
def test_a_text_in_the_place_of_a_list_is_refused(tmp_path: Path, wrong: str) -> None:
    """Its letters were the sources, so that erasing the source erased nothing."""
    with opened(tmp_path / "kb") as relay:
        sandbox = relay.sandbox(session_id="s1", labels=["class:internal"])
        given = {"kind": "log", "sources": ["call-1"], wrong: "call-1"}
        with pytest.raises(RequestError, match=rf"{wrong} is the text 'call-1', wanted a list"):
            sandbox.put("crane 7 stopped", **given)  # type: ignore[arg-type]
        for more in ({"kind": ""}, {"kind": "k" * 65}, {"media_type": "text/plain\r\nx: y"}):
            with pytest.raises(RequestError, match=next(iter(more))):
                sandbox.put("crane 7", **{"kind": "log", "sources": ["call-1"], **more})  # type: ignore[arg-type]
        assert sandbox.refs() == ()
