"""The patterns that reveal an order to the reader: tables of patterns for text in lower case.

Each line of a table is `name: pattern`; a line that begins with blanks continues the one above.
Every repetition is bounded, so the time of a search grows only with the length of its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from crp_integrations.guard.injection.records import RuleName

# In a phrase, a blank matches anything that separates two words, `~4` up to four words, and a name
# in capitals any of its words.
_WORDS: Final = r"""
DROP: ignor(?:e|es|ing)|disregard|forget|bypass|override|neglect|skip|discard|abandon|dismiss|drop
  |erase|revoke|cancel|break|set aside|put aside|pay no attention to|stop following
  |cease to follow|(?:do not|don t|no longer(?: need to)?|not have to) (?:follow|obey)
ORDERS: instructions?|(?:system )?prompts?|rules?|guidelines?|directives?|commands?|directions?
  |constraints?|restrictions?|polic(?:y|ies)|guardrails?|safety \w+|system messages?
PAST: previous(?:ly)?|prior|above|earlier|preceding|foregoing|initial|original|existing|before
  |so far|until now
YOURS: your|current|all|any|every|everything|system|developer|these|those|safety|content
VOID: no longer|void|invalid|cancel+ed|revoked|superseded|suspended|lifted|obsolete|outdated
  |replaced|overridden|wrong|do not apply|don t apply
LIMITS: restrictions?|limits?|limitations?|filters?|rules|guidelines|censorship|ethics|boundaries
  |polic(?:y|ies)|constraints|(?:ethical|moral|safety) \w+
MODEL: ai|ais|llms?|(?:large )?language models?|chatbots?|chatgpt|gpt|claude|gemini|copilot|llama
  |assistants?|(?:automated )?agents?|bots?|summari[sz]ers?
MODE: (?:developer|debug|god|admin|root|maintenance|opposite|jailbreak|dan) mode
TELL: reveal|print|show|output|repeat|display|disclose|leak|tell|share|dump|recite|copy|return|list
  |translate|summari[sz]e|encode|include|quot(?:e|ing)|write out|spell out|give me|provide
  |what (?:is|are|was|were)
SECRET: system prompts?|(?:system|developer) messages?|api keys?|passwords?|credentials|secret keys?
  |(?:initial|original|hidden|secret|internal|full|exact|entire|confidential|own|your)(?: system)?
   (?:instructions?|prompts?|rules|guidelines|configuration|directives?)
  |(?:text|words|everything|lines?|message) (?:that (?:is|was|comes?) )?(?:written )?above
  |preceding message|(?:conversation|chat) (?:history|log|transcript)|environment variables
READS: (?:read|process|retriev|summari[sz]|pars|index|analy[sz]|review|evaluat|translat|answer|us)
  \w{0,4}
TEXT: document|page|email|text|message|file|article|content|website|passage|record|ticket|resume
  |source|invoice|paper|candidate|item|result|entry|essay
ANSWER: answers?|responses?|repl(?:y|ies)|outputs?|summar(?:y|ies)|messages?|sentences?
SAY: say|answer|respond|reply|output|print|tell|state|claim|recommend|write|include|add|insert
  |append|mention|ignore|rate|mark|treat|always|never|do not|must
ACT: delete|remove|transfer|send|grant|pay|purchase|forward|email|upload|disable|reset|refund
  |approve|share|export|wipe|cancel|unlock|post|schedule
"""

_PHRASES: Final = r"""
override: DROP ~4 (?:PAST|YOURS) ~4 ORDERS
override: DROP ~3 ORDERS ~3 (?:PAST|given to you|you (?:were|have|got|received))
override: (?:ignore|disregard|forget|discard|neglect) (?:about )?(?:all|any|everything|whatever
  |what|the) ~4 (?:told|said|instructed|asked|PAST)
override: (?:(?:PAST|your) ~2 ORDERS|ORDERS ~3 PAST) ~4 VOID
override: (?:reset|clear|wipe|restart|begin) ~3 (?:your (?:memory|context|instructions|identity
  |rules)|new (?:conversation|session|persona))
persona: (?:you are|you re|you will|act|pretend|behave|respond|answer|roleplay|simulate|imagine
  |become|play|speak|be) ~8 (?:dan|unrestricted|unfiltered|uncensored|unaligned|amoral|jailbroken
  |MODE|(?:without|no|not bound by|free (?:from|of)) ~3 LIMITS)
persona: (?:ai|assistant|model|chatbot|agent|persona|system|llm|one|who|which) ~3 (?:without|has no
  |with no|free (?:of|from)|is not bound by) ~3 LIMITS
persona: do anything now|(?:stay in|never break) character|never refuses|always complies
  |MODE ~2 (?:enabled|activated|on|access)|(?:enable|activate|enter|switch to) ~2 MODE
  |(?:amoral|evil|uncensored|unfiltered|unrestricted) ~2 (?:ai|assistant|bot|chatbot|model|access)
