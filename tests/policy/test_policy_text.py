"""The grammar of policies: what is read, where it goes wrong, and how it is printed."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crp_integrations.errors import PolicySyntaxError
from crp_integrations.policy.directives import (
    DIRECTIVES,
    PROFILE_TEXTS,
    PolicyProfile,
    PolicySource,
)
from crp_integrations.policy.inheritance import MODES
from crp_integrations.policy.policy_text import (
    MOST_CHARACTERS,
    parse_policy,
    policy_hash,
    render_policy,
)
from crp_integrations.policy.records import Policy
from crp_integrations.vocabulary import (
    Oversight,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    SafetyMode,
    Strategy,
)
from tests.policy.policies import policies

EVERYTHING = (
    "default-src context ckf cross-session; halt-on CRITICAL; warn-on MEDIUM; "
    "ask-again-on HIGH; repair-on MEDIUM; "
    "require-grounding 0.80; require-entailment 0.7555; require-flow 0.00; "
    "require-completeness 1.00; require-quality S A; require-oversight auto; "
    "oversight human-review; block-ungrounded; block-parametric; block-pii; block-fabrication; "
    "block-distortion; block-repetition; max-repetition MINOR; upgrade-on-risk hierarchical; "
    "unchecked allow; report-uri https://a.example/r http://b.example:8080/; report-to audit ops"
)


def column(text: str) -> int:
    with pytest.raises(PolicySyntaxError) as caught:
        parse_policy(text)
    assert caught.value.status_hint == 400
    return caught.value.column


@given(policies())
@example(Policy())
def test_a_policy_that_is_printed_and_read_is_the_same(policy: Policy) -> None:
    assert parse_policy(render_policy(policy)) == policy
    assert Policy.model_validate_json(policy.model_dump_json()) == policy


def test_the_longest_canonical_form_is_one_that_is_read() -> None:
    longest = parse_policy(EVERYTHING).changed(
        report_uri=tuple("https://h.example/" + letter * 494 for letter in "abcd"),
        report_to=tuple(letter * 64 for letter in "abcd"),
    )
    assert len(render_policy(longest)) < MOST_CHARACTERS
    assert parse_policy(render_policy(longest)) == longest


def test_every_directive_is_read_and_printed_as_it_stands() -> None:
    assert {part.split(" ")[0] for part in EVERYTHING.split("; ")} == set(DIRECTIVES)
    assert parse_policy(EVERYTHING) == Policy(
        default_src=(PolicySource.CONTEXT, PolicySource.CKF, PolicySource.CROSS_SESSION),
        halt_on=RiskLevel.CRITICAL,
        warn_on=RiskLevel.MEDIUM,
        ask_again_on=RiskLevel.HIGH,
        repair_on=RiskLevel.MEDIUM,
        require_grounding=0.8,
        require_entailment=0.7555,
        require_flow=0.0,
        require_completeness=1.0,
        require_quality=(QualityTier.S, QualityTier.A),
        require_oversight=Oversight.AUTO,
        oversight=Oversight.HUMAN_REVIEW,
        block_ungrounded=True,
        block_parametric=True,
        block_pii=True,
        block_fabrication=True,
        block_distortion=True,
        block_repetition=True,
        max_repetition=RepetitionLevel.MINOR,
        upgrade_on_risk=Strategy.HIERARCHICAL,
        unchecked="allow",
        report_uri=("http://b.example:8080/", "https://a.example/r"),
        report_to=("audit", "ops"),
    )
    assert parse_policy(render_policy(parse_policy(EVERYTHING))) == parse_policy(EVERYTHING)


def test_sources_have_their_default_and_none_of_them_is_a_word() -> None:
    assert parse_policy("block-pii").default_src == (PolicySource.CONTEXT, PolicySource.PARAMETRIC)
    assert parse_policy("default-src 'NONE'").default_src == ()
    assert render_policy(parse_policy("default-src 'none'")) == "default-src 'none'"


@pytest.mark.parametrize(
    "text",
    [
        "HALT-ON high;Block-PII;require-quality s a;oversight HUMAN-review",
        " \thalt-on\t HIGH ;   block-pii ; require-quality A ;oversight human-review\t",
    ],
)
def test_case_and_blanks_mean_nothing(text: str) -> None:
    wanted = parse_policy("halt-on HIGH; block-pii; require-quality S A; oversight human-review")
    assert parse_policy(text) == wanted
    assert policy_hash(parse_policy(text)) == policy_hash(wanted)


@pytest.mark.parametrize(
    ("lax", "strict"),
    [
        ("default-src context parametric ckf", "default-src context parametric"),
        ("halt-on CRITICAL", "halt-on HIGH"),
        ("warn-on HIGH", "warn-on MEDIUM"),
        ("require-grounding 0.50", "require-grounding 0.51"),
        ("require-entailment 0.0", "require-entailment 1.0"),
        ("require-flow 0.10", "require-flow 0.9"),
        ("require-completeness 0.60", "require-completeness 0.61"),
        ("require-quality S A B", "require-quality A"),
        ("require-oversight log-only", "require-oversight auto"),
        ("oversight human-review", "oversight halt"),
        ("oversight auto", "oversight human-review"),
        ("max-repetition SIGNIFICANT", "max-repetition MINOR"),
        ("max-repetition MINOR", "max-repetition NONE"),
        ("upgrade-on-risk batch", "upgrade-on-risk hierarchical"),
        ("upgrade-on-risk hierarchical", "upgrade-on-risk reflexive"),
    ],
)
def test_the_most_restrictive_of_duplicates_holds(lax: str, strict: str) -> None:
    assert (
        parse_policy(f"{lax}; {strict}")
        == parse_policy(f"{strict}; {lax}")
        == parse_policy(strict)
        != parse_policy(lax)
    )


def test_duplicates_that_share_nothing_leave_nothing() -> None:
    assert parse_policy("default-src context; default-src ckf").default_src == ()


def test_reports_go_to_every_address_that_is_named() -> None:
    policy = parse_policy(
        "report-uri https://b.example/; report-to ops; report-uri https://a.example/"
    )
    assert policy.report_uri == ("https://a.example/", "https://b.example/")


@pytest.mark.parametrize("name", list(PolicyProfile))
def test_a_profile_stands_for_its_directives(name: PolicyProfile) -> None:
    assert parse_policy(f"Profile={name.upper()}") == parse_policy(PROFILE_TEXTS[name])


def test_the_profiles_say_what_the_document_says() -> None:
    context, parametric = PolicySource.CONTEXT, PolicySource.PARAMETRIC
    assert parse_policy(PROFILE_TEXTS[PolicyProfile.MEDICAL]) == Policy(
        default_src=(context,),
        halt_on=RiskLevel.HIGH,
        require_grounding=0.9,
        require_entailment=0.85,
        block_ungrounded=True,
        block_pii=True,
        block_fabrication=True,
        oversight=Oversight.HUMAN_REVIEW,
        require_flow=0.7,
        require_completeness=0.9,
    )
    assert parse_policy(PROFILE_TEXTS[PolicyProfile.FINANCIAL]) == Policy(
        default_src=(context, parametric),
        halt_on=RiskLevel.CRITICAL,
        warn_on=RiskLevel.HIGH,
        require_grounding=0.8,
        block_fabrication=True,
        upgrade_on_risk=Strategy.REFLEXIVE,
        require_completeness=0.8,
    )
    assert parse_policy(PROFILE_TEXTS[PolicyProfile.DEVELOPER]) == Policy(
        default_src=(context, parametric),
        warn_on=RiskLevel.CRITICAL,
        require_quality=(QualityTier.S, QualityTier.A, QualityTier.B),
        oversight=Oversight.AUTO,
    )
    assert parse_policy(PROFILE_TEXTS[PolicyProfile.PUBLIC_FACING]) == Policy(
        default_src=(context, parametric),
        halt_on=RiskLevel.CRITICAL,
        warn_on=RiskLevel.HIGH,
        block_pii=True,
        require_flow=0.6,
        max_repetition=RepetitionLevel.MINOR,
        require_completeness=0.7,
    )


def test_the_safety_modes_are_policies() -> None:
    assert MODES[SafetyMode.STRICT] == parse_policy(
        "halt-on CRITICAL; warn-on HIGH; block-ungrounded"
    )
    assert MODES[SafetyMode.WARN] == Policy(warn_on=RiskLevel.HIGH)
    assert MODES[SafetyMode.PERMISSIVE] == Policy()


@pytest.mark.parametrize("other", ["halt-on CRITICAL", "require-grounding 0.99", "default-src ckf"])
def test_a_profile_and_a_directive_the_stricter_holds(other: str) -> None:
    written = f"profile=medical; {other}"
    assert parse_policy(written) == parse_policy(f"{other}; profile=medical")
    assert parse_policy("profile=medical; halt-on CRITICAL").halt_on is RiskLevel.HIGH
    assert parse_policy("profile=medical; require-grounding 0.99").require_grounding == 0.99
    assert parse_policy("profile=medical; default-src ckf").default_src == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 1),
        ("   ", 4),
        (";", 1),
        ("block-pii;", 11),
        ("block-pii; ;warn-on HIGH", 12),
        ("blok-pii", 1),
        ("block-pii;  x HIGH", 13),
        ("halt-on=HIGH", 1),
        ("halt-on", 8),
        ("halt-on  ; block-pii", 8),
        ("halt-on LOW", 9),
        ("halt-on HIGH CRITICAL", 14),
        ("block-pii yes", 11),
        ("default-src", 12),
        ("default-src none", 13),
        ("default-src context  'none'", 22),
        ("require-flow 1", 14),
        ("require-flow .5", 14),
        ("require-flow 1.01", 14),
        ("require-flow 0.12345", 14),
        ("require-flow -0.1", 14),
        ("require-flow nan", 14),
        ("require-flow ٠.٥", 14),
        ("require-quality S C", 19),
        ("oversight none", 11),
        ("max-repetition SEVERE", 16),
        ("upgrade-on-risk push", 17),
        ("unchecked", 10),
        ("unchecked deny", 11),
        ("unchecked allow allow", 17),
        ("profile", 1),
        ("profile medical", 1),
        ("profile=", 9),
        ("profile=legal", 9),
        ("profile=medical now", 17),
        ("report-uri /relative", 12),
        ("report-uri https://a.example/ javascript:alert(1)", 31),
        ("report-uri file:///etc/passwd", 12),
        ("report-uri https://user:secret@a.example/", 12),
        ("report-uri https://a.example:65536/", 12),
        ("report-uri https://a.example/%zz", 12),
        ("report-uri https://" + "a" * 600, 12),
        ("block-pii; report-uri https://a/1 https://a/2 https://a/3 https://a/4 https://a/5", 12),
        ("report-to a/b", 11),
        ("block-pii\n; warn-on HIGH", 10),
        ("block-pii\x00", 10),
        ("block-pii; halt-on\x85HIGH", 19),
        ("bloc\u212a-pii", 1),
        ("x" * 5_000, MOST_CHARACTERS + 1),
    ],
)
def test_an_error_names_the_column(text: str, place: int) -> None:
    assert column(text) == place


def test_an_unknown_directive_is_said_to_be_one() -> None:
    with pytest.raises(PolicySyntaxError, match="unknown directive 'halt-off' in column 12"):
        parse_policy("block-pii; halt-off CRITICAL")


WORDS = st.sampled_from(
    [
        *DIRECTIVES,
        *map(str, (*RiskLevel, *Oversight, *PolicySource, *PolicyProfile, *QualityTier)),
        *("profile=medical", "0.50", "1.0", "'none'", "https://a.example/", ";", "; ", "\t", "\n"),
    ]
)
LINES = st.lists(WORDS, max_size=14).map(" ".join) | st.lists(WORDS).map("".join)


def read_or_refused(text: str) -> bool:
    """Whether a text is a policy, which then keeps its meaning; a refusal has its place."""
    try:
        policy = parse_policy(text)
    except PolicySyntaxError as error:
        place = error.column
    else:
        assert parse_policy(render_policy(policy)) == policy
        return True
    assert 1 <= place <= len(text) + 1
    return False


@given(st.text(max_size=80) | LINES)
@settings(max_examples=600)
@example("halt-on HIGH;")
def test_any_text_is_a_policy_or_an_error_with_its_place(text: str) -> None:
    read_or_refused(text)


@given(policies(), st.data())
def test_one_changed_character_is_read_or_refused_at_its_place(
    policy: Policy, data: st.DataObject
) -> None:
    text = render_policy(policy)
    assert read_or_refused(text)
    place = data.draw(st.integers(0, len(text) - 1))
    read_or_refused(text[:place] + data.draw(st.characters()) + text[place + 1 :])


@pytest.mark.parametrize(
    "fields",
    [
        {"halt_on": "LOW"},
        {"require_flow": 1.01},
        {"require_flow": 0.123456},
        {"require_flow": float("nan")},
        {"require_quality": ("C",)},
        {"max_repetition": "SEVERE"},
        {"upgrade_on_risk": "push"},
        {"report_uri": ("ftp://a.example/",)},
        {"report_uri": tuple(f"https://a.example/{n}" for n in range(5))},
        {"report_to": ("a;b",)},
        {"default_src": ("web",)},
    ],
)
def test_a_policy_that_has_no_text_cannot_be_made(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Policy.model_validate(fields)
