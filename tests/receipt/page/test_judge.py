"""The page reads a judge's replies as the package does: in Node beside it, and in the browser."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.dpe.derivation import _own_personal_data
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.verdict import EXACT_ERRORS
from crp_integrations.dpe.judge.verdict import judged as by_package
from crp_integrations.dpe.pii.spans import is_repeated
from crp_integrations.dpe.records import REJECTED, Claim, Evidence, Finding, Report
from crp_integrations.dpe.report_parts import JudgeExchange, JudgeRun, Quotation, UnreadPassage
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.language.folded_text import Folded, locate
from crp_integrations.receipt.page import judge_constants
from crp_integrations.receipt.records import Receipt, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.relay.storeless_functions import examine
from crp_integrations.vocabulary import Checked, ClaimStatus, ClaimType, ErrorKind, GroundingMode
from tests.receipt.judging import judged, lenient, misquoting, nonsense, right
from tests.receipt.page.conftest import Open
from tests.receipt.relayed import changed
from tests.relay.judges import MEASURED

NODE = shutil.which("node") or ""
LABEL = "Statuses and level"
ID = "0123456789abcdef"
# By hand, for many more cases and others: CRP_JUDGE_CASES=20 CRP_JUDGE_SEED=7.
MORE = int(os.environ.get("CRP_JUDGE_CASES", "1"))
SEED = int(os.environ.get("CRP_JUDGE_SEED", "29"))

# --- the same of both --------------------------------------------------------------------------

PASSAGES = (
    "The dam is 4.2 metres high; it was “finished” on 3 May 2019 — not before. Cost: $1,250.50.",
    "Die Straße nach İzmir ist 12 km lang. ΣΊΣΥΦΟΣ pushed it. Pressure is 2\u00a0½ bar (2²=4).",
    "東京タワーは333メートルです。The ﬁrst oﬃce opened 1998–2003, `run --fast` is **required**.",
    "😀 Kärcher's pump №7 delivers ٣٤ litres; ʼn ǰ ᾳ ı Ꭰ ꭰ ①❷ 𝟗𝟗 x.5 a\u00adb soft\u200bwrap \\d.",
    (
        "It fell to -5 °C (−2.5 to +3), i.e. 10⁻³ m², x^2, 3×4*2, 5½ or 1/2 l; 1,5 bar; 1.250,50 €; -$20;"
        " 1'000'000 and ٫5٫2; .5; 12,1,3; §2.1.3; v1.2-3; 2:30; ²H; 6\"; a|1,250|2,5|."
    ),
    (
        "Hai mươi hai ngày, không hề. Bốn nghìn; Nguyê\u0303n Văn. विकास की हाँ, भारत में ५० लोग। กำลังการผลิต 40 ตัน"
        " ที่น้ำตก. 三百二十五人, 十二月。 한국어 \u1112\u1161\u11ab. GROẞE Cafe\u0301 café ｶﾞ が \u304b\u3099 \u00a8 \u00b4a."
    ),
)
QUESTION = "How high is the dam, which costs $1,250.50?"
SYSTEM = "You are kind. The office opens at 9 a.m. and not on 1 May."
SAID = "My street is 12 km long."
ANSWER = (
    "The dam is 4.2 m high. It was finished on 3 May 2019. Die STRASSE nach İzmir ist 12 km lang.\n"
    "東京タワーは333メートルです。Kärcher’s pump №7 delivers ٣٤ litres 😀. The office opened 1998. "
    "Ask again! And it is blue, they say. It fell to -5 °C and 10⁻³ m². Bốn nghìn người; แรก, 十二月 blue."
)
CLAIMS = (
    ("The dam is 4.2 m high.", ClaimType.FACTUAL),
    ("It was finished on 3 May 2019.", ClaimType.FACTUAL),
    ("Die STRASSE nach İzmir ist 12 km lang.", ClaimType.PROCEDURAL),
    ("東京タワーは333メートルです。", ClaimType.FACTUAL),
    ("Kärcher’s pump №7 delivers ٣٤ litres 😀.", ClaimType.OPINION),
    ("The office opened 1998.", ClaimType.FACTUAL),
    ("Ask again!", ClaimType.META),
)
STATUSES = (
    "SUPPORTED", "SUPPORTED", "CONTRADICTED", "UNSUPPORTED", "NOT_CHECKABLE", "supported",
    " not checkable ", "Not_Checked", "TRUE", 7, None,
)  # fmt: skip
KINDS = ("NUMBER", "INVENTION", "overreach", "DATE", "WRONG", None, 3)
PLACES = ("1", "2", "3", "4", "5", "6", 1, 2.0, " [3] ", "passage 4", "Passage #2", "q", "Q", "s", "system",
          "question", "0", "9", "٢", "99999999999999", "constructor", "", True, None, ["1"], 1.5,
          "0" * 18 + "1 ", " " * 20 + "1", "[#4]", 2e30)  # fmt: skip
SIGNS = (
    *"0123456789122255aAbİıßẞſςΣ.,.,;:…!? \u00a0\n-−–+'’\"*^`|%°$€()[]/½¼²³⁻⁴①٣٫٬·十二万人タｶガがのที่กำहाँि한ềễ한",
    "\u0300",
    "\u0301",
    "\u0303",
    "\u3099",
    "ﾞ",
    "\u1161",
    "\u11ab",
    "\u200b",
    "\u00ad",
    "\ufeff",
    "ﬁ",
    "№",
    "®",
    "¨",
    "´",
    "𝟗",
    "😀",
    "\U00011066",
    "1,5",
    "1,250",
    "x.5",
    "...",
    " 2",
    "-5",
    "m²",
    "๒",
    "๓",
    "၂",
    "㏂",
    "⒉",
)
SETTING = (
    "pro-\nvision", "pro- vision", "Jean-\nPaul", "a-\r\n b", "short- and", "\u2027", "x\u00ad\ny", "é-\nß", "𝐚-\n𝐛",
    "R&amp;D", "&#39;", "&#x41;", "&nbsp;", "&nope;", "&#0;", "&frac12;", "$4.2\\,\\text{million}$", "$12$", "$5 ",
    "\\%", "\\$", "\\mathrm{kg {x} y}", "4{,}200", "{", "}", "\\times ", "^{\\circ}", "^\\circ", "\\quad", "\\",
    "DE89 3704 0044 0532 0130 00", "GB29 NWBK 6016 1331 9268 19", "+49 30 1234567", "2021,310", " ", "\n", "-", "a", "B",
    "2", ",", "$", "😀",
)  # fmt: skip
FIGURES = (
    *"122255.,.,'*^ ", "-", "-$2", "½", "5½", "²", "1,250", "1.5,2", "3*4", "12", "é", "e\u0301", "a",
)  # fmt: skip
SWAPS = (
    ("-", "—"), ("'", "’"), ('"', "“"), (" ", "\u00a0 "), (" ", "\n"), ("ss", "ß"), ("fi", "ﬁ"),
    ("1", "１"), ("a", "A"), (" ", " ... "), (" ", " … "), (".", ""), ("m", "**m**"), ("e", "e\u200b"),
    ("2", "3"), ("i", "ı"), ("o", "0"), (" ", "\x1f"), ("-\n", ""), ("-\n", "-"), ("- ", ""), ("&amp;", "&"), ("\\,", " "), (" ", "\ufeff"), ("-", ""), ("−", "-"), ("²", "2"),
    ("½", " 1/2"), ("½", "1/2"), ("⁻", ""), (",", "."), (".", ","), ("ê\u0303", "ễ"), ("é", "e\u0301"), ("ầ", "a"),
    ("\u0303", ""), ("्", ""), ("न", ""), ("'", ""), ("*", ""), ("^", "**"), ("$", ""), ("5", "５"), ("°", " °"),
    ("*", '"'), ("5½", "5 1/2"), ("½", "²"), ("2", "²"),
)  # fmt: skip


def words(chance: random.Random, text: str = "") -> Any:
    """Words of a text, mostly as they stand there, or otherwise."""
    if chance.random() < 0.04:
        return chance.choice([None, 5, "", "…", "!!", "\ud800", "x" * 1200, ["a"]])
    text = text or chance.choice([*PASSAGES, QUESTION, SYSTEM, SAID, ANSWER, ANSWER])
    if len(text) > 2 and chance.random() < 0.06:
        return chance.choice([" … ", "...", "…"]).join(
            text[start : start + chance.choice([3, 8, 15])]
            for start in sorted(chance.sample(range(len(text)), chance.choice([2, 2, 3])))
        )
    start = chance.randrange(len(text))
    if chance.random() < 0.85:
        start = max(text.rfind(" ", 0, start) + 1, 0)
    end = start + chance.choice([1, 2, 5, 9, 14, 25, 40])
    if chance.random() < 0.85:
        at = text.find(" ", end)
        end = at if at >= 0 else len(text)
    return turned(chance, text[start:end])


def turned(chance: random.Random, found: str) -> str:
    """Words that are written otherwise, or not."""
    for old, new in chance.sample(SWAPS, chance.choice([0, 0, 0, 1, 2])):
        found = found.replace(old, new, chance.choice([1, -1]))
    return chance.choice([found, found, found.upper(), found.swapcase(), f" “{found}”. "])


def repeats(chance: random.Random, name: str, start: int, end: int) -> tuple[Finding, ...]:
    """Now and then, that the claim repeats what a sub-agent's report rejected."""
    if chance.random() > 0.3:
        return ()
    if chance.random() < 0.7:
        number = chance.randrange(len(PASSAGES))
        begin = chance.randrange(20)
        place = Evidence(fact_id=f"f{number}", start=begin, end=begin + 6, score=1.0, engine="test")
        return (
            Finding(
                stage=4, kind=chance.choice(sorted(set(EXACT_ERRORS) - {REJECTED})), claim_id=name,
                start=start, end=chance.choice([end, min(end, start + 12)]),
                evidence=chance.choice([place, None]),
            ),
        )  # fmt: skip
    return (Finding(stage=3, kind=REJECTED, claim_id=name, start=start, end=end),)


