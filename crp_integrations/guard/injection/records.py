"""Findings and settings of the injection rules, and how a rule's phrases are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from crp_integrations.records import Part

Level = Literal["certain", "clear", "hint"]
RuleName = Literal[
    "invisible",
    "role-marker",
    "override",
    "persona",
    "prompt-leak",
    "exfiltration",
    "encoded",
    "bloat",
    "addressed",
    "tool-call",
    "steering",
    "authority",
    "hidden-markup",
    "disguised",
    "model",
]


class InjectionSettings(Part):
    """The numbers of the rules.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        certain, clear, hint: how probable an injection is, by one finding of that level, (0, 1).
        threshold: score from which a text counts as an injection.
        most_findings: findings kept of one rule; the score needs no more.
        longest_decoded: characters of a blob that are decoded, and looked at.
        repeated_words: how often one word follows itself before it is bloat.
        unbroken: characters without a blank before they are bloat.
        distinct_share: share of different word triples below which a long text is bloat.
        long_words: words from which a text counts as long.
        zero_width: zero-width characters within words before they are a finding.
    """

    certain: float = Field(default=0.9, gt=0.0, lt=1.0)
    clear: float = Field(default=0.6, gt=0.0, lt=1.0)
    hint: float = Field(default=0.3, gt=0.0, lt=1.0)
    threshold: float = Field(default=0.5, gt=0.0, le=1.0)
    most_findings: int = Field(default=8, ge=1)
    longest_decoded: int = Field(default=65_536, ge=64)
    repeated_words: int = Field(default=24, ge=4)
    unbroken: int = Field(default=2_000, ge=200)
    distinct_share: float = Field(default=0.1, gt=0.0, le=1.0)
    long_words: int = Field(default=150, ge=20)
    zero_width: int = Field(default=3, ge=1)


class InjectionFinding(Part):
    """One sign at one place.

    Attributes:
        rule: name of the rule.
        level: how much it says by itself.
        reason: one plain sentence that holds no word of the text.
        start, end: character offsets in the text as given.
    """

    rule: RuleName
    level: Level
    reason: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class InjectionReport(Part):
    """What the rules say of one text.

    Attributes:
        rules: `name@n` of the rules.
        score: [0, 1], probability by the findings taken as independent; equal signs count once.
        injected: whether the score reaches the threshold.
        findings: in the order of their places.
        model: identity of the model that was asked too, empty for none.
    """

    rules: str
    score: float = Field(ge=0.0, le=1.0)
    injected: bool
    findings: tuple[InjectionFinding, ...] = ()
    model: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rules that found something, each once, in alphabetical order."""
        return tuple(sorted({found.rule for found in self.findings}))


# Between words: blanks, line ends, punctuation, underscores.
S = r"[\W_]{1,6}"
WORD = r"[^\W_]{1,30}"


def gap(most: int) -> str:
    """Up to so many words, each with what follows it."""
    return rf"(?:{WORD}{S}){{0,{most}}}?"


def words(text: str) -> frozenset[str]:
    """A set of words from a text with blanks between them."""
    return frozenset(text.split())


def one_of(text: str) -> str:
    """A group of alternatives; `_` in one stands for what separates words."""
    return "(?:" + "|".join(one.replace("_", S) for one in text.split()) + ")"


@dataclass(frozen=True, slots=True)
class Phrase:
    """A pattern with what finding it means.

    Attributes:
        needs: words of which one must be in the text; empty when the pattern is always tried.
    """

    rule: RuleName
    level: Level
    reason: str
    pattern: re.Pattern[str]
    needs: frozenset[str] = frozenset()


def phrase(rule: RuleName, level: Level, reason: str, pattern: str, needs: str = "") -> Phrase:
    """A phrase whose pattern is compiled."""
    return Phrase(rule, level, reason, re.compile(pattern), words(needs))


ORDERS = (
    "instruction instructions prompt prompts rule rules guideline guidelines directive directives "
    "command commands order orders direction directions constraint constraints restriction "
    "restrictions policy policies programming guardrail guardrails safeguards safety protocol "
    "protocols training briefing brief guidance preprompt"
)
ORDER = one_of(
    "instructions? (?:system_)?prompts? rules? guidelines? directives? commands? orders? "
    "directions? constraints? restrictions? polic(?:y|ies) programming guardrails? safeguards? "
    "safety_\\w+ protocols? training briefing guidance system_messages? preprompt"
)
DROP = one_of(
    "ignor(?:e|es|ing) disregard(?:ing)? forget(?:ting)? bypass override overrul(?:e|ing) overlook "
    "neglect skip discard abandon dismiss drop erase nullify revoke cancel unlearn violate break "
    "set_aside put_aside throw_(?:away|out) pay_no_attention_to do_not_(?:follow|obey|adhere|heed) "
    "don_t_(?:follow|obey|adhere|listen|heed) no_longer_(?:follow|obey|bound|apply) "
    "stop_(?:following|obeying|adhering) never_mind do_away_with turn_off disable cease disobey "
    "defy reject ditch refrain_from refuse_to_(?:follow|obey) leave_behind circumvent suspend "
    "unset strip_away remove delete"
)
EARLIER = one_of(
    "previous(?:ly)? prior above earlier preceding foregoing your initial original existing "
    "current former past every everything all any the_system system aforementioned developer "
    "other_sources? given before safety security content these those"
)
MODEL = one_of(
    "ai ais llms? a_i language_models? large_language_models? ai_(?:models?|agents?|assistants?|"
    "systems?) assistants? chatbots? chatgpt gpt(?:_?\\d)? claude gemini copilot llama agents? "
    "bots? virtual_assistants? reader_models? summari[sz]ers? automated_\\w+"
)
MODELS = (
    "ai ais llm llms language models model assistant assistants chatbot chatbots chatgpt gpt "
    "claude gemini copilot llama agent agents bot bots summarizer summariser summarizers a "
    "automated"
)
SECRET = one_of(
    "system_prompts? system_messages? developer_messages? hidden_prompts? "
    "(?:initial|original|hidden|secret|internal|full|exact|entire|complete|confidential|previous|"
    "above|own|your|starting|custom)_(?:system_)?(?:instructions?|prompts?|rules|guidelines|"
    "configuration|directives?|message|context_window) "
    "(?:text|words|everything|lines?|contents?|all)_(?:that_(?:is|was|comes?|came)_)?"
    "(?:written_)?(?:above|before_this) "
    "api_keys? passwords? credentials access_tokens? secret_keys? (?:conversation|chat)_"
    "(?:history|log|transcript) environment_variables"
)
TELL = one_of(
    "reveal print show output repeat display disclose leak tell share expose dump recite echo "
    "copy paste quote reproduce spell_out write_(?:out|down) give_(?:me|us) return list "
    "translate summari[sz]e encode include append what_(?:is|are|was|were) begin_with start_with "
    "verbatim provide send read_(?:out|back) hand_over"
)
