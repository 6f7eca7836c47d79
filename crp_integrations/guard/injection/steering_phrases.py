"""Phrases that dictate answers, claim authority or use tools; orders in other languages."""

from __future__ import annotations

from crp_integrations.guard.injection.records import WORD, Phrase, S, gap, phrase

STEERING = (
    phrase(
        "steering",
        "clear",
        "says what is to be answered when something is asked",
        rf"\b(?:if|when|whenever|every{S}time|any{S}time|each{S}time){S}{gap(5)}(?:asked|asks?"
        rf"|questioned"
        rf"|inquires?|enquires?|queries|requests?|wants{S}to{S}know|question{S}(?:is"
        rf"|about)){S}{gap(12)}"
        rf"(?:you{S}(?:must|should|will|shall|are{S}to)|always|(?:simply|just|only|then|please)"
        rf"{S}(?:say|answer|respond|reply|tell|state|claim|output)|respond{S}(?:with|that)"
        rf"|reply{S}(?:with|that)|answer{S}(?:with|that|only)|recommend{S}only|say{S}that"
        rf"|tell{S}(?:them"
        rf"|the{S}user|him|her)|claim{S}that|refuse{S}to|instead)\b",
        "asked ask asks questioned inquires enquires queries request requests wants question",
    ),
    phrase(
        "steering",
        "clear",
        "hides something from the user",
        rf"\b(?:do{S}not|don{S}t|never|without|avoid){S}(?:ever{S})?(?:mention(?:ing)?"
        rf"|reveal(?:ing)?"
        rf"|tell(?:ing)?|disclos(?:e|ing)|inform(?:ing)?|warn(?:ing)?|alert(?:ing)?|notify(?:ing)?"
        rf"|let(?:ting)?|show(?:ing)?|ask(?:ing)?){S}{gap(4)}(?:the{S}(?:user|human|reader"
        rf"|customer|"
        rf"operator|person)|users?|these{S}instructions?|this{S}(?:instruction|message|prompt|note"
        rf"|notice|request|action)|for{S}(?:confirmation|permission)|anyone|anybody)\b",
        "anyone anybody user human reader customer operator person users instructions "
        "instruction message prompt note notice request action confirmation permission",
    ),
    phrase(
        "steering",
        "clear",
        "puts itself above other sources",
        rf"\b(?:this|the{S}following|the{S}present){S}(?:document|passage|source|text|article|page"
        rf"|information|statement|answer|content|section|update|entry"
        rf"|chunk){S}{gap(3)}(?:overrides?"
        rf"|supersedes?|takes{S}(?:precedence|priority)|replaces{S}(?:all|any|every)"
        rf"|is{S}the{S}(?:only|"
        rf"sole|single|most){S}{gap(1)}(?:trusted|trustworthy|authoritative|reliable|correct|valid|"
        rf"relevant|official)|outranks|must{S}be{S}(?:trusted|cited|ranked|used|quoted"
        rf"|preferred))\b",
        "document passage source text article page information statement answer content section "
        "update entry chunk",
    ),
    phrase(
        "steering",
        "clear",
        "asks for a rank or a rating of its own",
        rf"\b(?:rank|rate|score|grade|place|put|prefer|prioriti[sz]e|list|select|choose|boost"
        rf"|recommend){S}{gap(2)}this{S}{gap(2)}(?:document|candidate|paper|resume|cv|product"
        rf"|item|page"
        rf"|result|applicant|passage|source|submission|essay|review|manuscript|website){S}{gap(6)}"
        rf"(?:first|highest|top|above|over|10|100|ten|best|maximum|perfect|positive(?:ly)?|strongly"
        rf"|regardless|a{S}\d|excellent|accept(?:ed)?|most)\b",
        "this",
    ),
    phrase(
        "steering",
        "clear",
        "dictates the answer",
        rf"\b(?:your|the){S}(?:next{S}|only{S}|final{S}|entire{S}|whole{S})?(?:answer|response"
        rf"|output|reply"
        rf"|summary|completion){S}(?:must|should|will|shall|has{S}to|needs{S}to"
        rf"|is{S}to){S}{gap(2)}(?:be"
        rf"|contain|begin|start|end|include|consist|say|state|mention|only|always|read)\b",
        "answer response output reply summary completion",
    ),
    phrase(
        "steering",
        "clear",
        "dictates the words of the answer",
        rf"\b(?:respond|reply|answer|output|say|print|write|return|state|begin|start|end|finish"
        rf"|conclude|sign{S}off){S}(?:(?:every|each|all|your|the|any|of|to|with|this|question"
        rf"|answer|answers"
        rf"|response|responses|reply|message|messages|output|user){S}){{0,4}}"
        rf"(?:only|nothing{S}(?:but|else|except)|exactly|solely|exclusively){S}{gap(2)}"
        rf"(?:with|the|in|that|by|this|yes|no|text|word|phrase|string)\b",
        "only nothing exactly solely exclusively",
    ),
    phrase(
        "steering",
        "clear",
        "dictates how every answer begins or ends",
        rf"\b(?:begin|start|end|finish|conclude|close|open|preface|prefix"
        rf"|sign){S}{gap(2)}(?:every|each|all"
        rf"|your|any){S}(?:{WORD}{S})?(?:repl(?:y|ies)|answers?|responses?|messages?|outputs?"
        rf"|summary"
        rf"|summaries|sentences?){S}{gap(1)}(?:with|by|on|saying)\b",
        "every each all your any",
    ),
    phrase(
        "steering",
        "hint",
        "dictates words",
        r"\b(?:instead|then|now|just|simply|please|must|always)[\W_]{1,6}(?:say|print|output"
        r"|respond|"
        r"reply|answer|write|state|recommend|tell|claim|insist|endorse|promote|repeat|pretend)\b",
        "say print output respond reply answer write state recommend tell claim insist endorse "
        "promote repeat pretend",
    ),
    phrase(
        "steering",
        "hint",
        "asks to be included or repeated",
        rf"\b(?:include|insert|append|add|put|embed|attach|mention|render|place|end|begin|start"
        rf"|finish"
        rf"|conclude|close){S}{gap(8)}(?:in|to|of|with|at|into|on){S}{gap(3)}(?:your|every|each){S}"
        rf"(?:\w{{1,12}}{S})?(?:answers?|responses?|replies|reply|outputs?|summary|summaries"
        rf"|messages?|sentences?)\b",
        "your every each",
    ),
)

