"""Memories of which a reader may see a part: what is taken out is not told another way."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pytest

from crp_integrations.errors import FactRejected
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.governance.memory_items import as_fact, of_fact
from crp_integrations.governance.memory_writer import MemoryWriter, PolicyContext
from crp_integrations.seals import sha256
from tests.fabric.lifecycle_fixtures import fabric
from tests.governance.memories import memory
from tests.governance.redacting_guards import OFFICER, READER, Blackening, seen_by

MAIL = "joan.miller@waterboard.example"
TEXT = f"The pump in hall four is looked after by {MAIL} until the end of spring."
JUNE, SEPTEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (6, 9))
WRITES, READS = (PolicyContext(subject=subject) for subject in (OFFICER, READER))


@pytest.fixture
def made() -> Fabric:
    return fabric(redactor=Blackening())


def doors(made: Fabric) -> tuple[MemoryWriter, MemoryWriter]:
    """The door of whoever sees everything, and that of whoever does not."""
    return MemoryWriter(seen_by(made, OFFICER)), MemoryWriter(seen_by(made))


def test_a_memory_is_read_without_what_is_taken_out_of_it(made: Fabric) -> None:
    officer, reader = doors(made)
    summary = {"text": f"{MAIL} looks after it.", "dropped": [{"start": 5, "end": len(TEXT)}]}
    officer.write(memory(1, content=TEXT, summary=summary), WRITES)
    (whole,) = officer.items()
    assert (whole.content, whole.provenance.checksum) == (TEXT, sha256(TEXT))
    (shown,) = reader.items()
    assert shown.content == TEXT.replace(MAIL, "[redacted email]")
    assert shown.provenance.checksum == sha256(shown.text)
    # A summary says in few words what the whole says, and its places are those of the whole.
    assert shown.summary is None
    assert (shown.id, shown.security_label) == (whole.id, whole.security_label)


def test_the_hash_of_the_whole_text_stands_nowhere_in_what_is_shown(made: Fabric) -> None:
    officer, _ = doors(made)
    reference = officer.write(memory(1, content=TEXT), WRITES)
    (fact,) = seen_by(made).facts([reference.fact_id])
    assert "[redacted email]" in fact.content
    # Who holds it could try addresses until one fits.
    assert sha256(TEXT) not in fact.model_dump_json()
    assert all(sha256(TEXT) not in one.model_dump_json() for one in seen_by(made).export())
    (fact,) = seen_by(made, OFFICER).facts([reference.fact_id])
    assert fact.model_dump_json().count(sha256(TEXT)) == 3


@pytest.mark.parametrize(
    "content",
    [
        {
            "hall": "four",
            "the pump is looked after by": 49301234567,
            "until": "the end of the spring of next year",
        },
        {
            MAIL: "looks after the pump",
            "hall": "four of the old water works",
            "until": "the spring of next year",
        },
    ],
)
def test_json_that_is_none_any_more_is_read_as_text(made: Fabric, content: dict[str, str]) -> None:
    officer, reader = doors(made)
    officer.write(memory(1, content=content), WRITES)
    (whole,) = officer.items()
    assert whole.content == content
    (shown,) = reader.items()
    assert "[redacted " in shown.text
    assert MAIL not in shown.text
    assert "49301234567" not in shown.text
    assert len(reader.as_of(JUNE, READS)) == 1


def test_what_is_stored_as_json_and_is_none_is_refused_by_name() -> None:
    fact = as_fact(memory(1, content={"hall": "four"}))
    broken = fact.model_copy(update={"content": '{"hall": '})
    with pytest.raises(FactRejected, match=fact.fact_id):
        of_fact(broken)
    assert json.loads(fact.content) == {"hall": "four"}


def test_one_item_that_is_none_does_not_hide_the_others(
    made: Fabric, caplog: pytest.LogCaptureFixture
) -> None:
    officer, reader = doors(made)
    officer.write(memory(1, content=TEXT), WRITES)
    officer.write(memory(3, content=f"{TEXT} Hall five has a pump of its own."), WRITES)
    # A correction that was stopped before it ended what it corrects.
    text = f"{TEXT} So it was said, and wrongly so."
    second = memory(2, content=text, supersedes=memory(1).id, valid_from=JUNE)
    reference = officer.write(second, WRITES)
    # Somebody changed the fact under the item.
    seen_by(made, OFFICER).update(reference.fact_id, content=f"{TEXT} Nobody signed this text.")
    with caplog.at_level(logging.WARNING, logger="crp_integrations.governance"):
        for door, context in ((officer, WRITES), (reader, READS)):
            assert sorted(one.id[-1] for one in door.items()) == ["1", "3"]
            caplog.clear()
            # The first is not held to be true again because its correction cannot be read.
            assert [one.id[-1] for one in door.as_of(SEPTEMBER, context)] == ["3"]
            assert reference.fact_id in caplog.text
            assert "pump" not in caplog.text
    # Who lays the log beside what is stored is told, and makes nothing anew without it.
    with pytest.raises(FactRejected, match=reference.fact_id):
        list(officer.items(strict=True))
