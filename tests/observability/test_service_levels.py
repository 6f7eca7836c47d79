"""Service levels from a store's own ledger, recorded evaluations, drift, and the evidence bundle."""

from __future__ import annotations

import io
import tarfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import ConfigError, ReceiptBroken, RequestError
from crp_integrations.governance.window_trace import PackTrace, TracedDrops, WindowEvaluation
from crp_integrations.observability import bundle as bundles
from crp_integrations.observability.evaluations import (
    Evaluation,
    EvaluationLog,
    Feedback,
    GoldenQuestion,
    GoldenRun,
    RotPoint,
    ShownSource,
    compare_runs,
    merge_evaluations,
    read_golden,
    run_golden,
)
from crp_integrations.observability.service_levels import (
    BUDGET,
    CITATIONS,
    CORRECTNESS,
    LATENCY,
    WindowLedger,
    capture_baseline,
    measure_levels,
    percentile,
)
from crp_integrations.receipt.signed_statement import SigningKey
from crp_integrations.vocabulary import DropReason
from tests.doubles import NOON
from tests.observability.conftest import (
    ANSWER,
    QUESTION,
    SECRETS,
    WRONG,
    Opener,
    Seen,
    Ticking,
)

NONE = "sha256:" + "0" * 64


def ledger_of(relay: Any, after: int = 0) -> WindowLedger:
    with relay.fabric.begin(write=False) as transaction:
        return WindowLedger.read(transaction, after=after)


def pack(number: int, **fields: Any) -> PackTrace:
    told = {"etag": "", "state_hash": "", "timestamp": "", "session_id": "s"}
    return PackTrace(window_id=f"w{number}", **{**told, **fields})


@pytest.mark.requirement("SUM-slo-1")
def test_correctness_is_the_verifiers_word_and_a_persons_stands_above_it(opener: Opener) -> None:
    with opener(ANSWER, WRONG) as relay:
        good, bad = relay.ask(QUESTION), relay.ask(QUESTION)
        ledger = ledger_of(relay)
    level = measure_levels(ledger).level(CORRECTNESS)
    assert (level.value, level.met, level.counted, level.target) == (0.5, False, 2, 0.90)
    assert level.detail.startswith("0 by people, 2 by")
    reviewed = {
        bad.window_id: Evaluation(window_id=bad.window_id, feedback=Feedback(pack_correct=True))
    }
    level = measure_levels(ledger, evaluations=reviewed).level(CORRECTNESS)
    assert (level.value, level.met) == (1.0, True)
    against = {
        good.window_id: Evaluation(window_id=good.window_id, feedback=Feedback(pack_correct=False))
    }
    assert measure_levels(ledger, evaluations=against).level(CORRECTNESS).value == 0.0


@pytest.mark.requirement("SUM-slo-2")
def test_each_citation_links_to_hashes_of_the_ledger(opener: Opener) -> None:
    with opener(ANSWER, WRONG) as relay:
        good = relay.ask(QUESTION)
        bad = relay.ask(QUESTION)
        ledger = ledger_of(relay)
        with relay.fabric.begin(write=False) as transaction:
            events = {event.hmac: event for event in transaction.journal.events()}
        relay.verify()
        receipts = {w: relay.receipt(w).receipt_id for w in (good.window_id, bad.window_id)}
    found = measure_levels(ledger)
    links = {link.window_id: link for link in found.citations}
    assert links[good.window_id].accurate
    for link in found.citations:
        event = events[link.ledger_hmac]
        assert link.fact_id in event.data["facts"]
        assert event.window_id == link.window_id
        assert link.report_hash.startswith("sha256:")
        assert link.receipt_id == receipts[link.window_id]
    level = found.level(CITATIONS)
    assert level.counted == len(found.citations) > 0
    assert level.target == 0.95
    wrong = [link for link in found.citations if link.window_id == bad.window_id]
    assert wrong
    assert not any(link.accurate for link in wrong)
    assert level.met is False
    # A report that is not the one which was sealed makes its citations worth nothing.
    report = ledger.reports[good.window_id]
    altered = report.model_copy(update={"fidelity_score": 0.123})
    other = measure_levels(
        WindowLedger(
            packs=ledger.packs,
            report_hashes=ledger.report_hashes,
            reports={good.window_id: altered},
        )
    )
    assert [link.accurate for link in other.citations] == [False]
    # Nor does a fact that the sealed pack has not.
    bare = WindowLedger(report_hashes=ledger.report_hashes, reports={good.window_id: report})
    assert [(link.accurate, link.ledger_hmac) for link in measure_levels(bare).citations] == [
        (False, "")
    ]


@pytest.mark.requirement("SUM-slo-3")
def test_no_pack_is_above_its_budget_and_how_much_of_it_is_used_is_told(opener: Opener) -> None:
    with opener(ANSWER) as relay:
        for budget in (25, 30, 45, 4_000):
            relay.ask(QUESTION, budget_tokens=budget)
        found = measure_levels(ledger_of(relay))
    level = found.level(BUDGET)
    assert (level.value, level.met, level.counted) == (1.0, True, 4)
    assert not found.hard_failure
    # Only where there was more material than room is its use looked at.
    assert " of 3 packs that dropped candidates for space" in level.detail


