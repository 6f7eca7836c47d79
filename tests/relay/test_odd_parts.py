"""Opening with something else in the place of a part: what it is and what to give are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import AccessDenied, ConfigError, RequestError
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.stores.sqlite import SqliteStore
from tests.doubles import HashEmbedder, ScriptedModel
from tests.relay.conftest import FACTS, KEY, Opener

QUESTION = "Who operates the Meridian reactor?"


@pytest.mark.parametrize(
    ("argument", "given", "said"),
    [
        ("models", "gpt-4o", "models is the text 'gpt-4o'; .* model='gpt-4o-mini'"),
        ("models", ScriptedModel, "models is the class ScriptedModel"),
        ("verifier", "alignment", r"verifier is the text 'alignment'; .* dpe=\{'verifier'"),
        ("subject", "acme", r"subject is the text 'acme'; .* Subject\(tenant='acme'\)"),
        ("guard", True, r"guard is of type bool; .* guard=\{'policy': True\}"),
        ("embedder", "minilm", "embedder is the text 'minilm'"),
        ("reranker", 5, "reranker is of type int"),
        ("injections", "rules", "injections is the text 'rules'"),
        ("policy", 5, "policy is of type int"),
        ("recognisers", "presidio", "recognisers is the text 'presidio'; give a list"),
        ("recognisers", ["presidio"], "recognisers is the text 'presidio'; give a list"),
        ("tracer", "otel", "tracer is the text 'otel'"),
        ("clock", 5, "clock is of type int"),
        ("ids", 5, "ids is of type int"),
        ("reviewer", True, "reviewer is of type bool; give a function"),
        ("receiver", "http://x", "receiver is of type str; give a function"),
        ("violations", "http://x", "violations is of type str"),
        ("artifacts", "s3://bucket", r"artifacts is of type str; .* artifacts=\{'place'"),
        ("settings", {"model": "extractive"}, "settings is of type dict; .* by their names"),
    ],
)
def test_what_is_no_part_is_named_with_what_to_give(argument: str, given: Any, said: str) -> None:
    options = {"embedder": HashEmbedder(), "key": KEY, argument: given}
    with pytest.raises(ConfigError, match=f"^{said}"):
        Relay.open(None, **options)


def test_a_store_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^store is of type int; give a folder"):
        Relay.open(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("argument", ["artifacts", "keyring", "receiver", "settings", "violations"])
def test_a_key_in_the_place_of_a_part_is_not_repeated(argument: str) -> None:
    with pytest.raises(ConfigError, match=f"^{argument} is of type str") as caught:
        Relay.open(None, **{argument: KEY})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("guard", [{"policy": True}, GuardSettings(policy=True)])
def test_a_guard_is_given_by_its_settings_too(open_relay: Opener, guard: Any) -> None:
    relay = open_relay(guard=guard)
    with pytest.raises(AccessDenied, match="it carries no label"):
        relay.add([FACTS[0]])


def test_artifacts_are_given_by_their_settings_too(open_relay: Opener) -> None:
    assert open_relay(artifacts={"url_seconds": 7}).settings.artifacts.url_seconds == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modle": "gpt-4o"}, "setting 'modle' is unknown; did you mean 'model'?"),
        (
            {"dpe": {"verifer": "x"}},
            "setting 'dpe.verifer' is unknown; did you mean 'dpe.verifier'?",
        ),
        ({"bananas": 1}, "setting 'bananas' is unknown"),
    ],
)
def test_an_unknown_setting_is_told_with_the_nearest(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Relay.open(None, **given)
    assert str(caught.value) == said


def test_a_policy_of_ones_own_with_an_error_is_refused_at_opening(tmp_path: Path) -> None:
    pytest.importorskip("regopy")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "access.rego").write_text('package crp.access\n\ndecision := {"allow": true\n')
    with pytest.raises(ConfigError, match=r"guard\.bundle '.*mine' .* access\.rego, line [13]$"):
        Relay.open(SqliteStore(tmp_path / "kb"), key=KEY, guard={"bundle": folder})
    (folder / "access.rego").write_text(
        'package crp.access\n\ndecision := {"allow": true, "reason": "", "redact": []}\n'
    )
    with Relay.open(None, embedder=HashEmbedder(), key=KEY, guard={"bundle": folder}) as relay:
        assert relay.preview(QUESTION).facts_available == 0


def test_one_word_stands_for_a_list_of_it(open_relay: Opener) -> None:
    relay = open_relay(models=ScriptedModel("Nobody."))
    relay.add(FACTS)
    every = ("S", "A", "B", "C", "D")
    tier = relay.ask(QUESTION, accept_quality=every).envelope.quality_tier
    assert relay.ask(QUESTION, accept_quality=tier).envelope.quality_tier == tier
    with pytest.raises(RequestError, match=r"^tools is not usable: wanted a list$"):
        relay.ask(QUESTION, tools="search")


def test_a_model_that_is_no_name_is_told() -> None:
    with pytest.raises(ConfigError, match=r"^model is of type NoneType; give a name"):
        counter_for(None)  # type: ignore[arg-type]
