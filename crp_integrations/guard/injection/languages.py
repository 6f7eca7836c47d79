"""The phrase that drops instructions, in other languages; letters are without accents."""

from __future__ import annotations

from crp_integrations.guard.injection.phrases import Phrase, S, gap, phrase

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