prompt-leak: TELL ~6 SECRET
prompt-leak: (?:repeat|print|output|copy|recite|write out) ~5 above ~4 (?:verbatim|exactly
  |word for word|code block|starting|line)
addressed: (?:note|message|instructions?|attention|notice|memo|reminder|hello|hey|dear|information
  |guidance|if you are|as an|to any) (?:(?:to|for|the|an?|any|all|your) ){0,3}MODEL
  (?: ~12 (?:SAY|please|should|stop|has to|have to|need to)| when| processing| reading)
addressed: MODEL (?:(?:that|which|who|when|while) )?(?:read|process|retriev|summari[sz]|pars)\w{0,4}
   ~1 (?:this|these)
addressed: (?:the|any|all|every) ~1 MODEL ~2 (?:must|shall|(?:is|are) (?:required|instructed|ordered
  |obliged))|ai agents must
addressed: (?:when|while|before|if) (?:you (?:are )?)?READS ~1 (?:this|the) ~2 TEXT ~6 (?:SAY|you
  |please|also)
steering: (?:if|when|whenever|each time) ~5 (?:asked|asks?|requests?|wants to know|question is) ~12
   (?:you must|you should|always|SAY (?:that|with|only)|claim that)
steering: (?:do not|don t|never|without) (?:ever )?(?:mention|reveal|tell|disclos|inform|warn|notify
  |show|ask)\w{0,3} ~4 (?:the (?:user|human|reader|customer)|users?|anyone|these instructions?
  |this (?:message|notice|prompt|note)|for confirmation)
steering: (?:this|the following) TEXT ~3 (?:overrides?|supersedes?|takes (?:precedence|priority)
  |is the (?:only|sole|most) ~1 (?:trusted|authoritative|reliable|correct))
steering: (?:rank|rate|prefer|prioriti[sz]e|place|recommend) ~2 this ~2 TEXT ~6 (?:first|highest|top
  |above|over|best|regardless|strongly)
steering: your ~1 ANSWER (?:must|should|will|shall|has to|is to) ~2 (?:be|contain|begin|start|end
  |include|say|only)
steering: (?:respond|reply|answer|output|say|print) (?:(?:every|each|all|to|with|question|should
  |user) ){0,4}(?:only|nothing but|exactly) ~2 (?:with|the|this|text|word|yes|no)
steering: (?:begin|start|end|finish|conclude) ~2 (?:every|each|all|your) ~1 ANSWER ~1 (?:with|by
  |saying)
authority: your (?:new|real|actual|next|only|primary) ~1 (?:task|goal|objective|job|purpose|mission
  |role|name) ~3 (?:is|are|will)
authority: (?:admin|administrator|system|security|priority|policy|developer|emergency) override
authority: (?:i am|i m|this is|message from|authorized by) ~3 (?:developer|creator|admin|operator
  |administrator|openai|anthropic|supervisor|safety team|red team) ~10 (?:you|your)
tool-call: (?:call|use|invoke|run|execute|trigger|launch) ~3 (?:tool|function|plugin|api|skill) ~8
   ACT
tool-call: (?:run|execute|open) ~6 (?:rm rf|drop (?:table|database)|curl|wget|sudo|delete from
  |powershell|chmod)
tool-call: ACT ~9 (?:on (?:my|their|his|her|the user s) behalf|without (?:asking|confirmation
  |the user s (?:consent|approval))|(?:using|with|through) (?:your|the) ~2 (?:tools?|plugin|api
  |skill|terminal))
exfiltration: (?:send|post|forward|upload|transmit|email|append|submit|share|export|write|encode
  |include|visit|fetch|load|open) ~8 (?:conversation|chat|history|secrets?|passwords?|api key
  |credentials?|tokens?|inbox|messages?|documents?|files?|context|customer|private|notes).{0,80}?
  (?:\w{2,5}://\w+|\w@[\w-]{1,63}\.[a-z]{2,}|following url)
"""

# Signs in markup, addresses and characters; here a blank matches only a blank.
_SHAPES: Final = r"""
role-marker: <\|[\w ]{2,24}\|>|\[/?inst\]|<</?sys>>|</?(?:start|end)_of_turn>
  |</?(?:system|assistant|developer)(?:[-_ ]\w{2,12})?>
  |</(?:context|documents?|search_results?|sources?|instructions?|user_query)>
role-marker: (?:^|\n)[ \t]{0,4}(?:#{1,6}|\[|\*\*|<|-{2,9}) ?(?:system|user|assistant|developer|human
  |instructions?)(?: (?:prompt|message|instructions?))?[ \t]{0,3}(?:[:\]>]|\*\*|-{2}|(?=\n))
role-marker: (?:^|\n)(?:system|developer) ?:.{0,120}?\b(?:you|your|ignore|must|never)\b
authority: \b(?:new|updated|real|hidden|important|urgent|additional|secret)\W(?:\w{1,20} )?
  (?:instructions?|directives?|objective|task|prompt|orders?) {0,3}:
