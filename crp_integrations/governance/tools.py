"""Tools that an agent may be offered, selected by keyword and embedding (`tool-rag@1`).

A model sees a tool's signature and safety notes; descriptions are only searched. A tool that the
guard denies, or whose safety tags policy excludes, is never scored or named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field

from crp_integrations.envelope.hybrid import CandidatePool, weigh_pool
from crp_integrations.envelope.settings import HybridSettings
from crp_integrations.errors import RequestError
from crp_integrations.governance.settings import ToolSettings
from crp_integrations.guard.decisions import Decision, LabelFilter
from crp_integrations.ports import Embedder
from crp_integrations.records import Part, Record
from crp_integrations.validation import require_settings
from crp_integrations.vectors import cosine

TOOL_RAG: Final = "tool-rag@1"
# Decides whether the subject may be offered a tool with exactly these labels.
Decide = Callable[[tuple[str, ...]], Decision]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_TAG = re.compile(r"[a-z][a-z0-9-]{0,39}")
_TYPES: Final = frozenset(
    {"array", "boolean", "integer", "null", "number", "object", "string", "any"}
)
ParameterType = Literal["array", "boolean", "integer", "null", "number", "object", "string", "any"]


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"name {text!r:.60} is not made of letters, digits and ._-")
    return text


def _check_tag(text: str) -> str:
    if not _TAG.fullmatch(text):
        raise ValueError(f"tag {text!r:.60} is not made of lower-case letters, digits and -")
    return text


class Parameter(Part):
    """An argument of a tool."""

    name: Annotated[str, AfterValidator(_check_name)]
    type: ParameterType = "any"
    required: bool = True


class ToolSpec(Record):
    """A tool as its registry knows it.

    Spec: Summit §Backlog Select 6

    Attributes:
        description: its purpose; it is searched, and not shown to a model.
        safety_notes: what a caller must know; shown with the signature.
        safety_tags: what it may do, such as `read-only` or `destructive`; at least one, so that
            its safety can be judged.
    """

    SCHEMA = "tool-spec/1"

    name: Annotated[str, AfterValidator(_check_name)]
    description: str = Field(min_length=1, max_length=4_000)
    parameters: tuple[Parameter, ...] = ()
    returns: ParameterType = "any"
    safety_notes: str = Field(default="", max_length=1_000)
    safety_tags: tuple[Annotated[str, AfterValidator(_check_tag)], ...] = Field(min_length=1)
    labels: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """The tool's call signature; optional arguments end in a question mark.

        >>> tool = ToolSpec(name="lift", description="Lifts.", safety_tags=("read-only",))
        >>> tool.changed(parameters=(Parameter(name="tons", type="number"),)).signature
        'lift(tons: number) -> any'
        """
        arguments = ", ".join(
            f"{parameter.name}{'' if parameter.required else '?'}: {parameter.type}"
            for parameter in self.parameters
        )
        return f"{self.name}({arguments}) -> {self.returns}"

    @property
    def shown(self) -> str:
        """Everything that a model is shown of the tool: signature, safety tags and notes."""
        text = f"{self.signature}\nsafety: {', '.join(self.safety_tags)}"
        return f"{text}. {self.safety_notes}" if self.safety_notes else text

    @property
    def searched(self) -> str:
        """The searched text: the name as words, the names of arguments, the description."""
        words = re.sub(r"[_.-]+", " ", " ".join([self.name, *(p.name for p in self.parameters)]))
        return f"{words}. {self.description}"

    @classmethod
    def of(cls, definition: Mapping[str, Any], **more: Any) -> ToolSpec:
        """A tool from a definition in the OpenAI format; `more` has tags, notes and labels.

        Raises:
            RequestError: it is not the definition of a function.
        """
        function = definition.get("function") if isinstance(definition, Mapping) else None
        if not isinstance(function, Mapping) or not function.get("name"):
            raise RequestError("tool definition has no function with a name")
        schema = function.get("parameters") or {}
        required = schema.get("required") or ()
        parameters = tuple(
            Parameter(name=name, type=_parameter_type(of), required=name in required)
            for name, of in (schema.get("properties") or {}).items()
        )
        return cls(
            name=function["name"],
            description=function.get("description") or function["name"],
            parameters=parameters,
            **more,
        )


class ToolChoice(Part):
    """A tool to offer, and why.

    Attributes:
        score: mix of cosine and words relative to the best, [0, 1].
        decision: id of the decision that allows it; empty if decisions have no ids.
    """

    tool: ToolSpec
    score: float = Field(ge=0.0, le=1.0)
    cosine: float = Field(ge=0.0, le=1.0)
    words: float = Field(ge=0.0, le=1.0)
    decision: str = ""


class ToolSelection(Part):
    """The tools for a question.

    Attributes:
        chosen: tools to offer, best first, ties by name.
        irrelevant: names of authorised tools that do not fit the question, by name.
        over: names of relevant tools beyond the maximum, best first.
    """

    chosen: tuple[ToolChoice, ...]
    irrelevant: tuple[str, ...] = ()
    over: tuple[str, ...] = ()


class ToolSelector:
    """Finds the tools for a question, with an embedder that caches their vectors. Thread-safe."""

    def __init__(self, embedder: Embedder, settings: ToolSettings | None = None) -> None:
        """Keep the embedder and the settings."""
        self._embedder = embedder
        self._settings = require_settings(settings, ToolSettings)

    def select(
        self, query: str, tools: Sequence[ToolSpec], decide: Decide, tags: LabelFilter
    ) -> ToolSelection:
        """The tools that the subject may use and that fit the question.

        Spec: Summit §Context Assembly Pipeline
        """
        allowed = _allowed(tools, decide, tags)
        if not allowed:
            return ToolSelection(chosen=())
        settings = self._settings
        specs = sorted(allowed, key=lambda tool: tool.name)
        rows = self._embedder.embed_passages([tool.searched for tool in specs])
        near = np.maximum(cosine(rows, self._embedder.embed_query(query)), 0.0)
        dense: npt.NDArray[np.float64] = near.astype(np.float64)
        nobody = np.full((len(specs), 2), -1, dtype=np.intp)
        mixing = HybridSettings(
            lexical_share=settings.words_share, cosine_power=1.0, lexical_power=1.0
        )
        weighed = weigh_pool(
            CandidatePool(query, [tool.searched for tool in specs], dense, nobody), mixing
        )
        words = weighed.whole / max(float(weighed.whole.max(initial=0.0)), 1e-9)
        relevant = (dense >= settings.relevance_floor) | (
            (words >= settings.words_floor) & (dense >= settings.words_relevance)
        )
        order = sorted(range(len(specs)), key=lambda at: (-float(weighed.mix[at]), at))
        ranked = [at for at in order if relevant[at]]
        return ToolSelection(
            chosen=tuple(
                ToolChoice(
                    tool=specs[at],
                    score=_unit(weighed.mix[at]),
                    cosine=_unit(dense[at]),
                    words=_unit(words[at]),
                    decision=allowed[specs[at]].id,
                )
                for at in ranked[: settings.most]
            ),
            irrelevant=tuple(tool.name for at, tool in enumerate(specs) if not relevant[at]),
            over=tuple(specs[at].name for at in ranked[settings.most :]),
        )


def _allowed(
    tools: Sequence[ToolSpec], decide: Decide, tags: LabelFilter
) -> dict[ToolSpec, Decision]:
    """The tools that may be offered, each with the decision that allows it."""
    names = [tool.name for tool in tools]
    twice = (
        sorted({name for name in names if names.count(name) > 1})
        if len(set(names)) < len(names)
        else []
    )
    if twice:
        raise RequestError(f"tool {twice[0]!r} is given twice; names of tools are unique")
    allowed = {}
    for tool in tools:
        if tags.passes(tool.safety_tags):
            decision = decide(tuple(sorted(tool.labels)))
            if decision.allowed:
                allowed[tool] = decision
    return allowed


def _unit(value: Any) -> float:
    return round(min(1.0, max(0.0, float(value))), 6)


def _parameter_type(schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return kind if isinstance(kind, str) and kind in _TYPES else "any"