def compared(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """What exact comparison leaves on a claim with a finding."""
    if not findings:
        return {}
    first = findings[0]
    found = first.evidence
    number = int(found.fact_id[1:]) if found else 0
    error = EXACT_ERRORS.get(first.kind, ErrorKind.INVENTION)
    invented = error is ErrorKind.INVENTION
    return {
        "status": ClaimStatus.UNSUPPORTED if invented else ClaimStatus.CONTRADICTED,
        "error": error,
        "wrong": (first.start, first.end),
        "quotations": (
            Quotation(
                fact_id=found.fact_id, passage=number + 1, start=found.start, end=found.end,
                text=PASSAGES[number][found.start : found.end],
            ),
        ) if found else (),
    }  # fmt: skip


def quote(chance: random.Random) -> dict[str, Any]:
    """A quotation, mostly of the text that it names."""
    place = chance.choice(PLACES)
    if chance.random() < 0.2:
        return {"in": place, "text": words(chance)}
    number = chance.randrange(len(PASSAGES))
    return {"in": str(number + 1), "text": words(chance, PASSAGES[number])}


def verdict(chance: random.Random) -> dict[str, Any]:
    status = chance.choice(STATUSES[:7] if chance.random() < 0.9 else STATUSES)
    found: dict[str, Any] = {"status": status, "kind": chance.choice(KINDS)}
    if chance.random() < 0.7:
        found["wrong"] = words(chance)
    many = chance.choice([0, 1, 1, 1, 1, 2]) if chance.random() < 0.98 else 14
    found["quotes"] = [quote(chance) for _ in range(many)]
    if chance.random() < 0.03:
        found["quotes"] = chance.choice([None, {}, "1", [3], [{"text": "dam"}]])
    return found


def reply(chance: random.Random, first: int, last: int) -> str:
    """What a judge may reply, as a text in some form or other."""
    claims: list[Any] = []
    for number in range(first, last + 1):
        if chance.random() < 0.92:
            told = chance.choice(
                [number, number, number, float(number), f"{number}", f" {number}\n"]
            )
            claims.append({"n": told, **verdict(chance)})
        if chance.random() < 0.08:
            claims.append({"n": number, **verdict(chance)})
    if chance.random() < 0.05:
        claims.append(
            chance.choice(
                [None, 3, {"n": "1"}, {"n": True, "status": "SUPPORTED"}, [], {"n": 10**30}]
            )
        )
    others = [
        {
            "text": chance.choice(
                ["it is blue", words(chance, ANSWER), words(chance, ANSWER[-90:]), words(chance)]
            ),
            **verdict(chance),
        }
        for _ in range(chance.choice([0, 0, 1, 2, 3]))
    ]
    whole: dict[str, Any] = {"id": ID, "claims": claims, "unnumbered": others}
    text = json.dumps(
        whole, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, None, 2])
    ).encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # fmt: skip
    if chance.random() < 0.15:
        # What stands twice, the same or otherwise.
        name = chance.choice(
            ['"status": ', '"kind": ', '"n": ', '"id": ', '"claims": ', '"quotes": ']
        )
        value = chance.choice(
            ['"SUPPORTED"', "true", "1", "1.0", "true", "2", "[]", '{"n": [1, {"a": 0}]}', "-0"]
        )
        text = text.replace(name, f"{name}{value}, {name}", chance.choice([1, 2, -1]))
    if chance.random() < 0.15:
        text = text.replace(
            " ", chance.choice(["\n", "\t", "\r\n", "  ", "\x01", "\\n"]), chance.choice([3, -1])
        )
    form = chance.randrange(18)
    if form == 0:
        return f'<think>It is {{odd}} [1] "{{" </think>\n```json\n{text}\n```\nDone {{}}.'
    if form == 1:
        return f"{text[: chance.randrange(len(text))]}"
    if form == 2:
        return json.dumps({**whole, "claims": []}) + text
    if form == 3:
        return text + json.dumps({"id": "f" * 16, "claims": []})
    if form == 4:
        return text.replace("{", '{"x": NaN, ', 1)
    if form == 5:
        other = json.dumps({"id": chance.choice([ID, "f" * 16]), "claims": claims[:2]})
        return chance.choice([
            f'{{"result": {text}}}',
            f'{{"b": {other}, "1": {text}}}',
            f'{{"a": {{"b": {text}}}}}',
            f'{{"verdicts": [{text}]}}',
            f'{{"x": 1, "y": {text}, "y": {other}}}',
        ])  # fmt: skip
    if form == 6:
        return text.replace(ID, "f" * 16)
    if form == 7:
        return "{" + text
    if form == 8:
        return '{"id"\x1f: "' + ID + '", "claims": [' + ",".join(map(json.dumps, claims)) + ", {"
    if form == 9:
        return text[: max(text.rfind(chance.choice(['"unnumbered"', '"n"', '"quotes"', "]"])), 0)]
    if form == 10:
        # Cut off, with a list of another kind in front of it.
        more = json.dumps({"claims": claims[:2], "id": ID, "unnumbered": []})
        return more[:-3] + chance.choice([", ", "", text])
    if form == 11:
        at = chance.randrange(len(text))
        return (
            text[:at]
            + chance.choice(['"', "\\", ",", "}", "]", "{", "0", "\\u12", "e5"])
            + text[at:]
        )
    return text


