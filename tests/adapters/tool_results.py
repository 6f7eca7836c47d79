"""Ten kinds of tool results, what is asked of each, a right answer, and changes that make it wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

# Kind, question, result, answer, and pairs of a stretch and what is put in its place.
RESULTS: Final = [
    (
        "json",
        "What does the Blue tariff cost?",
        '{"tariff": "Blue", "price_eur_per_kwh": 0.31, "valid_until": "2026-06-30", "provider": "Nordstrom Energy"}',
        "The Blue tariff from Nordstrom Energy costs 0.31 EUR per kWh until 30 June 2026.",
        [("0.31", "0.37"), ("30 June", "30 July"), ("Nordstrom", "Sundström")],
    ),
    (
        "json list",
        "When do the trains leave?",
        '[{"train": "IC 412", "departs": "08:14", "platform": 3}, {"train": "RE 77", "departs": "08:41", "platform": 11}]',
        "IC 412 leaves at 08:14 from platform 3, and RE 77 leaves at 08:41 from platform 11.",
        [("08:14", "08:24"), ("platform 11", "platform 9"), ("RE 77", "RE 87")],
    ),
    (
        "table",
        "How much is in stock?",
        "| item | stock | supplier |\n|---|---|---|\n| bolts M8 | 130 | Hale Ltd |\n| nuts M8 | 75 | Corvin GmbH |",
        "There are 130 bolts M8 from Hale Ltd and 75 nuts M8 from Corvin GmbH in stock.",
        [("130", "75"), ("Corvin GmbH", "Marlow GmbH"), ("75 nuts", "85 nuts")],
    ),
    (
        "csv",
        "Who has the highest score?",
        "name,score,date\nAda Brown,91,2025-03-02\nTom Lind,87,2025-03-04",
        "Ada Brown has the highest score, 91, on 2 March 2025; Tom Lind has 87.",
        [("91", "93"), ("2 March", "12 March"), ("Tom Lind", "Tom Lund")],
    ),
    (
        "log",
        "Why did the job fail?",
        "2026-02-03T10:14:07Z INFO job 5512 started\n2026-02-03T10:15:44Z ERROR job 5512: disk /data full (98 %)\n2026-02-03T10:15:45Z INFO job 5512 stopped",
        "Job 5512 failed at 10:15:44 UTC on 3 February 2026 since the disk /data was full at 98 %.",
        [("98 %", "89 %"), ("3 February", "5 February"), ("5512", "5521")],
    ),
    (
        "prose",
        "How is the weather?",
        "The weather in Rome is sunny with 31 degrees and a light wind from the north-west.",
        "It's sunny in Rome with 31 degrees and a light wind from the north-west.",
        [("31", "71"), ("Rome", "Milan"), ("north-west", "south-east")],
    ),
    (
        "error",
        "What did the lookup say?",
        "Error 503: inventory service unavailable, retry after 30 seconds",
        "The inventory service was unavailable (error 503); it says to retry after 30 seconds.",
        [("503", "404"), ("30 seconds", "90 seconds"), ("inventory", "billing")],
    ),
    (
        "html",
        "What are the opening hours?",
        "<h1>Opening hours</h1><p>Monday to Friday 9:00 to 17:30, Saturday 10:00 to 14:00. Curator: Elsa Brandt.</p>",
        "It's open Monday to Friday from 9:00 to 17:30 and on Saturday from 10:00 to 14:00. The curator is Elsa Brandt.",
        [("17:30", "18:30"), ("Saturday", "Sunday"), ("Elsa Brandt", "Elsa Brenner")],
    ),
    (
        "key values",
        "What is the order's state?",
        "order: A-2231\nstate: shipped\ncarrier: Postline\neta: 14 May 2026\ntotal: 87.50 USD",
        "Order A-2231 was shipped with Postline, should arrive on 14 May 2026 and comes to 87.50 USD.",
        [("87.50", "78.50"), ("14 May", "24 May"), ("Postline", "Parcelway")],
    ),
    (
        "search",
        "Who founded the museum?",
        "1. The Tarn Museum was founded in 1911 by Ruth Calder. (tarn.example)\n2. Tarn Museum: tickets cost 8 pounds. (tickets.example)",
        "The Tarn Museum was founded in 1911 by Ruth Calder, and tickets cost 8 pounds.",
        [("1911", "1917"), ("Ruth Calder", "Ruth Colder"), ("8 pounds", "6 pounds")],
    ),
]
ATTRIBUTIONS: Final = (
    "",
    "According to the tool, ",
    "My helper says that ",
    "Based on the search results, ",
)
_SMALL: Final = ("The", "It's", "There")


def conversation(question: str, result: str) -> list[dict[str, Any]]:
    """The messages of an agent whose tool has answered, in the OpenAI form."""
    call = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def answers() -> Iterator[tuple[str, str, str, bool]]:
    """Question, result and answer of each case, and whether the answer is right."""
    for _, question, result, answer, changes in RESULTS:
        for attribution in ATTRIBUTIONS:
            said = answer
            if attribution and answer.split()[0] in _SMALL:
                said = answer[0].lower() + answer[1:]
            said = attribution + said
            yield question, result, said, True
            for old, new in changes:
                if old in said:
                    yield question, result, said.replace(old, new, 1), False