AUTHORITY = (
    phrase(
        "authority",
        "clear",
        "gives new instructions",
        rf"\b(?:new|updated|revised|additional|real|actual|true|important|urgent|secret|hidden"
        rf"|critical"
        rf"|mandatory|special|further|latest|final|follow{S}these|correct){S}(?:{WORD}{S}){{0,1}}?"
        rf"(?:instructions?|directives?|system{S}prompt|orders?|objective|rules{S}of{S}engagement"
        rf"|mission|primary{S}goal|prompt|task|commands?)[ \t]{{0,3}}(?::|-{{1,3}} |=|\n)",
        "instructions instruction directive directives prompt order orders objective engagement "
        "mission goal task command commands",
    ),
    phrase(
        "authority",
        "clear",
        "gives its reader another task",
        rf"\byour{S}(?:new|real|actual|true|next|only|primary|main|sole|first|current|updated|top"
        rf"|highest|ultimate|secret){S}(?:{WORD}{S})?(?:task|goal|instructions?|objective|job"
        rf"|purpose"
        rf"|mission|role|directive|priority|name|identity|orders?|function|assignment){S}"
        rf"(?:{WORD}{S}){{0,3}}?(?:is|are|will|becomes?|shall)\b",
        "your",
    ),
    phrase(
        "authority",
        "clear",
        "speaks as the system or its maker",
        rf"(?:^|[\n\[(<{{*#=!\-|>])[ \t*#=_!\-]{{0,8}}(?:urgent{S}|important{S}"
        rf"|critical{S}|priority{S}"
        rf"|automated{S}|official{S})?(?:system|admin|administrator|security|developer|openai"
        rf"|anthropic"
        rf"|microsoft|google|maintenance|root|operator|supervisor|platform|moderator"
        rf"|it{S}department"
        rf"|compliance|policy)"
        rf"{S}(?:{WORD}{S})?(?:notice|alert|override|update|message|notification|command"
        rf"|instructions?"
        rf"|announcement|directive|prompt|note|order|mode|request|bulletin|interrupt)"
        rf"[\W_]{{0,3}}[:\])>\-\n*]",
        "notice alert override update message notification command instruction instructions "
        "announcement directive prompt note order mode request bulletin interrupt",
    ),
    phrase(
        "authority",
        "clear",
        "claims to override",
        rf"\b(?:priority|admin|administrator|system|security|policy|safety|operator|developer|root"
        rf"|emergency|executive|instruction|manual){S}override(?:{S}{gap(3)}(?:code|enabled"
        rf"|activated"
        rf"|engaged|accepted|in{S}effect|required|granted)|[ \t]{{0,3}}[:\]*!-])",
        "override",
    ),
    phrase(
        "authority",
        "clear",
        "claims that its own frame has ended",
        rf"(?:[-=#*\[<]{{2,}}|\[|<)[ \t]{{0,3}}(?:end|stop|close|finish|eof|begin|start)"
        rf"[ \t_]{{0,3}}(?:of{S}|the{S}|new{S}){{0,3}}(?:the{S}|retrieved{S}|user{S}|search{S}"
        rf"|provided{S}|reference{S}|system{S}"
        rf"|external{S}"
        rf"|trusted{S}|untrusted{S})?"
        rf"(?:document|context|instructions?|prompt|text|input|conversation|results?|data|file|"
        rf"article|passages?|quote|content|system|message|query|email|user|output|section"
        rf"|transcript"
        rf"|session|override|sources?)",
        "end stop close finish eof begin start",
    ),
    phrase(
        "authority",
        "clear",
        "claims a right to give orders",
        rf"\b(?:i{S}am|i{S}m|this{S}is|we{S}are|speaking{S}as|message{S}from|authori[sz]ed{S}by"
        rf"|on{S}"
        rf"behalf{S}of|approved{S}by|order{S}(?:from|of)){S}{gap(3)}(?:developer|creator"
        rf"|programmer|"
        rf"administrator|admin|system{S}owner|operator|openai|anthropic|your{S}(?:owner|maker|boss|"
        rf"supervisor|trainer)|red{S}team|security{S}team|safety{S}team"
        rf"|engineering{S}team){S}{gap(10)}"
        rf"(?:you{S}(?:must|should|can|may|will|are|have|need)|your|override|ignore|disable"
        rf"|need{S}you"
        rf"|want{S}you|order{S}you|authori[sz]e|allow|grant|permission|instruct)\b",
        "developer creator programmer administrator admin owner operator openai anthropic maker "
        "boss supervisor trainer team",
    ),
)