@pytest.mark.requirement("SUM-slo-3")
def test_a_pack_above_its_budget_is_missed_and_far_above_a_hard_failure() -> None:
    drops = (TracedDrops(reason=DropReason.BUDGET, count=1, tokens=9, ids_hash=NONE),)
    inside = pack(1, token_budget=100, token_count=96, drops=drops)
    slack = pack(2, token_budget=100, token_count=94, drops=drops)
    over = pack(3, token_budget=100, token_count=110)
    far = pack(4, token_budget=100, token_count=111)
    level = measure_levels(WindowLedger(packs=(inside, slack))).level(BUDGET)
    assert level.detail.startswith("1 of 2 packs")
    assert level.met is True
    found = measure_levels(WindowLedger(packs=(inside, over)))
    assert (found.level(BUDGET).value, found.level(BUDGET).met) == (0.5, False)
    assert not found.hard_failure
    assert measure_levels(WindowLedger(packs=(inside, far))).hard_failure


@pytest.mark.requirement("SUM-slo-4")
def test_latency_is_compared_with_a_baseline_that_was_captured_before(opener: Opener) -> None:
    with opener(ANSWER) as relay:
        for _ in range(3):
            relay.ask(QUESTION)
        before = capture_baseline(ledger_of(relay), NOON)
        assert before is not None
        assert before.windows == 3
        relay.verify()
    assert measure_levels(WindowLedger(), baseline=before).level(LATENCY).met is None
    # Twice as slow afterwards; only what came after the baseline is looked at.
    slow = Ticking(timedelta(milliseconds=2))
    slow.moment += timedelta(days=1)
    with opener(ANSWER, clock=slow) as relay:
        relay.ask(QUESTION)
        after = ledger_of(relay, after=before.last_seq)
    assert len(after.packs) == 1
    level = measure_levels(after, baseline=before).level(LATENCY)
    assert level.value == pytest.approx(2.0)
    assert (level.met, level.target, level.counted) == (False, 1.5, 1)
    generous = before.model_copy(update={"p95_us": before.p95_us * 2})
    assert measure_levels(after, baseline=generous).level(LATENCY).met is True


def test_what_could_not_be_measured_is_not_met_either() -> None:
    found = measure_levels(WindowLedger())
    assert found.missed == ()
    assert set(found.unmeasured) == {CORRECTNESS, CITATIONS, BUDGET, LATENCY}
    assert capture_baseline(WindowLedger(packs=(pack(1),)), NOON) is None


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_percentile_is_a_value_with_that_share_at_or_below_it(
    values: list[int], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    below = [value for value in values if value < found]
    assert len(below) < share * len(values) + 1e-9


@pytest.mark.requirement("SUM-eval-1")
def test_an_evaluation_records_every_measure_and_a_callers_word(
    opener: Opener, tmp_path: Path
) -> None:
    seen = Seen()
    log = EvaluationLog(tmp_path / "evaluations.ndjson")
    with opener(ANSWER, tracer=seen) as relay:
        answer = relay.ask(QUESTION)
    (trace,) = seen.traces
    log.add(Evaluation.of(trace))
    log.add(
        Evaluation(
            window_id=answer.window_id,
            feedback=Feedback(completed=True, csat=4, task_correct=True),
            retrieval_precision=0.5,
            retrieval_recall=1.0,
            rot=(RotPoint(tokens=8_000, depth=0.5, quality=0.8),),
        )
    )
    (one,) = merge_evaluations(log.read()).values()
    measured = one.measured
    assert isinstance(measured, WindowEvaluation)
    assert one.feedback == Feedback(completed=True, csat=4, task_correct=True)
    assert measured.citation_accuracy == 1.0
    assert one.latency_us > 0
    assert (measured.prompt_tokens, measured.completion_tokens) == (120, 12)
    assert measured.cost_usd == 0.0021
    facts = {fact.fact_id for fact in answer.envelope.facts}
    cited = {e.fact_id for c in answer.report.claims for e in c.evidence if c.attribution}
    assert measured.precision_proxy == len(cited & facts) / len(facts)
    assert measured.recall_proxy == answer.envelope.coverage_score
    assert (one.retrieval_precision, one.retrieval_recall) == (0.5, 1.0)
    assert one.rot[0].quality == 0.8
    assert one.ledger_hmac == trace.pack.ledger_hmac
    assert not any(text in log.path.read_text() for text in SECRETS)


def test_a_log_of_evaluations_says_which_line_is_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"schema": "evaluation/1", "window_id": "w"}\n{"csat": "very well"}\n')
    with pytest.raises(ConfigError, match="line 2") as raised:
        list(EvaluationLog(path).read())
    assert "very well" not in str(raised.value)
    with pytest.raises(ValueError, match="csat"):
        Feedback(csat=6)