authority: (?:^|[\n\[(<*#=])[ \t*#=\[]{0,8}(?:\w{1,12} )?(?:system|admin|security|developer|openai
  |anthropic|policy) (?:\w{1,12} )?(?:notice|alert|override|update|message|note)\W
authority: [-=#*\[<]{1,9} ?(?:end|begin) (?:of )?(?:new |user |search )?(?:document|context
  |instructions?|prompt|input|results?)\b
tool-call: </?(?:tool_call|function_calls?|invoke|tool_use)\b|\[tool_calls\]|\baction input:
exfiltration: //\S{0,200}?[?/=&#]\S{0,80}?(?:[{\[<$]|%7b)[\w .]{0,40}?(?:conversation|chat|secret
  |history|prompt|user|data|password|token|key|email|session)
exfiltration: \b(?:webhook\.site|requestbin\.\w|ngrok\.\w|oastify\.com|interact\.sh|pipedream\.net
  |burpcollaborator\.net)
hidden-markup: (?:display ?: ?none|visibility ?: ?hidden|font-size ?: ?[01](?:px|pt|em|%)?\b
  |opacity ?: ?0\b|color ?: ?(?:white|#fff|transparent)|text-indent ?: ?-\d{3}|left ?: ?-\d{3}
  |aria-hidden=.true|<(?:span|div|p) [^>\n]{0,60}?\bhidden\b)[^\0]{0,300}?\b(?:ai|llms?|assistants?
  |chatbots?|ignore|disregard|instructions?|must|always|never|respond|the user|your answer)\b
hidden-markup: <!--(?:[^-]|-(?!->)){0,300}?\b(?:ai|llm|assistant|ignore|instructions:|you must
  |respond)\b
bloat: ([^\s\-=_*#.~+<>|/\\0])\1{199}|\b([^\W\d]{1,30})(?:[\W_]{1,6}\2\b){23}|(?<![!-~])[!-~]{2000}
"""

# Stems of verbs and of their objects in other languages; their order differs by language.
_VERBS: Final = """
ignorier missacht vergiss verwirf ignor olvid omit haz.caso desconsider esquec oubli neglig
ne.tenez ne.suivez dimentic trascur negeer vergeet zignoruj zapomnij glom abaikan lupakan bo.qua
quen yok.say unut игнорир забуд отмени ігнору 忽略 忽视 忽視 无视 無視 忘记 忘記 忘れ 무시 잊어
تجاهل अनदेखा भूल התעלם שכח αγνοησ ξεχασ
"""
_OBJECTS: Final = """
anweisung regeln vorgaben instruccion instruco instructions consignes istruzion instructies
aanwijzing instrukcj poleceni instruktion instruksi perintah huong.dan chi.thi talimat инструкц
указани правил інструкці 指令 指示 提示 规则 規則 命令 지시 지침 명령 التعليمات निर्देश आदेश הוראות
οδηγι εντολ
"""

REASONS: Final[dict[RuleName, str]] = {
    "override": "tells its reader to drop instructions",
    "persona": "gives its reader a part without limits",
    "prompt-leak": "asks for instructions, secrets or the conversation",
    "addressed": "turns to a model that reads it",
    "steering": "dictates the answer or hides something from the user",
    "authority": "speaks as the system, its maker or the frame of the text",
    "tool-call": "orders an act by a tool",
    "exfiltration": "has data sent to an address",
    "role-marker": "holds a marker of a chat template or a role",
    "hidden-markup": "hides orders by markup",
    "bloat": "repeats the same text, or goes on without a blank",
}


def _table(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace("\n  ", "").strip().splitlines():
        name, _, pattern = line.partition(": ")
        yield name, pattern


def _phrases() -> Iterator[tuple[str, str]]:
    words = dict(_table(_WORDS))
    for rule, pattern in _table(_PHRASES):
        pattern = re.sub(r"\b[A-Z]{3,}\b", lambda name: f"(?:{words[name[0]]})", pattern)
        pattern = re.sub(r" ~(\d+) ", r" (?:[^\\W_]{1,30} ){0,\1}?", pattern)
        pattern = pattern.replace(" ", r"[\W_]{1,6}")
        yield rule, rf"\b(?:{pattern})(?![^\W_])"


def _foreign() -> Iterator[tuple[str, str]]:
    # Chinese and Japanese have no blanks, so a stem must only not follow a Latin letter.
    verb, order = (rf"(?<![a-z])(?:{'|'.join(words.split())})" for words in (_VERBS, _OBJECTS))
    between = r"[^\n.!?。！？]{0,60}?"
    yield "override", f"{verb}{between}{order}|{order}{between}{verb}"


PATTERNS: Final[tuple[tuple[RuleName, re.Pattern[str]], ...]] = tuple(
    (rule, re.compile(pattern))
    for rows in (_phrases(), _table(_SHAPES), _foreign())
    for name, pattern in rows
    for rule in REASONS
    if rule == name
)
