"""Phrases in English that drop instructions, give a part, ask for secrets, turn to a model."""

from __future__ import annotations

from crp_integrations.guard.injection.records import (
    DROP,
    EARLIER,
    MODEL,
    MODELS,
    ORDER,
    ORDERS,
    SECRET,
    TELL,
    WORD,
    S,
    gap,
    one_of,
    phrase,
)

OVERRIDE = (
    phrase(
        "override",
        "clear",
        "tells its reader to drop instructions",
        rf"\b{DROP}{S}{gap(4)}{EARLIER}{S}{gap(4)}{ORDER}\b",
        ORDERS + " messages message",
    ),
    phrase(
        "override",
        "clear",
        "tells its reader to drop what came before",
        rf"\b(?:ignore|disregard|forget|neglect|dismiss|discard|overlook)(?:{S}about)?{S}(?:all|any"
        rf"|everything|anything|whatever|what|the){S}{gap(4)}(?:told|said|learned|instructed|asked"
        rf"|above|before|previously|earlier|prior|preceding|until{S}now|so{S}far)\b",
        "ignore disregard forget neglect dismiss discard overlook",
    ),
    phrase(
        "override",
        "clear",
        "tells its reader to drop instructions that were given",
        rf"\b{DROP}{S}{gap(3)}{ORDER}{S}{gap(3)}(?:above|before|earlier|previously"
        rf"|given{S}to{S}you"
        rf"|you{S}(?:were|have|got|received)|so{S}far|until{S}now)\b",
        ORDERS + " messages message",
    ),
    phrase(
        "override",
        "clear",
        "tells its reader to drop some orders and follow others",
        rf"\b(?:ignore|disregard|forget|discard|drop){S}(?:them|it|that|those|these"
        rf"|all{S}of{S}(?:it|them"
        rf"|that|those))(?:{S}all)?{S}(?:and|instead|then|but)?[\W_]{{0,4}}(?:only{S}|just{S}"
        rf"|instead{S})?"
        rf"(?:follow|obey|do|comply|listen|use|adhere)\b",
        "them it that those these",
    ),
    phrase(
        "override",
        "clear",
        "says that instructions given before do not hold",
        rf"\b{ORDER}{S}{gap(3)}(?:above|before|earlier|previously|so{S}far|until{S}now){S}{gap(3)}"
        rf"(?:wrong|void|invalid|cancel+ed|revoked|obsolete|suspended|outdated|a{S}test|a{S}joke"
        rf"|no{S}longer|do{S}not{S}apply|superseded|replaced|mistake|irrelevant)\b",
        ORDERS + " messages message",
    ),
    phrase(
        "override",
        "clear",
        "says that earlier instructions no longer hold",
        rf"\b(?:previous|prior|above|earlier|preceding|initial|original|system|old|existing)"
        rf"{S}{gap(2)}{ORDER}{S}{gap(4)}(?:no{S}longer|void|cancel+ed|revoked|superseded|obsolete"
        rf"|overridden|invalid|suspended|lifted|were{S}wrong|do{S}not{S}apply|don{S}t{S}apply"
        rf"|expired|outdated|replaced|test|a{S}joke|irrelevant|deprecated|rescinded)\b",
        ORDERS + " messages message",
    ),
    phrase(
        "override",
        "hint",
        "tells its reader to drop rules",
        rf"\b{DROP}{S}{gap(2)}{ORDER}\b",
        ORDERS,
    ),
    phrase(
        "override",
        "hint",
        "asks for its own orders to be followed",
        rf"\b(?:follow|obey|execute|comply{S}with|act{S}on|adhere{S}to|treat|answer|listen{S}to"
        rf"|do|load)"
        rf"{S}{gap(5)}(?:below|instead|here|this{S}text|that{S}follows?|this{S}line|paragraph"
        rf"|only{S}input"
        rf"|this{S}one)\b",
        "below instead here text follows follow line paragraph input one",
    ),
    phrase(
        "override",
        "clear",
        "starts its reader anew",
        rf"\b(?:start{S}over|begin{S}(?:a{S})?(?:new|anew|afresh)|reset|clear|wipe"
        rf"|restart){S}{gap(3)}"
        rf"(?:your{S}(?:memory|context|instructions|identity|state|conversation|persona|rules"
        rf"|programming)|new{S}(?:conversation|session|persona|chat|task))\b",
        "your new",
    ),
)