# --- drift ---------------------------------------------------------------------------------


GOLDEN = (
    GoldenQuestion(id="q1", question="one", sources=("a.md",)),
    GoldenQuestion(id="q2", question="two", sources=("a.md", "b.md")),
)


def run(found: dict[str, list[str]]) -> GoldenRun:
    def retrieve(question: str) -> list[ShownSource]:
        return [ShownSource(source_id=f"id-{n}", uri=f"docs:/{n}") for n in found[question]]

    return run_golden(GOLDEN, retrieve, now=NOON)


def test_a_golden_run_measures_recall_and_precision() -> None:
    found = run({"one": ["a.md", "c.md"], "two": ["a.md"]})
    assert [(one.recall, one.precision) for one in found.scores] == [(1.0, 0.5), (0.5, 1.0)]
    assert (found.recall, found.precision) == (0.75, 0.75)
    assert run({"one": [], "two": []}).precision == 0.0


@pytest.mark.requirement("SUM-fail-4")
def test_a_fall_of_recall_or_precision_is_an_alert_that_names_the_questions() -> None:
    before = run({"one": ["a.md"], "two": ["a.md", "b.md"]})
    assert compare_runs(before, before).alerts == ()
    forgot = compare_runs(run({"one": ["a.md"], "two": ["b.md"]}), before)
    assert (forgot.alerts, forgot.worse) == (("recall",), ("q2",))
    noisy = compare_runs(run({"one": ["a.md", "x", "y"], "two": ["a.md", "b.md"]}), before)
    assert (noisy.alerts, noisy.worse) == (("precision",), ())
    other = before.model_copy(update={"golden_hash": NONE})
    with pytest.raises(ConfigError, match="another golden set"):
        compare_runs(before, other)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no golden question"),
        ('{"id": "a", "question": "SECRET"}', "line 1"),
        ('{"id": "a", "question": "SECRET", "sources": []}', "line 1"),
        ('{"id": "a", "question": "q", "sources": ["s"]}\n' * 2, "an id twice"),
        ("SECRET", "line 1"),
        ("[" * 100_000, "line 1"),
    ],
    ids=["empty", "no-sources", "empty-sources", "twice", "no-json", "nested"],
)
def test_a_golden_file_that_is_wrong_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "golden").write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        read_golden(tmp_path / "golden")
    assert "SECRET" not in str(raised.value)


# --- the bundle ----------------------------------------------------------------------------


KEY = SigningKey(b"k" * 32)
FILES = {"slo.json": b"{}\n", "reports/rot.json": b'{"a":1}\n'}


def packed(files: dict[str, bytes] | None = None) -> bytes:
    return bundles.pack_bundle(
        FILES if files is None else files,
        KEY.sign,
        created_at=NOON,
        version="0",
        state_hash=NONE,
    )


def repacked(data: bytes, change: Any) -> bytes:
    """A bundle with its files changed, in a new archive."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    change(files)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return out.getvalue()


def test_equal_files_make_equal_bundles_and_what_went_in_comes_out() -> None:
    assert packed() == packed()
    manifest, files = bundles.unpack_bundle(packed(), [b"x" * 32, KEY.public])
    assert files == FILES
    assert list(manifest.files) == sorted(FILES)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda files: files.update({"slo.json": b"[]\n"}), "files.slo.json"),
        (lambda files: files.pop("slo.json"), "files.slo.json"),
        (lambda files: files.update({"more.json": b""}), "files.more.json"),
        (lambda files: files.pop("manifest.dsse.json"), "bundle"),
        (lambda files: files.update({"../up": b""}), "bundle"),
    ],
    ids=["changed", "missing", "added", "unsigned", "outside"],
)
def test_a_bundle_that_was_altered_is_refused_at_its_place(change: Any, place: str) -> None:
    with pytest.raises(ReceiptBroken) as raised:
        bundles.unpack_bundle(repacked(packed(), change), [KEY.public])
    assert raised.value.place == place


def test_a_wrong_byte_anywhere_in_a_bundle_changes_nothing_or_is_refused() -> None:
    """Some are seen by the decompressor alone, which has an error of its own."""
    data = packed()
    whole, refused = bundles.unpack_bundle(data, [KEY.public]), 0
    for place in range(len(data)):
        broken = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
        try:
            # What is filled up behind the last file says nothing.
            assert bundles.unpack_bundle(broken, [KEY.public]) == whole
        except ReceiptBroken:
            refused += 1
    assert refused > len(data) * 0.9


def test_another_key_or_no_archive_is_refused() -> None:
    with pytest.raises(ReceiptBroken, match="key"):
        bundles.unpack_bundle(packed(), [SigningKey(b"o" * 32).public])
    with pytest.raises(ReceiptBroken, match="not signed by any"):
        bundles.unpack_bundle(packed(), [])
    for data in (b"", b"no archive", packed()[:-40]):
        with pytest.raises(ReceiptBroken):
            bundles.unpack_bundle(data, [KEY.public])
    with pytest.raises(RequestError):
        packed({"../up": b""})
