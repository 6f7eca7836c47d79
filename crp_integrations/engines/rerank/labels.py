"""From a classifier's raw outputs to one score: which output means that a text fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import ConfigError, EngineError

# Names that published models give to the output that means "this text answers the query".
_FITTING = ("relevant", "entailment", "yes", "true", "positive")
_GENERIC = "label_"


def labels_of(config: Mapping[str, Any], engine: str) -> tuple[str, ...]:
    """The names of a model's outputs in their order, from `id2label`; empty when it has none.

    Args:
        config: what the model's config.json holds.

    Raises:
        EngineError: the numbers of `id2label` do not run from 0 without gaps.
    """
    named = config.get("id2label")
    if not isinstance(named, Mapping):
        return ()
    try:
        by_place = {int(place): str(name) for place, name in named.items()}
    except (TypeError, ValueError):
        by_place = {}
    if sorted(by_place) != list(range(len(named))):
        raise EngineError("id2label of the model's config does not count from 0", engine=engine)
    return tuple(by_place[place] for place in range(len(by_place)))


def fitting(labels: Sequence[str], label: str | None) -> int:
    """The place of the output that means that a text fits.

    Args:
        labels: names of the outputs in their order.
        label: the name that the caller gives, None to find it.

    Raises:
        ConfigError: there is no such name, or none can be found; lists those that there are.
    """
    lowered = [name.casefold() for name in labels]
    if label is not None:
        if label.casefold() in lowered:
            return lowered.index(label.casefold())
        raise ConfigError(f"label {label!r:.40} is not one of the model's labels {list(labels)}")
    if len(labels) == 1:
        return 0
    known = [name for name in _FITTING if name in lowered]
    if known:
        return lowered.index(known[0])
    if len(labels) == 2 and all(name.startswith(_GENERIC) for name in lowered):
        # Unnamed outputs of a yes-or-no model: 1 means yes, wherever it stands.
        return lowered.index(max(lowered))
    raise ConfigError(
        f"the model's labels are {list(labels)}; say with label= which one means that a text fits"
    )


def probability(logits: npt.ArrayLike, place: int) -> float:
    """The probability of one output: logistic for a single output, softmax among several.

    Args:
        logits: raw outputs, shape (labels,).

    Returns:
        A number in [0, 1]; NaN for outputs that are not finite.

    >>> probability([0.0], 0), probability([1.0, 1.0], 1)
    (0.5, 0.5)
    """
    values = np.asarray(logits, dtype=np.float64)
    if not np.isfinite(values).all():
        return float("nan")
    if len(values) == 1:
        # A single output stands against a second one that is always 0.
        values, place = np.array([values[0], 0.0]), 0
    powers = np.exp(values - values.max())
    return float(powers[place] / powers.sum())
