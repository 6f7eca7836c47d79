"""A language is named where it is sure, and never for names, code and short texts."""

from __future__ import annotations

import pytest

from crp_integrations.language.languages import differs, guess_language

ENGLISH = "The contract ends on 31 December and it will not be renewed by the landlord."
TEXTS = {
    "en": ENGLISH,
    "de": "Der Vertrag endet am 31. Dezember und wird von dem Vermieter nicht verlängert.",
    "fr": "Le contrat prend fin le 31 décembre et ne sera pas renouvelé par le bailleur.",
    "es": "El contrato termina el 31 de diciembre y no se renueva por el arrendador.",
    "it": "Il contratto termina il 31 dicembre e non sarà rinnovato dal locatore della casa.",
    "pt": "O contrato termina em 31 de dezembro e não será renovado pelo senhorio da casa.",
    "nl": "Het contract eindigt op 31 december en wordt niet door de verhuurder verlengd.",
    "pl": "Umowa kończy się 31 grudnia i nie zostanie przedłużona przez wynajmującego, który jest w domu.",
    "sv": "Avtalet upphör den 31 december och det kan inte förlängas av hyresvärden som är här.",
    "cs": "Smlouva končí 31. prosince a nebude prodloužena, protože se na to v ní nemyslí a je to tak.",
    "tr": "Sözleşme 31 Aralık günü sona erer ve ev sahibi tarafından bir yıl için daha uzatılmaz.",
    "ru": "Договор заканчивается 31 декабря и не будет продлён.",
    "uk": "Договір закінчується 31 грудня і не буде продовжений.",
    "el": "Η σύμβαση λήγει στις 31 Δεκεμβρίου.",
    "ar": "ينتهي العقد في 31 ديسمبر ولن يتم تجديده.",
    "he": "החוזה מסתיים ב-31 בדצמבר ולא יחודש.",
    "hi": "अनुबंध 31 दिसंबर को समाप्त होता है।",
    "ja": "契約は12月31日に終了し、更新されません。",
    "zh": "合同于12月31日到期，不再续签。",
    "ko": "계약은 12월 31일에 종료되며 갱신되지 않습니다.",
    "th": "สัญญาสิ้นสุดวันที่ 31 ธันวาคม",
}


@pytest.mark.parametrize("code", TEXTS)
def test_languages(code: str) -> None:
    assert guess_language(TEXTS[code]) == code
    assert differs(TEXTS[code], ENGLISH) == ("" if code == "en" else code)
    assert differs(ENGLISH, TEXTS[code]) == ("" if code == "en" else "en")
    assert differs(TEXTS[code], f"{ENGLISH}\n\n{TEXTS[code]}") == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "Acme Corp, Rue de la Paix, Paris",
        "Los Angeles and El Paso",
        "```python\nfor i in do: la = de\n```",
        "Mercedes-Benz S-Klasse AMG; Bundesamt für Sicherheit in der Informationstechnik (BSI)",
        "Renewal: 東京支店 by Ann",
    ],
)
def test_names_code_and_short_texts_are_unsure(text: str) -> None:
    assert guess_language(text) == ""
    assert differs(text, ENGLISH) == ""


SHORT = {
    "de": "Für Schüler gibt es die Karte um zwei Drittel günstiger.",
    "fr": "L'entrée est gratuite d'octobre à mars, jusqu'à la fermeture de l'aile nord.",
    "es": "Los niños pagan la mitad y los mayores de setenta años no pagan.",
    "it": "L'ultima corsa dell'autobus è alle undici, con un'ora di attesa.",
    "pl": "Wnuki wchodzą bezpłatnie, dorośli płacą połowę.",
}


@pytest.mark.parametrize("code", SHORT)
def test_a_short_answer_is_far_from_the_evidences_language_though_near_a_kin(code: str) -> None:
    assert differs(SHORT[code], ENGLISH) == code
    assert differs(SHORT[code], f"{ENGLISH}\n{TEXTS[code]}") == ""
    # Italian beside Spanish is no other language until it is clearly ahead.
    assert differs(SHORT[code], SHORT[code]) == ""


@pytest.mark.parametrize(
    "data",
    [
        '{"order": "T-5", "items": [{"sku": "L-2", "qty": 2, "price_eur": 34.5}], "state": "sent"}\n'
        * 6,
        "| plant | built | output |\n|---|---|---|\n" + "| Norhaven | 1957 | 412 MW |\n" * 12,
        "02:14:03Z INFO pool size=20 in_use=6 waiting=0\n" * 12,
    ],
)
def test_a_paragraph_of_prose_speaks_for_data(data: str) -> None:
    assert differs(TEXTS["de"], data) == ""
    assert differs(TEXTS["de"], data + ENGLISH) == "de"
    assert differs(ENGLISH, data + ENGLISH) == ""


@pytest.mark.parametrize(
    "text",
    [
        "A-882  web-2 /orders 503  02:33:30Z  k.ilves (mail)  -  02:41:00Z  auto-resolved",
        "It's by a guy named W.H.S. Koerner, a.k.a. O. I. Zed, and I'm v1.0-ready.",
        "Łódź, Gdańsk, Kraków, Poznań, Köln, München, Göteborg, São Paulo, Besançon",
        "In 2018 one of Willem Dafoe's roles was portraying Vincent van Gogh.",
        "In Through the Out Door was made in 2 months.",
    ],
)
def test_codes_initials_and_names_are_words_of_no_other_language(text: str) -> None:
    assert guess_language(text) in ("", "en")
    assert differs(ENGLISH, f"{text}\n{text}") == ""
    assert differs(text, ENGLISH) == ""


def test_one_long_word_is_read_in_time_that_grows_with_its_length() -> None:
    assert guess_language("x" * 1_000_000 + "@") == ""
    assert guess_language("Write to anna.der.die.das@example.org und.nicht@example.org") == ""
