"""Settings: the document's numbers, and what is refused."""

from __future__ import annotations

import pytest

from crp_integrations.dpe.settings import LEVEL_CUTS, DpeSettings
from crp_integrations.errors import ConfigError


@pytest.mark.requirement("005-7.2-4")
def test_default_weights() -> None:
    assert DpeSettings().weights == {
        "attribution": 0.35,
        "fidelity": 0.25,
        "entailment": 0.25,
        "specificity": 0.15,
    }


@pytest.mark.requirement("005-16.3-2")
@pytest.mark.parametrize("attribution", [0.34, 0.36, 0.99])
def test_weights_that_do_not_sum_to_one_are_refused(attribution: float) -> None:
    with pytest.raises(ConfigError, match=r"wanted 1\.0"):
        DpeSettings(attribution_weight=attribution)


@pytest.mark.requirement("005-16.2-1")
@pytest.mark.parametrize(
    ("attribution", "fidelity", "entailment", "specificity"),
    [
        (0.25, 0.35, 0.25, 0.15),  # fidelity above attribution
        (0.30, 0.30, 0.25, 0.15),  # attribution not above fidelity
        (0.35, 0.20, 0.30, 0.15),  # entailment above fidelity
        (0.40, 0.20, 0.20, 0.20),  # specificity not below entailment
    ],
)
def test_weights_out_of_order_are_refused(
    attribution: float, fidelity: float, entailment: float, specificity: float
) -> None:
    with pytest.raises(ConfigError, match="attribution > fidelity"):
        DpeSettings(
            attribution_weight=attribution,
            fidelity_weight=fidelity,
            entailment_weight=entailment,
            specificity_weight=specificity,
        )


@pytest.mark.requirement("005-7.2-5")
@pytest.mark.requirement("005-16.2-1", "005-16.3-2")
def test_other_weights_in_order_are_taken() -> None:
    settings = DpeSettings(
        attribution_weight=0.4, fidelity_weight=0.25, entailment_weight=0.25, specificity_weight=0.1
    )
    assert sum(settings.weights.values()) == pytest.approx(1.0)


@pytest.mark.requirement("005-4.3-5")
def test_presets() -> None:
    assert DpeSettings.preset("default") == DpeSettings()
    literal = DpeSettings.preset("literal")
    assert (literal.decides, literal.verifier, literal.pairs) == ("composite", "alignment", "all")
    assert (literal.grounded, literal.mixed) == (0.75, 0.60)  # fmt: skip
    assert literal.weights == DpeSettings().weights
    with pytest.raises(ConfigError, match="'letter'"):
        DpeSettings.preset("letter")


@pytest.mark.requirement("005-7.4-1")
def test_no_setting_moves_the_cuts() -> None:
    assert [cut for cut, _ in LEVEL_CUTS] == [0.70, 0.45, 0.20]
    assert not {name for name in DpeSettings.model_fields if "critical" in name or "cut" in name}


@pytest.mark.parametrize("fields", [{"mixed": 0.8}, {"grounded": 0.5}])
def test_thresholds_in_the_wrong_order_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="wanted the first no larger"):
        DpeSettings(**fields)