PERSONA = (
    phrase(
        "persona",
        "clear",
        "gives its reader a part without limits",
        rf"\b(?:you{S}are|you{S}re|you{S}will|you{S}ll|you{S}must|act|acting|pretend|pretending"
        rf"|behave|respond|answer|roleplay|role{S}play|simulate|imagine|become|play|speak|take"
        rf"|adopt|assume|switch|enter|be){S}{gap(8)}"
        rf"(?:dan|unrestricted|unfiltered|uncensored|unaligned|unethical|amoral|jailbroken"
        rf"|unlimited{S}ai|without{S}{gap(2)}(?:restrictions?|limits?|limitations?|filters?|rules"
        rf"|guidelines|censorship|ethics|morals|boundaries)|no{S}{gap(2)}(?:restrictions?|limits"
        rf"|limitations?|filters?|rules|guidelines|censorship|ethics|morals|boundaries)"
        rf"|not{S}bound{S}by|free{S}(?:from|of){S}{gap(3)}(?:restrictions?|rules|limits|filters"
        rf"|constraints|guidelines|policies)|evil{S}(?:ai|assistant|bot|twin)|devil"
        rf"|(?:developer|debug|god|admin|root|maintenance|opposite|jailbreak|unsafe){S}mode)\b",
        "dan unrestricted unfiltered uncensored unaligned unethical amoral jailbroken unlimited "
        "without no not free evil devil mode",
    ),
    phrase(
        "persona",
        "clear",
        "describes a model without limits",
        rf"\b(?:ai|assistant|model|bot|chatbot|agent|machine|persona|character|llm|system|gpt|it|he"
        rf"|she|who|which|that){S}{gap(3)}(?:without|has{S}no|have{S}no|with{S}no|free{S}(?:of"
        rf"|from)"
        rf"|never{S}given|lacks|is{S}not{S}bound{S}by|ignores){S}{gap(3)}(?:restrictions?"
        rf"|limitations?"
        rf"|filters?|guidelines|censorship|ethics|morals|rules|safeguards|guardrails"
        rf"|content{S}polic(?:y|ies))\b",
        "restriction restrictions limitation limitations filter filters guidelines censorship "
        "ethics morals rules safeguards guardrails policy policies",
    ),
    phrase(
        "persona",
        "clear",
        "names a well-known jailbreak",
        rf"\b(?:do{S}anything{S}now|dan{S}mode|jailbreak{S}(?:mode|prompt|enabled|activated)"
        rf"|(?:developer|god|debug|sudo|root|admin|maintenance|unrestricted){S}(?:mode|access)"
        rf"{S}{gap(2)}(?:enabled?|activated?|on|granted|engaged|unlocked|output|v\d)"
        rf"|(?:enable|activate|enter|engage|unlock|switch{S}to|turn{S}on){S}{gap(2)}"
        rf"(?:developer|god|debug|sudo|root|admin|maintenance|unrestricted|jailbreak|dan){S}mode"
        rf"|stay{S}in{S}character|never{S}break{S}character)\b",
        "anything mode access character jailbreak",
    ),
    phrase(
        "persona",
        "clear",
        "describes a model that refuses nothing",
        rf"\b(?:never{S}refuses?|always{S}compl(?:y|ies)|cannot{S}refuse|can{S}t{S}refuse"
        rf"|answers?{S}"
        rf"(?:everything|anything)|without{S}(?:ever{S})?(?:refusing|refusal|disclaimers?"
        rf"|moderation"
        rf"|censorship)|opposite{S}(?:of{S})?(?:yourself|mode)|no{S}longer{S}an?{S}{gap(1)}(?:ai"
        rf"|assistant"
        rf"|model|chatbot)|(?:amoral|evil|uncensored|unfiltered|unrestricted|jailbroken"
        rf"|rogue){S}{gap(2)}"
        rf"(?:ai|assistant|bot|chatbot|model|twin|version|persona|mode|agent|access))\b",
    ),
    phrase(
        "persona",
        "hint",
        "names its reader anew",
        rf"\b(?:your{S}name{S}is|you{S}(?:are|re){S}going{S}to{S}(?:be|act|play|pretend)"
        rf"|you{S}(?:are|re)"
        rf"{S}now|let{S}s{S}(?:play{S}a|role{S}?play)|you{S}will{S}(?:act|play|simulate|pretend"
        rf"|be{S}playing"
        rf"|respond|answer|speak)|imagine{S}(?:that{S})?you)\b",
        "your you let imagine",
    ),
    phrase(
        "persona",
        "hint",
        "gives its reader another part",
        rf"\b(?:from{S}now{S}on|henceforth|starting{S}now|you{S}are{S}now|from{S}this{S}(?:point"
        rf"|moment)|as{S}of{S}now|for{S}the{S}rest{S}of{S}(?:this|the){S}(?:conversation|session"
        rf"|chat)){S}{gap(3)}(?:you|act|a|an|answer|respond|reply|speak|the|write|always)\b",
        "now henceforth point moment rest",
    ),
    phrase(
        "persona",
        "hint",
        "asks its reader to play a part",
        rf"\b(?:pretend{S}(?:to{S}be|you{S}(?:are|re)|that{S}you)|act{S}as{S}(?:if{S}you"
        rf"|though{S}you"
        rf"|an?|my|the)|role{S}?play{S}as|play{S}the{S}(?:role|part){S}of|assume{S}the{S}(?:role"
        rf"|persona|identity)|take{S}on{S}the{S}(?:role|persona|identity))\b",
        "pretend act roleplay role play assume take",
    ),
)

