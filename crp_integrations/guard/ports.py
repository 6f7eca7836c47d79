"""Ports of the guard: an engine for Rego, a redactor, a model that detects injections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

from crp_integrations.seals import digest

# Version of the redaction of texts; it determines their bytes.
REDACTION: Final = "redact@1"
# Where a policy reads its input, and the paths that are not the subject's name.
_INPUT: Final = re.compile(r"\binput\b")
_NAMELESS: Final = re.compile(r"\.(?:action|resource|subject\.(?:tenant|roles))\b")


@dataclass(frozen=True)
class Bundle:
    """A policy with its data; its digest identifies it wherever a decision is recorded.

    Attributes:
        name: `name@n`; changed bytes require a new n.
        module: source in Rego v1.
        data: the documents that the module reads below `data`, as JSON values.
        entrypoint: the rule whose value is the decision, as `package/rule`.
        further: sources of further modules, by name.
        file: file name of the module in errors; empty for the bundle's name. Decides nothing.
    """

    name: str
    module: str
    data: Mapping[str, Any]
    entrypoint: str
    further: Mapping[str, str] = field(default_factory=dict)
    file: str = field(default="", compare=False)

    @property
    def sources(self) -> dict[str, str]:
        """The source of each module by its file name."""
        return {self.file or f"{self.name}.rego": self.module, **self.further}

    @cached_property
    def digest(self) -> str:
        """`sha256:` hash of everything that affects a decision."""
        parts = {"module": self.module, "data": dict(self.data), "entrypoint": self.entrypoint}
        return digest(parts | ({"further": dict(self.further)} if self.further else {}))

    @cached_property
    def reads_names(self) -> bool:
        """Whether a decision may depend on the subject's name.

        False only if the sources are available and each `input` in them, even in a comment or
        string, is followed by another path; a whole subject, an alias or a computed key count as
        reading the name.

        >>> Bundle("a@1", "x := input.subject.roles", {}, "a/x").reads_names
        False
        >>> Bundle("a@1", "who := input.subject", {}, "a/x").reads_names
        True
        """
        sources = [self.module, *self.further.values()]
        return not all(sources) or any(
            _NAMELESS.match(source, read.end()) is None
            for source in sources
            for read in _INPUT.finditer(source)
        )


class Redactor(Protocol):
    """Removes personal data from a text before a subject sees it. Thread-safe."""

    def redacted(self, text: str, kinds: tuple[str, ...]) -> str:
        """The text without personal data of these kinds; equal arguments give equal texts.

        Args:
            kinds: kinds as named by a decision; `*` for every kind that is recognised.

        Raises:
            EngineError: a recogniser failed. The caller must withhold the text.
        """
        ...


class PolicyEngine(Protocol):
    """Evaluates policies; equal bundles and inputs always get equal decisions. Thread-safe.

    Attributes:
        identity: library and version.
    """

    @property
    def identity(self) -> str: ...

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The value of the bundle's entrypoint for an input.

        Args:
            question: the input document; JSON types only, and no text of a fact or answer.

        Raises:
            EngineError: the engine failed, or the rule has no value. The caller must deny.
        """
        ...


class InjectionModel(Protocol):
    """Estimates how probable it is that texts give orders to their reader. Thread-safe.

    Attributes:
        identity: name and version, shown in reports.
    """

    @property
    def identity(self) -> str: ...

    def score(self, texts: Sequence[str]) -> Sequence[float]:
        """One probability in [0, 1] for each text.

        Raises:
            EngineError: the model failed. The caller must treat the texts as not checked.
        """
        ...