TOOLS = (
    phrase(
        "tool-call",
        "clear",
        "orders a tool to be used",
        rf"\b(?:call|use|invoke|run|execute|trigger|launch|activate|employ){S}{gap(2)}(?:tool"
        rf"|function|plugin"
        rf"|api|action|endpoint|[a-z]{{2,20}}_[a-z_]{{2,30}}|[a-z]{{2,20}}\(\)|shell|terminal"
        rf"|skill)"
        rf"{S}(?:named{S}|called{S})?{gap(8)}(?:delete|remove|transfer|send|grant|wire|pay"
        rf"|purchase|buy|"
        rf"passwords?|unlock|drop|forward|email|upload|disable|reset|refund|approve|invite|share|"
        rf"export|download|wipe|erase|cancel|book|withdraw|post|add|change|modify|all{S}files)\b",
        "call use invoke run execute trigger launch activate employ",
    ),
    phrase(
        "tool-call",
        "clear",
        "holds a call of a tool as a model writes it",
        r"</?(?:tool_call|function_calls?|invoke|tool_use|antml:\w{1,20}|tools?_code|tool_response"
        r"|tool_results?)\b[^>\n]{0,80}>|\[tool_calls\]|\baction input:[ \t]"
        r"|<\|(?:tool|python)[\w ]{0,20}\|>",
        "",
    ),
    phrase(
        "tool-call",
        "clear",
        "orders an act by a tool",
        rf"\b(?:transfer|send|wire|pay|grant|delete|remove|unlock|disable|forward|share|purchase"
        rf"|approve"
        rf"|reset|change|export|cancel|withdraw|upload|post|buy|book|email|read|wipe){S}{gap(9)}"
        rf"(?:using|with|through|via|by){S}(?:calling{S})?(?:your|the|its"
        rf"|an?){S}{gap(3)}(?:tools?|plugin|api"
        rf"|function|skill|shell|terminal|connector|integration|browser)\b",
        "tool tools plugin api function skill shell terminal connector integration browser",
    ),
    phrase(
        "tool-call",
        "hint",
        "holds a command that destroys or opens",
        r"\brm -r?f|\bdrop (?:table|database)\b|\bchmod (?:-r )?777|\|[ \t]{0,3}(?:ba|z)?sh\b"
        r"|/etc/(?:passwd|shadow)|\bdel /[fsq]|\bformat c:|\bdelete from \w",
        "rf drop chmod sh bash zsh etc del format delete",
    ),
    phrase(
        "tool-call",
        "hint",
        "orders a tool to be called",
        rf"\b(?:call|use|invoke|run|execute|trigger|launch|open|activate){S}(?:the|your|an?|this"
        rf"|function|tool)"
        rf"{S}{gap(3)}(?:tool|function|plugin|api|skill|terminal|shell|console|command"
        rf"|connector)\b",
        "tool function plugin api skill terminal shell console command connector",
    ),
    phrase(
        "tool-call",
        "clear",
        "orders a destructive command to be run",
        rf"\b(?:run|execute|exec|type|paste|enter|issue|eval){S}{gap(6)}(?:rm{S}rf"
        rf"|drop{S}(?:table|database)"
        rf"|curl{S}|wget{S}|sudo{S}|delete{S}from|format{S}c|os{S}system|powershell|chmod{S}"
        rf"|bash{S}c)",
        "rf drop curl wget sudo delete format os powershell chmod bash",
    ),
    phrase(
        "tool-call",
        "clear",
        "orders an act on somebody's account",
        rf"\b(?:transfer|send|wire|pay|grant|delete|remove|unlock|disable|forward|share|purchase"
        rf"|approve"
        rf"|reset|change|export|cancel|withdraw|deposit|order|schedule|add){S}{gap(9)}"
        rf"(?:on{S}(?:my|the{S}user{S}s?|their|his|her){S}behalf|without{S}(?:asking|confirmation|"
        rf"confirming|further{S}confirmation|(?:the{S})?user{S}s?{S}?(?:approval|consent"
        rf"|knowledge))"
        rf"|using{S}(?:your|the){S}{gap(2)}tools?|immediately{S}(?:and{S})?(?:do{S}not|without))\b",
        "behalf without using immediately",
    ),
)


