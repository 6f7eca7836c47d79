from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import Relay
from crp_integrations.audit import window_seals
from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.window_seals import session_key
from crp_integrations.dpe.stages.report import report_hash
from crp_integrations.errors import StoreError
from crp_integrations.seals import SEPARATOR, sha256, window_hmac
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import ChainIntegrity, RiskLevel
from tests.doubles import NOON, HashEmbedder, ScriptedModel

KEY = bytes.fromhex("0123456789abcdef" * 4)
SESSION = "crp_sess_7f3a9bc2d4e1f083"
GOLDEN = (
    ("10:00:00", "aaa", "bbb", "0ae1c732552e11d35e72ae3647a984b3385e87e4a7d5e976b8e949fa6615bcef"),
    ("10:01:00", "ccc", "ddd", "fef933761df4b6dd4cff9e2540a22b50935cf00311a50967b8add7a578506354"),
    ("10:02:00", "eee", "fff", "e66b0d9fd2076ddcd302728d1024c92c58fc9fc628a30bcb26564d214a0933cc"),
)
FIELDS = (
    "session_id",
    "window_number",
    "timestamp",
    "response_hash",
    "report_hash",
    "parent_hmac",
)


def chain(count: int = 3) -> list[WindowSeal]:
    store = MemoryStore()
    made = []
    for number, (time, response, report, _) in enumerate(GOLDEN[:count], start=1):
        with store.begin("a") as transaction:
            made.append(
                window_seals.seal_window(
                    transaction.journal,
                    KEY,
                    session_id=SESSION,
                    window_id=f"crp_win_{number}",
                    window_number=number,
                    timestamp=f"2026-05-25T{time}Z",
                    response_hash=f"sha256:{response}",
                    report_hash=f"sha256:{report}",
                    outcome="released",
                )
            )
    with store.begin("a", write=False) as transaction:
        assert transaction.journal.seals(SESSION) == made
    return made


@pytest.mark.requirement("005-15.3-1", "005-15.3-2")
def test_the_golden_chain_of_three_windows() -> None:
    made = chain()
    assert [one.hmac for one in made] == ["sha256:" + golden for *_, golden in GOLDEN]
    assert [one.parent_hmac for one in made] == ["", made[0].hmac, made[1].hmac]
    assert window_seals.verify_seals(made, KEY) is ChainIntegrity.VALID


@pytest.mark.requirement("005-15.3-1")
@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="␟")), min_size=5, max_size=5
    ),
    number=st.integers(min_value=1),
    key=st.binary(min_size=32, max_size=32),
)
def test_the_formula(texts: list[str], number: int, key: bytes) -> None:
    session, timestamp, response, report, parent = texts
    joined = "␟".join([session, str(number), timestamp, response, report, parent])
    wanted = hmac.new(key, joined.encode("utf-8"), hashlib.sha256).hexdigest()
    assert (
        window_hmac(
            key,
            session_id=session,
            window_number=number,
            timestamp=timestamp,
            response_hash=response,
            report_hash=report,
            parent_hmac=parent,
        )
        == "sha256:" + wanted
    )


@pytest.mark.requirement("005-15.3-1")
@pytest.mark.parametrize("field", [*FIELDS, "hmac"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_changed_field_breaks_the_chain_at_its_place(field: str, place: int) -> None:
    made = chain()
    old = getattr(made[place], field)
    new = old + 1 if isinstance(old, int) else old + "0"
    made[place] = made[place].changed(**{field: new})
    assert window_seals.first_break(made, KEY) == place
    assert window_seals.verify_seals(made, KEY) is ChainIntegrity.BROKEN


def test_another_key_does_not_verify() -> None:
    assert window_seals.first_break(chain(), bytes(32)) == 0


def test_a_window_left_out_or_moved_breaks_the_chain() -> None:
    first, second, third = chain()
    assert window_seals.first_break([first, third], KEY) == 1
    assert window_seals.first_break([first, third, second], KEY) == 1
    assert window_seals.first_break([first, first], KEY) == 1


def test_the_states_of_a_chain() -> None:
    made = chain()
    assert window_seals.verify_seals([], KEY) is ChainIntegrity.UNVERIFIED
    assert window_seals.verify_seals(made[:1], KEY) is ChainIntegrity.VALID
    assert window_seals.verify_seals(made[1:], KEY) is ChainIntegrity.PARTIAL
    assert window_seals.verify_seals([made[1], made[1]], KEY) is ChainIntegrity.BROKEN


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_wrong_number_is_refused(number: int) -> None:
    store = MemoryStore()
    fields = {
        "session_id": SESSION,
        "window_id": "w",
        "timestamp": "t",
        "response_hash": "a",
        "report_hash": "b",
        "outcome": "failed",
    }
    with store.begin("a") as transaction:
        window_seals.seal_window(transaction.journal, KEY, window_number=1, **fields)
        with pytest.raises(StoreError, match=f"window {number} .* next one is 2"):
            window_seals.seal_window(transaction.journal, KEY, window_number=number, **fields)
        assert len(transaction.journal.seals(SESSION)) == 1


@pytest.mark.parametrize("field", ["session_id", "timestamp", "response_hash", "report_hash"])
def test_a_separator_put_into_a_seal_breaks_it(field: str) -> None:
    made = chain()
    made[1] = made[1].model_copy(update={field: f"a{SEPARATOR}b"})
    assert window_seals.first_break(made, KEY) == 1


KEYS = FixedKeyRing(bytes(range(32)))
FACT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."


@pytest.mark.requirement("005-21.1-2")
def test_a_changed_report_breaks_the_chain() -> None:
    said = ["It was commissioned on 4 March 2019.", "It delivers 999 megawatts."]
    relay = Relay.open(
        embedder=HashEmbedder(), keyring=KEYS, clock=NOON, models=ScriptedModel(*said)
    )
    relay.fabric.add([FACT])
    answers = [relay.ask("When was it commissioned?", session_id=SESSION) for _ in said]
    with relay.fabric.begin(write=False) as transaction:
        seals = transaction.journal.seals(SESSION)
    key = session_key(KEYS, SESSION)
    assert window_seals.verify_seals(seals, key) is ChainIntegrity.VALID
    for place, (answer, seal) in enumerate(zip(answers, seals, strict=True)):
        report = answer.report
        assert seal.report_hash == report.report_hash == report_hash(report)
        assert seal.response_hash == report.response_content_hash == sha256(said[place])
        changes = {
            "risk_level": next(one for one in RiskLevel if one is not report.risk_level),
            "composite_score": report.composite_score / 2 + 0.25,
            "grounding_pct": report.grounding_pct / 2 + 0.2,
            "claims": report.claims[1:],
            "window_id": report.window_id + "0",
            "timestamp": "2026-05-25T12:00:01Z",
        }
        for name, value in changes.items():
            changed = report.model_copy(update={name: value})
            assert report_hash(changed) != seal.report_hash, name
            forged = [*seals]
            forged[place] = seal.model_copy(update={"report_hash": report_hash(changed)})
            assert window_seals.first_break(forged, key) == place
