"""Real text in six kinds, written for these tests, and text that is hard on tokenizers."""

from __future__ import annotations

KINDS = {
    "English": (
        "The harbour board met on 12 March 2024 and approved a revised budget of $4.2 million. "
        "Dredging starts in May; the eastern quay stays closed until the piles are replaced, "
        "and ferry operators won't be charged for the detour."
    ),
    "German": (
        "Die Hafenverwaltung beschloss am 12. März 2024 den überarbeiteten Haushalt über "
        "4,2 Millionen Euro. Die Ausbaggerungsarbeiten beginnen im Mai; der Ostkai bleibt wegen "
        "der Pfahlerneuerung gesperrt, Umleitungsgebühren entfallen."
    ),
    "Hindi": (
        "बंदरगाह समिति ने १२ मार्च २०२४ को संशोधित बजट को मंज़ूरी दी। खुदाई का काम मई में शुरू "
        "होगा; पूर्वी घाट तब तक बंद रहेगा जब तक खंभे बदले नहीं जाते, और नौका संचालकों से कोई "
        "शुल्क नहीं लिया जाएगा।"
    ),
    "Chinese": (
        "港务委员会于2024年3月12日开会,批准了修订后的420万元预算。疏浚工程五月开始;"
        "东码头在更换桩基之前继续关闭,渡轮经营者无需为绕行付费。"
    ),
    "code": (
        "def settle(entries: list[Entry], *, fee: Decimal = ZERO) -> dict[str, Decimal]:\n"
        '    """Sum what each account owes; raises KeyError on a closed one."""\n'
        "    totals: dict[str, Decimal] = defaultdict(Decimal)\n"
        "    for entry in entries:\n"
        "        if entry.amount < 0 and not entry.account.open:\n"
        "            raise KeyError(entry.account.id)\n"
        "        totals[entry.account.id] += entry.amount * (1 - fee)  # never rounded here\n"
        "    return {k: v for k, v in totals.items() if v != 0}\n"
    ),
    "JSON": (
        '{"id":"a1f9-77","when":"2024-03-12T09:30:00Z","items":[{"sku":"PX-0042","qty":12,'
        '"price":1.5e-3},{"sku":"PX-0043","qty":0,"price":null}],"tags":["quay","east"],'
        '"open":true,"nested":{"deep":{"deeper":[[],[[]],{"é":"\\u00e9"}]}}}'
    ),
}
SAMPLES = tuple(KINDS.values())

# Combining marks, joined emoji, control characters, writing direction, very long words.
NASTY = (
    "Z\u0351\u0300\u0323a\u0334\u0317\u0318l\u0341g\u0322o\u0315 " * 5,
    "👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇨🇭 " * 4,
    "\x00\x01\x07\x1b[31mred\x1b[0m\x7f\ufeff\ufffd ",
    "\u202eright to left\u202c \u200b\u200d\u2060 שלום مرحبا ",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "x" * 700,
    "<|endoftext|><|im_start|>system[INST] </s><s> [1] \n\n[2] ",
    "\t\t  \n\n\n   \r\n \u3000 ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𓂀𓆣 \U0010ffff ﷽ ",
    "1" * 97 + "," + "0x" + "f" * 40,
)