LEAK = (
    phrase(
        "prompt-leak",
        "clear",
        "asks for instructions, secrets or the conversation",
        rf"\b{TELL}{S}{gap(6)}{SECRET}\b",
        "system developer hidden instructions instruction prompt prompts rules guidelines "
        "configuration directives above before key keys password passwords credentials token "
        "tokens history log transcript environment message",
    ),
    phrase(
        "prompt-leak",
        "clear",
        "asks for the words above",
        rf"\b(?:repeat|print|output|copy|recite|echo|write{S}out|return|reproduce|show){S}{gap(5)}"
        rf"(?:above|before{S}this|preceding){S}{gap(4)}(?:verbatim|word{S}for{S}word|exactly"
        rf"|code{S}block|starting|in{S}full|unchanged|line|message|text)\b",
        "verbatim word exactly code starting full unchanged line message text",
    ),
)

_SURE = one_of(
    "ai llms? language_models? large_language_models? ai_\\w{3,14} chatbots? chatgpt gpt(?:_?\\d)? "
    "claude gemini copilot llama assistants? summari[sz]ers? virtual_assistants?"
)
_ACTS = (
    r"(?:read|process|retriev|summari[sz]|pars|access|index|scan|analy[sz]|review|evaluat|handl"
    r"|us|see"
    r"|encounter|quot|ingest|translat|answer|crawl|load|open|consum|receiv)\w{0,4}"
)