_REASON = "tells its reader, in {}, to drop instructions"


def _latin(language: str, verbs: str, objects: str) -> Phrase:
    """Verb, up to six words, object; both are stems with what may follow them."""
    verb = "|".join(verbs.split())
    name = "|".join(objects.split())
    return phrase(
        "override",
        "clear",
        _REASON.format(language),
        rf"\b(?:{verb})\w{{0,6}}{S}{gap(6)}(?:{name})\w{{0,6}}\b",
    )


def _written(language: str, verbs: str, objects: str, *, before: bool = False) -> Phrase:
    """For scripts without blanks: up to twenty characters between the two."""
    verb, name = "|".join(verbs.split()), "|".join(objects.split())
    first, second = (name, verb) if before else (verb, name)
    return phrase(
        "override",
        "clear",
        _REASON.format(language),
        rf"(?:{first})[^\n。！？]{{0,20}}(?:{second})",
    )


# Verbs are imperatives and infinitives; German and Dutch put them first too.
LATIN: tuple[tuple[str, Phrase], ...] = (
    ("nweisung", _latin("German", "ignorier missacht vergiss vergess ubergeh uberspring "
                        "umgeh befolg verwirf", "anweisung")),
    ("regeln", _latin("German", "ignorier missacht vergiss vergess umgeh verwirf",
                      "(?:bisherig|vorherig|deine|alle)\\w{0,3}\\W(?:\\w{1,20}\\W)?regeln "
                      "systemprompt vorgaben")),
    ("vorgaben", _latin("German", "ignorier missacht vergiss vergess umgeh verwirf", "vorgaben")),
    ("instrucc", _latin("Spanish", "ignor olvid omit desatiend descart haz\\Wcaso "
                        "desobedec anul no\\Wsig", "instruccion")),
    ("instruco", _latin("Portuguese", "ignor desconsider esquec desobedec anul nao\\Wsig",
                        "instruco")),
    ("instruktion", _latin("a Germanic language", "ignorier ignorer ignorera vergiss glom "
                           "bortse glem se\\Wbort", "instruktion")),
    ("consignes", _latin("French", "ignor oubli neglig contourn meconna ne\\Wsuis ne\\Wtiens",
                         "consigne")),
    ("instructions", _latin("French", "ignorez oublie oubliez neglige negligez contourne "
                            "contournez ne\\Wtiens ne\\Wtenez ne\\Wsuis ne\\Wsuivez "
                            "faites\\Wabstraction "
                            "fais\\Wabstraction", "instruction")),
    ("istruzioni", _latin("Italian", "ignor dimentic trascur tralasci non\\Wsegui disattend",
                          "istruzion")),
    ("instructies", _latin("Dutch", "negeer vergeet sla omzeil", "instructie")),
    ("aanwijzingen", _latin("Dutch", "negeer vergeet omzeil", "aanwijzing")),
    ("instrukcj", _latin("Polish", "zignoruj ignoruj zapomnij pomin", "instrukcj")),
    ("polecenia", _latin("Polish", "zignoruj ignoruj zapomnij pomin", "poleceni")),
    ("pokyn", _latin("Czech or Slovak", "ignoruj zapomen zabudni", "pokyn")),
    ("instrucțiuni", _latin("Romanian", "ignor uita", "instructiun")),
    ("instructiuni", _latin("Romanian", "ignor uita", "instructiun")),
    ("instruksi", _latin("Indonesian", "abaikan lupakan", "instruksi")),
    ("perintah", _latin("Indonesian", "abaikan lupakan", "perintah")),
    ("talimat", phrase("override", "clear", _REASON.format("Turkish"),
                       rf"\btalimat\w{{0,12}}{S}{gap(4)}(?:yok{S}say|unut|gormezden|dikkate{S}alma"
                       rf"|goz{S}ardi)")),
    ("chi thi", _latin("Vietnamese", "bo\\Wqua quen", "chi\\Wthi huong\\Wdan")),
    ("huong dan", _latin("Vietnamese", "bo\\Wqua quen", "chi\\Wthi huong\\Wdan")),
)  # fmt: skip