def case(chance: random.Random, report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the page is given, and what the package makes of the same."""
    claims, at = [], 0
    for number, (text, kind) in enumerate(CLAIMS, start=1):
        at = ANSWER.index(text, at)
        findings = repeats(chance, f"c{number}", at, at + len(text))
        claims.append(
            Claim(
                claim_id=f"c{number}",
                text=text,
                start=at,
                end=at + len(text),
                reads_as=text,
                sentence_index=0,
                claim_type=kind,
                specificity=0.5,
                checked=Checked.CHECKED,
                findings=findings,
                **compared(findings),
            )
        )
    mode = chance.choice(list(GroundingMode))
    dossier = Dossier(
        question=QUESTION,
        answer=ANSWER,
        passages=tuple((f"f{n}", text) for n, text in enumerate(PASSAGES)),
        grounding=mode,
        conversation=(("user", SAID), ("assistant", "The dam is 9 m high.")),
        instructions=SYSTEM,
    )
    parts: list[tuple[int, int, tuple[int, ...], bool]] = [
        (*part, (), False)
        for part in chance.choice([[(1, 7)], [(1, 7)], [(1, 4), (5, 7)], [(1, 7), (1, 7)]])
    ]
    if chance.random() < 0.3:
        parts.append(chance.choice([(2, 6, (2, 3, 6), True), (3, 5, (), True), (1, 7, (), True)]))
    calls = []
    for first, last, numbers, second in parts:
        shown = tuple(range(1, 7)) if chance.random() < 0.7 else (1, chance.choice([2, 3, 4]), 5, 6)
        error = "" if chance.random() < 0.95 else "ModelTimeout"
        calls.append(
            JudgeExchange(
                id=ID,
                first=first,
                last=last,
                claims=numbers,
                second=second,
                passages=shown,
                prompt_hash="",
                reply=reply(chance, first, last),
                error=error,
            )
        )
    left = (UnreadPassage(fact_id="f2", reason="label"),) if chance.random() < 0.15 else ()
    language = chance.choice(["en", "de", "fr", "es"])
    run = JudgeRun(
        model="m", calls=tuple(calls), passages=len(PASSAGES), left_out=left, language=language
    )
    given = {
        "told": {
            "calls": [
                {name: value for name, value in one.model_dump(mode="json").items() if value != []}
                for one in run.calls
            ],
            "left_out": [[one.fact_id, one.reason] for one in left],
            "passages": run.passages,
        },
        "said": {
            "answer": ANSWER, "question": f"{QUESTION}\n{SAID}", "system": SYSTEM,
            "passages": [{"id": name, "text": text} for name, text in dossier.passages], "grounding": mode.value,
            "replies": [one.reply for one in run.calls],
        },
        "claims": [
            {
                "id": one.claim_id, "start": one.start, "end": one.end,
                "type": one.claim_type.value, "sentence": one.sentence_index,
                "findings": [
                    {
                        "kind": f.kind, "start": f.start, "end": f.end,
                        "evidence": f.evidence.model_dump(mode="json") if f.evidence else None,
                    }
                    for f in one.findings
                ],
            }
            for one in claims
        ],
        "stakes": {
            "mode": mode.value, "answer": ANSWER, "highRisk": False,
            "personal": [
                {"start": one.start, "end": one.end}
                for one in _own_personal_data(report, dossier)
            ],
        },
        "language": language,
    }  # fmt: skip
    made = by_package(
        report.model_copy(update={"claims": tuple(claims), "flags": ()}),
        dossier,
        run,
        DpeSettings(),
    )
    wanted: dict[str, Any] = {"found": None, "level": None, "reasons": []}
    if made.checked_by != report.checked_by:
        wanted["found"] = [_told(one) for one in made.claims]
        wanted["level"] = {
            "level": made.risk_level.value,
            "score": None if made.risk_score is None else round(made.risk_score * 1_000_000),
            "verification": made.verification.value,
        }
        wanted["reasons"] = list(made.reasons)
    return given, wanted


def _told(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.claim_id,
        "start": claim.start,
        "end": claim.end,
        "type": claim.claim_type.value,
        "status": claim.status.value,
        "error": claim.error.value if claim.error else None,
        "wrong": list(claim.wrong) if claim.wrong else None,
        "quotations": [one.model_dump(exclude={"text"}) for one in claim.quotations],
        "disputed": claim.disputed,
    }


def by_page(folder: Path, given: list[dict[str, Any]]) -> list[Any]:
    """What the page's script makes of cases, in Node."""
    ours = files("crp_integrations.receipt.page")
    parts = [judge_constants()]
    parts += [ours.joinpath(name).read_text(encoding="utf-8") for name in ("bytes.js", "judge.js")]
    parts.append((Path(__file__).parent / "judge.js").read_text(encoding="utf-8"))
    script = folder / "judge.js"
    script.write_text("\n".join(parts), encoding="utf-8")
    lines = "".join(f"{json.dumps(one)}\n" for one in given)
    done = subprocess.run(
        [NODE, str(script)], input=lines, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(given)
    return found


@pytest.mark.skipif(not NODE, reason="no node here")
def test_random_replies_come_to_the_same_in_the_page(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    report = examine(ANSWER, list(PASSAGES), question=QUESTION)
    cases = [case(chance, report) for _ in range(600 * MORE)]
    for (given, wanted), made in zip(cases, by_page(tmp_path, [g for g, _ in cases]), strict=True):
        assert made == wanted, given
    statuses = [one["status"] for _, wanted in cases for one in wanted["found"] or ()]
    # Not all of one kind: the quotations are found in some and not in others.
    assert all(statuses.count(word) > 100 for word in STATUSES[1:5])
    assert sum(wanted["found"] is None for _, wanted in cases) > 10
    added = [one for _, w in cases for one in w["found"] or () if one["id"].startswith("u")]
    assert len(added) > 20
    assert any(one["end"] <= ANSWER.index(" And it is blue") for one in added)


def quoting(chance: random.Random) -> dict[str, Any]:
    """A text and a quotation of it: a stretch, cut anywhere, or signs put together at random."""
    text = chance.choice([*PASSAGES, ANSWER])
    if chance.random() < 0.5:
        signs = chance.choice([SIGNS, FIGURES, SETTING])
        text = "".join(chance.choices(signs, k=chance.choice([2, 3, 4, 6, 12, 20])))
    start = chance.randrange(len(text))
    quotation = turned(chance, text[start : start + chance.choice([1, 2, 3, 5, 8, 20])])
    if chance.random() < 0.1:
        quotation = words(chance, text)
    quotation = quotation if isinstance(quotation, str) else ""
    quotation = quotation.encode("utf-8", "replace").decode()
    spans = sorted(chance.sample(range(len(text) + 1), 2)) if chance.random() < 0.5 else []
    return {"text": turned(chance, text), "quotation": quotation, "spans": [spans] if spans else []}


@pytest.mark.skipif(not NODE, reason="no node here")
def test_random_quotations_stand_where_they_do_in_the_page(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    cases = [quoting(chance) for _ in range(5_000 * MORE)]
    stand = 0
    for given, made in zip(cases, by_page(tmp_path, cases), strict=True):
        outside = tuple((start, end) for start, end in given["spans"])
        wanted = locate(given["quotation"], Folded(given["text"]), outside)
        assert made == (list(wanted) if wanted else None), given
        stand += wanted is not None
    assert len(cases) / 10 < stand < len(cases) * 9 / 10


@pytest.mark.skipif(not NODE, reason="no node here")
def test_whose_personal_data_are_told_as_in_the_page(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    # A capital sigma is lowered by its neighbours, which no name of three letters needs.
    signs = [sign for sign in SIGNS if "Σ" not in sign] + list("  @ab12ann")
    cases = [
        {"datum": "".join(chance.choices(signs, k=chance.choice([1, 3, 6]))), "known": ""}
        for _ in range(1_000)
    ]
    for case in cases[::2]:
        parts = [case["datum"].upper(), *chance.choices(signs, k=4)]
        case["known"] = "".join(chance.sample(parts, k=chance.randrange(1, 6)))
    wanted = [is_repeated(case["datum"], case["known"]) for case in cases]
    assert by_page(tmp_path, cases) == wanted
    assert 100 < sum(wanted) < 900


# --- in a browser ------------------------------------------------------------------------------


def test_a_right_reply_is_read_again_and_shown(show: Open) -> None:
    receipt, _, answer = judged()
    opened = show(write(receipt))
    assert opened.state == "holds", opened.place
    assert (
        f"{LABEL} holds: statuses of 3 claims follow from the recorded replies, level HIGH"
        in opened.text
    )
    assert "Checked by judge any/judge: VERIFIED, score 0.570." in opened.text
    for reason in answer.report.reasons:
        assert reason in opened.text
    row = opened.script("return document.getElementById('row-2').textContent")
    assert "contradicted number" in row
    assert "passage 5: 412 megawatts" in row
    assert "Risk of hallucinationHIGH0.570" in opened.text


@pytest.mark.parametrize(
    ("says", "level", "words"),
    [
        (
            (misquoting,),
            "HIGH",
            "statuses of 3 claims follow from the recorded replies, level HIGH",
        ),
        ((lenient,), "LOW", "statuses of 3 claims follow from the recorded replies, level LOW"),
        ((nonsense,), "UNKNOWN", "no judge's reply decided the statuses, level UNKNOWN"),
        (
            (nonsense, right),
            "HIGH",
            "statuses of 3 claims follow from the recorded replies, level HIGH",
        ),
    ],
)
def test_replies_of_every_form_are_read(show: Open, says: Any, level: str, words: str) -> None:
    receipt, _, _ = judged(*says)
    opened = show(write(receipt))
    assert opened.state == "holds", opened.place
    assert words in opened.text
    assert receipt.content["report"]["risk_level"] == level


def test_a_judge_that_was_not_asked_is_told(show: Open) -> None:
    receipt, _, _ = judged(options={"judge_when": "sample:0"})
    opened = show(write(receipt))
    assert opened.state == "holds", opened.place
    assert f"{LABEL} holds: no judge's reply decided the statuses" in opened.text
    assert "Checked by exact comparison" in opened.text


def test_statuses_beside_the_composite_are_read_again(show: Open) -> None:
    receipt, _, _ = judged(lenient, opening={"dpe": MEASURED})
    opened = show(write(receipt))
    assert opened.state == "holds", opened.place
    assert f"{LABEL} holds: statuses of 3 claims follow from the recorded replies" in opened.text


def _claim(**new: Any) -> Any:
    return lambda content: content["report"]["claims"][1].update(new)


FORGED: dict[str, Any] = {
    "status": (_claim(status="SUPPORTED"), "claim 2: status is"),
    "error": (_claim(error="DATE"), "claim 2: error is"),
    "wrong": (_claim(wrong=[67, 79]), "claim 2: wrong is"),
    "quotation": (
        lambda content: content["report"]["claims"][1]["quotations"][0].update(start=3),
        "claim 2: quotations is",
    ),
    "level": (lambda content: content["report"].update(risk_level="LOW"), "level is HIGH"),
    "score": (lambda content: content["report"].update(risk_score=50_000), "score is 570000"),
    "verification": (
        lambda content: content["report"].update(verification="PARTIAL"), "verification is",
    ),
    "flagged": (lambda content: content["report"].update(flagged=False), "whether it is flagged"),
    "judge": (lambda content: content["report"].update(checked_by="judge b"), "judge b is signed"),
    "error told": (
        lambda content: content["examined"]["judged"]["calls"][0].update(error="Unreadable"),
        "reply 1 is told to be unreadable",
    ),
    "a claim less": (lambda content: content["report"]["claims"].pop(), "calls[0].id"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_a_signer_says_beside_the_reply_is_red(show: Open, name: str) -> None:
    change, words = FORGED[name]
    receipt, _, _ = judged()
    opened = show(write(changed(receipt, change)))
    assert opened.state == "differs"
    assert words in opened.place


@pytest.mark.parametrize(
    "change",
    [("CONTRADICTED", "SUPPORTED"), ("412 megawatts", "413 megawatts"), ("INVENTION", "OVERREACH")],
)
def test_another_reply_is_red(show: Open, change: tuple[str, str]) -> None:
    receipt, _, _ = judged()
    text = receipt.text(receipt.number("judge/1")) or ""
    opened = show(write(changed(receipt, texts={"judge/1": text.replace(*change)})))
    assert (opened.state, LABEL in opened.place) == ("differs", True)
    # Without a key, the text alone is not that of its leaf.
    opened = show(write(_with_text(receipt, text.replace(*change))))
    assert (opened.state, opened.place.startswith("Texts:")) == ("broken", True)


def _with_text(receipt: Receipt, text: str) -> Receipt:
    number = receipt.number("judge/1")
    shown: Any = receipt.texts[number]
    texts = (*receipt.texts[:number], shown._replace(text=text), *receipt.texts[number + 1 :])
    return replace(receipt, texts=texts)


def test_a_reply_that_is_not_here_is_told_and_not_taken_for_read(show: Open) -> None:
    receipt, _, _ = judged()
    opened = show(write(redact(receipt, names=["judge/1"])))
    assert opened.state == "not recomputed"
    assert "Contents not computed again" in opened.place
    assert f"{LABEL} not checked" in opened.text
    # What is signed of it is shown all the same.
    assert "contradicted" in opened.script("return document.getElementById('row-2').textContent")