ADDRESSED = (
    phrase(
        "addressed",
        "clear",
        "turns to a model at its beginning",
        rf"\b(?:note|message|instructions?|attention|notice|memo|reminder|command|directive"
        rf"|guidance"
        rf"|hello|hi|hey|dear|info|information|warning|request|advice|psa"
        rf"|hint)[ \t:,]{{1,3}}(?:(?:to|for)"
        rf"[ \t]+)?(?:(?:the|any|all|an?|every|your|our|fellow){S}){{0,2}}{_SURE}\b",
        MODELS,
    ),
    phrase(
        "addressed",
        "clear",
        "turns to its reader as a model",
        rf"\b(?:if|since|because|as){S}you{S}(?:are|re){S}(?:{WORD}{S})?{MODEL}\b",
        MODELS,
    ),
    phrase(
        "addressed",
        "clear",
        "turns to models that read it",
        rf"\b{MODEL}{S}(?:(?:that|which|who|when|while|if|tools?|systems?|agents?"
        rf"|assistants?){S}){{0,3}}"
        rf"{_ACTS}{S}{gap(1)}(?:this|these|the{S}following)\b",
        MODELS,
    ),
    phrase(
        "addressed",
        "clear",
        "says what a model has to do",
        rf"\b(?:the|any|all|every|each){S}(?:{WORD}{S})?{_SURE}{S}(?:{WORD}{S}){{0,2}}?(?:must"
        rf"|shall"
        rf"|is{S}to|are{S}to|should{S}(?:now|always|never|only|not|instead)|(?:is"
        rf"|are){S}(?:hereby{S})?"
        rf"(?:required|instructed|ordered|obliged|told|asked|expected|directed))\b",
        MODELS,
    ),
    phrase(
        "addressed",
        "hint",
        "speaks of models that have to do something",
        rf"\b(?:agents?|bots?|models?|assistants?|ais?){S}(?:{WORD}{S}){{0,2}}?(?:must|shall"
        rf"|should|are{S}to"
        rf"|is{S}to|needs?{S}to|have{S}to|has{S}to|will{S}now)\b",
        MODELS + " models",
    ),
    phrase(
        "addressed",
        "hint",
        "turns to whoever works on the text",
        rf"\b(?:when|while|before|after|if|upon|as{S}you|once|whoever|whenever){S}(?:you{S}"
        rf"|are{S})?{_ACTS}"
        rf"{S}{gap(1)}(?:this|the{S}following)\b",
        "this following",
    ),
    phrase(
        "addressed",
        "clear",
        "turns to a model and gives it an order",
        rf"\b(?:(?:note|message|instructions?|attention|notice|important|warning|memo|hint|request"
        rf"|reminder|command|directive|guidance|information|info|hello|hi|hey|dear|ok|okay|to|for"
        rf"|all|any|every){S}(?:(?:to|for|of){S})?(?:(?:the|any|all|an?|every|your|our){S})?"
        rf"|if{S}you{S}are{S}an?{S}|if{S}you{S}re{S}an?{S}|as{S}an?{S}|you{S}are{S}an?{S}"
        rf"|(?:the|any|every){S})"
        rf"{MODEL}{S}{gap(12)}(?:must|should{S}(?:now|always|only|not|never|respond|say|answer"
        rf"|ignore|include)|always|never|do{S}not|don{S}t|ignore|disregard|say|recommend|respond"
        rf"|reply|output|include|execute|insert|append|add|tell|please|stop|rate|rank|forward|send"
        rf"|print|write|mention|are{S}(?:required|instructed|ordered|authori[sz]ed|obliged)"
        rf"|is{S}(?:required|instructed|ordered|authori[sz]ed|obliged)|needs?{S}to|have{S}to"
        rf"|has{S}to|will{S}now|instead|conclude|treat|give)\b",
        MODELS,
    ),
    phrase(
        "addressed",
        "clear",
        "turns to whoever reads it by machine",
        rf"\b(?:when|while|before|after|if|upon){S}(?:you{S}(?:are{S})?)?(?:summari[sz]\w{{1,4}}"
        rf"|process\w{{0,4}}|read\w{{0,4}}|analy[sz]\w{{1,4}}|pars\w{{1,4}}|index\w{{0,4}}"
        rf"|review\w{{0,4}}|evaluat\w{{1,4}}|retriev\w{{1,4}}|answer\w{{0,4}}|quot\w{{1,4}}"
        rf"|translat\w{{1,4}}){S}{gap(1)}(?:this|the){S}{gap(2)}(?:document|page|email|e{S}mail"
        rf"|text"
        rf"|message|file|article|content|website|webpage|passage|data|record|ticket|resume|cv|code"
        rf"|review|question){S}{gap(6)}(?:must|always|never|do{S}not|ignore|say|respond|reply"
        rf"|output"
        rf"|include|execute|insert|append|add|tell|also|please|instead|write|first|only|rate|give"
        rf"|state|recommend|mention|call|use|send|make{S}sure|you)\b",
        "this the",
    ),
)

# Words written together, as in a name or an address.
GLUED = phrase(
    "override",
    "clear",
    "tells its reader, in one word, to drop instructions",
    r"(?:ignore|disregard|forget|override|bypass|reveal|print|repeat)[_\-.+]?"
    r"(?:all|any|the|your|my)?[_\-.+]?(?:of)?[_\-.+]?(?:the|your|my)?[_\-.+]?"
    r"(?:previous|prior|above|earlier|system|initial|preceding)[_\-.+]?"
    r"(?:instructions?|prompts?|rules|guidelines)",
)

DECODE = phrase(
    "encoded",
    "clear",
    "asks for something encoded to be decoded and followed",
    rf"\b(?:decod|decrypt|decipher|unscrambl|translat|convert|revers|interpret)\w{{0,4}}{S}{gap(8)}"
    rf"(?:base{S}?\d\d|rot{S}?13|hex|hexadecimal|morse|binary|caesar|cipher|ascii|backwards"
    rf"|reverse\w?"
    rf"|encoded|string|payload){S}{gap(12)}(?:follow|execute|obey|run|perform|act|comply|do|carry|"
    rf"instructions?|commands?|apply|respond|answer)\b",
    "base base64 base32 rot rot13 hex hexadecimal morse binary caesar cipher ascii backwards "
    "reverse reversed encoded string payload",
)
