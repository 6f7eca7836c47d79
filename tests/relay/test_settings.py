"""

What a relay's headers tell, as far as that is a choice.

An operator's own weights stay the operator's: what leaves the relay has their digest alone.
"""

from __future__ import annotations

import traceback
from datetime import UTC, datetime

import pytest

from crp_integrations.errors import ConfigError
from crp_integrations.relay.settings import Settings, load
from tests.doubles import ScriptedModel
from tests.relay.conftest import FACTS, Opener


def test_arguments_win_over_the_environment_and_it_over_the_file(tmp_path, monkeypatch):
    (tmp_path / "crp.toml").write_text('model = "from-file"\nmax_windows = 7\ntimeout_s = 9.0\n')
    monkeypatch.setenv("CRP_MODEL", "from-environment")
    monkeypatch.setenv("CRP_MAX_WINDOWS", "6")
    settings = load(tmp_path, model="from-argument")
    assert (settings.model, settings.max_windows, settings.timeout_s) == ("from-argument", 6, 9.0)
    assert type(settings) is Settings


def test_a_rooms_settings_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("CRP_ENVELOPE__K_NEAREST", "17")
    assert load().envelope.k_nearest == 17


def test_presets_fill_what_is_not_given():
    literal = load(preset="literal")
    assert literal.envelope != load().envelope
    assert literal.dpe != load().dpe
    assert load(preset="literal", envelope={"k_nearest": 3}).envelope.k_nearest == 3


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"preset": "loose"}, "preset"),
        ({"max_windows": 0}, "max_windows"),
        ({"unknown": 1}, "unknown"),
        ({"key": "zz"}, "key"),
        ({"key": "ab"}, "key"),
        ({"clock": "2026-05-25T12:00:00"}, "clock"),
        ({"envelope": {"k_nearest": 0}}, "k_nearest"),
    ],
)
def test_an_unusable_setting_is_named(arguments, field):
    with pytest.raises(ConfigError, match=field):
        load(**arguments)


def test_a_file_with_an_unknown_setting_is_refused(tmp_path):
    (tmp_path / "crp.toml").write_text("modle = 'typo'\n")
    with pytest.raises(ConfigError, match="modle"):
        load(tmp_path)


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "crp.toml").write_text("model = = 3\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_the_digest_covers_what_decides_an_answer_and_no_secret():
    base = load().digest
    assert base.startswith("sha256:")
    assert load(key="ab" * 32, clock=datetime(2026, 1, 1, tzinfo=UTC), timeout_s=1).digest == base
    assert load(max_windows=4).digest != base
    assert load(preset="literal").digest != base
    used = load()
    assert used.digest == base
    assert used.model_copy(update={"max_windows": 4}).digest == load(max_windows=4).digest
    assert used.model_copy(update={"max_windows": 4}, deep=True).digest != base
    assert "ab" * 32 not in repr(load(key="ab" * 32))


def test_one_field_of_a_preset_can_be_changed_alone():
    literal = load(preset="literal").fabric
    changed = load(preset="literal", fabric={"chunking": {"min_fact_tokens": 3}}).fabric
    assert changed.chunking.min_fact_tokens == 3
    assert (
        changed.chunking.model_copy(update={"min_fact_tokens": literal.chunking.min_fact_tokens})
        == literal.chunking
    )


@pytest.mark.parametrize("key", ["ab" * 20, "secret-" * 9])
def test_a_key_that_is_not_usable_shows_in_no_part_of_the_error(monkeypatch, key):
    monkeypatch.setenv("CRP_KEY", key)
    with pytest.raises(ConfigError, match="'key'") as caught:
        load()
    assert key not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["a" * 300, "file"])
def test_a_folder_that_cannot_be_is_refused_or_has_no_settings(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    if name == "file":
        assert load(tmp_path / name) == load()
    else:
        with pytest.raises(ConfigError, match="cannot be used"):
            load(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CRP_GUARD_POLICY", "CRP_GUARD__POLICY"),
        ("CRP_PRESETT", "CRP_PRESET"),
        ("crp_polcy", "CRP_POLICY"),
        ("CRP_DISPTACH__MAX_RETRIES", "CRP_DISPATCH "),
    ],
)
def test_a_variable_that_is_nearly_a_settings_is_refused(monkeypatch, name, meant):
    monkeypatch.setenv(name, "a secret")
    with pytest.raises(ConfigError) as refused:
        load()
    assert name in str(refused.value) and meant in str(refused.value)
    assert "a secret" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["CRP_STORE", "CRP_KEYS", "CRP_SESSION", "CRP_MASTER_KEYS", "CRP_OTHER_TOOLS_PORT"]
)
def test_a_variable_of_somebody_else_is_passed_over(monkeypatch, name):
    monkeypatch.setenv(name, "x")
    assert load().preset == "default"


QUESTION = "How many megawatts does the Meridian reactor deliver?"


@pytest.mark.requirement("003-16.3-1")
def test_the_domain_of_a_question_is_told_unless_it_is_switched_off(open_relay: Opener) -> None:
    told = []
    for settings in ({}, {"headers": {"show_community": False}}):
        relay = open_relay(embedder=None, **settings)
        relay.fabric.add(list(FACTS))
        relay.fabric.recluster()
        told.append(relay.ask(QUESTION))
    shown, hidden = (answer.headers for answer in told)
    assert set(shown) - set(hidden) == {"CRP-Memory-CKF-Community"}
    # The envelope, which stays with the caller, still knows it.
    assert told[1].envelope.ckf_communities


FACT = "The Falcon bridge is 503 metres long and carries eight lanes of traffic."
SAID = "The Falcon bridge is 977 metres long. It carries eight lanes of traffic."
WEIGHTS = {
    "attribution_weight": 0.33717,
    "fidelity_weight": 0.26113,
    "entailment_weight": 0.25937,
    "specificity_weight": 0.14233,
}


@pytest.mark.requirement("005-21.3-2")
def test_custom_weights_are_in_no_header_and_no_answer(open_relay, tmp_path):
    relay = open_relay(
        tmp_path / "kb",
        models=ScriptedModel(SAID),
        dpe={**WEIGHTS, "decides": "composite", "verifier": "alignment"},
    )
    usual = open_relay(
        models=ScriptedModel(SAID), dpe={"decides": "composite", "verifier": "alignment"}
    )
    for one in (relay, usual):
        one.add([FACT])
    answer = relay.ask("How long is the Falcon bridge?", model="scripted")
    assert (
        answer.report.composite_score
        != usual.ask("How long is the Falcon bridge?", model="scripted").report.composite_score
    )

    with relay.fabric.begin(write=False) as transaction:
        journal = "".join(event.model_dump_json() for event in transaction.journal.events())
        stored = transaction.sessions.report(answer.window_id)
    told = answer.model_dump_json() + journal + stored + "".join(answer.headers.values())
    for weight in WEIGHTS.values():
        assert str(weight) not in told
    assert answer.report.settings_digest == relay.settings.digest
    assert answer.report.settings_digest != usual.settings.digest