# A letter of the script, and the phrases to try when the text holds one.
SCRIPTS: tuple[tuple[str, tuple[Phrase, ...]], ...] = (
    ("[\u0400-\u04ff]", (
        _latin("Russian", "игнорир проигнорир забуд отброс пренебре не\\Wследу обойди отмени",
               "инструкц указани правил приказ команд"),
        _latin("Ukrainian", "ігнору проігнору забуд", "інструкці вказівк правил"),
        _latin("Bulgarian", "игнорирай забрави", "инструкци указани"),
    )),
    ("[\u4e00-\u9fff]", (
        _written("Chinese", "忽略 忽视 忽視 无视 無視 忘记 忘記 忘掉 不要遵守 不要理会 抛开 绕过",
                 "指令 指示 说明 說明 提示词 提示 规则 規則 命令 要求 设定"),
        _written("Japanese", "無視 忘れ 従わない 破棄", "指示 命令 指令 ルール "
                 "[プフ]ロン[プフ]ト 規則",
                 before=True),
    )),
    ("[\u3040-\u30ff]", (
        _written("Japanese", "無視 忘れ 従わない 破棄", "指示 命令 指令 ルール "
                 "[プフ]ロン[プフ]ト 規則",
                 before=True),
    )),
    ("[\uac00-\ud7af\u1100-\u11ff]", (
        _written("Korean", "무시 잊어 잊으 따르지", "지시 명령 지침 규칙 프롬프트", before=True),
    )),
    ("[\u0600-\u06ff]", (
        _latin("Arabic", "تجاهل تجاهلي تجاهلوا انس تخط", "التعليمات "
               "تعليمات الاوامر الأوامر القواعد"),
        _latin("Persian", "نادیده دستورالعمل دستورات", "بگیر نادیده فراموش"),
    )),
    ("[\u0900-\u097f]", (
        _written("Hindi", "अनदेखा नज़रअंदाज नजरअंदाज भूल", "निर्देश आदेश नियम", before=True),
    )),
    ("[\u0590-\u05ff]", (
        _latin("Hebrew", "התעלם התעלמ שכח", "ההוראות הוראות הנחיות ההנחיות"),
    )),
    ("[\u0370-\u03ff]", (
        _latin("Greek", "αγνοησ ξεχασ παραβλεψ", "οδηγι εντολ κανον"),
    )),
)  # fmt: skip
