"""The page reads a judge's replies as the package does: in Node beside it, and in the browser."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge.records import JudgeExchange, JudgeRun, LeftOut
from crp_integrations.dpe.judge.verdict import judged as by_package
from crp_integrations.dpe.records import Claim, Report
from crp_integrations.receipt.page.judging import constants
from crp_integrations.receipt.records import Receipt, write
from crp_integrations.receipt.redact import redact
from crp_integrations.relay.doors import examine
from crp_integrations.vocabulary import Checked, ClaimType, GroundingMode
from tests.receipt.judging import judged, lenient, misquoting, nonsense, right
from tests.receipt.page.conftest import Open
from tests.receipt.relayed import changed

NODE = shutil.which("node") or ""
LABEL = "Statuses and level"
ID = "0123456789abcdef"

# --- the same of both --------------------------------------------------------------------------

PASSAGES = (
    "The dam is 4.2 metres high; it was “finished” on 3 May 2019 — not before. Cost: $1,250.50.",
    "Die Straße nach İzmir ist 12 km lang. ΣΊΣΥΦΟΣ pushed it. Pressure is 2\u00a0½ bar (2²=4).",
    "東京タワーは333メートルです。The ﬁrst oﬃce opened 1998–2003, `run --fast` is **required**.",
    "😀 Kärcher's pump №7 delivers ٣٤ litres; ʼn ǰ ᾳ ı Ꭰ ꭰ ①❷ 𝟗𝟗 x.5 a\u00adb soft\u200bwrap \\d.",
)
QUESTION = "How high is the dam, which costs $1,250.50?"
SYSTEM = "You are kind. The office opens at 9 a.m. and not on 1 May."
SAID = "My street is 12 km long."
ANSWER = (
    "The dam is 4.2 m high. It was finished on 3 May 2019. Die STRASSE nach İzmir ist 12 km lang.\n"
    "東京タワーは333メートルです。Kärcher’s pump №7 delivers ٣٤ litres 😀. The office opened 1998. "
    "Ask again! And it is blue, they say."
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
PLACES = ("1", "2", "3", "4", 1, 2.0, " [3] ", "passage 4", "Passage #2", "q", "Q", "s", "system",
          "question", "0", "9", "٢", "99999999999999", "constructor", "", True, None, ["1"], 1.5)  # fmt: skip
SWAPS = (
    ("-", "—"), ("'", "’"), ('"', "“"), (" ", "\u00a0 "), (" ", "\n"), ("ss", "ß"), ("fi", "ﬁ"),
    ("1", "１"), ("a", "A"), (" ", " ... "), (" ", " … "), (".", ""), ("m", "**m**"), ("e", "e\u200b"),
    ("2", "3"), ("i", "ı"), ("o", "0"), (" ", "\x1f"), (" ", "\ufeff"),
)  # fmt: skip


def words(chance: random.Random, text: str = "") -> Any:
    """Words of a text, mostly as they stand there, or otherwise."""
    if chance.random() < 0.04:
        return chance.choice([None, 5, "", "…", "!!", "\ud800", "x" * 1200, ["a"]])
    text = text or chance.choice([*PASSAGES, QUESTION, SYSTEM, SAID, ANSWER, ANSWER])
    start = chance.randrange(len(text))
    if chance.random() < 0.85:
        start = max(text.rfind(" ", 0, start) + 1, 0)
    end = start + chance.choice([1, 2, 5, 9, 14, 25, 40])
    if chance.random() < 0.85:
        at = text.find(" ", end)
        end = at if at >= 0 else len(text)
    found = text[start:end]
    for old, new in chance.sample(SWAPS, chance.choice([0, 0, 0, 1, 2])):
        found = found.replace(old, new, chance.choice([1, -1]))
    return chance.choice([found, found, found.upper(), found.swapcase(), f" “{found}”. "])


def quote(chance: random.Random) -> dict[str, Any]:
    """A quotation, mostly of the text that it names."""
    place = chance.choice(PLACES)
    if chance.random() < 0.2:
        return {"in": place, "text": words(chance)}
    number = chance.randrange(4)
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
            claims.append({"n": chance.choice([number, number, number, float(number)])}
                          | verdict(chance))  # fmt: skip
        if chance.random() < 0.08:
            claims.append({"n": number, **verdict(chance)})
    if chance.random() < 0.05:
        claims.append(chance.choice([None, 3, {"n": "1"}, {"n": True, "status": "SUPPORTED"}, []]))
    others = [
        {"text": words(chance, chance.choice([ANSWER, ""])), **verdict(chance)}
        for _ in range(chance.choice([0, 0, 1, 2]))
    ]
    whole: dict[str, Any] = {"id": ID, "claims": claims, "unnumbered": others}
    text = json.dumps(
        whole, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, None, 2])
    ).encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # fmt: skip
    form = chance.randrange(12)
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
        return f'{{"result": {text}}}'
    if form == 6:
        return text.replace(ID, "f" * 16)
    if form == 7:
        return "{" + text
    if form == 8:
        return '{"id"\x1f: "' + ID + '", "claims": [' + ",".join(map(json.dumps, claims)) + ", {"
    return text


def case(chance: random.Random, report: Report) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the page is given, and what the package makes of the same."""
    claims, at = [], 0
    for number, (text, kind) in enumerate(CLAIMS, start=1):
        at = ANSWER.index(text, at)
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
    parts = chance.choice([[(1, 7)], [(1, 7)], [(1, 4), (5, 7)], [(1, 7), (1, 7)]])
    calls = []
    for first, last in parts:
        shown = tuple(range(1, 5)) if chance.random() < 0.7 else (1, chance.choice([2, 3, 4]))
        error = "" if chance.random() < 0.95 else "ModelTimeout"
        calls.append(
            JudgeExchange(
                id=ID,
                first=first,
                last=last,
                passages=shown,
                prompt_hash="",
                reply=reply(chance, first, last),
                error=error,
            )
        )
    left = (LeftOut(fact_id="f2", reason="label"),) if chance.random() < 0.15 else ()
    language = chance.choice(["en", "de", "fr", "es"])
    run = JudgeRun(model="m", calls=tuple(calls), passages=4, left_out=left, language=language)
    given = {
        "told": {
            "calls": [one.model_dump(mode="json", exclude={"reply"}) for one in run.calls],
            "left_out": [[one.fact_id, one.reason] for one in left],
            "passages": run.passages,
        },
        "said": {
            "answer": ANSWER, "question": f"{QUESTION}\n{SAID}", "system": SYSTEM,
            "passages": [{"id": name, "text": text} for name, text in dossier.passages],
            "replies": [one.reply for one in run.calls],
        },
        "claims": [
            {"id": one.claim_id, "start": one.start, "end": one.end, "type": one.claim_type.value}
            for one in claims
        ],
        "mode": mode.value,
        "language": language,
    }  # fmt: skip
    made = by_package(
        report.model_copy(update={"claims": tuple(claims), "flags": ()}), dossier, run
    )
    wanted: dict[str, Any] = {"found": None, "level": None, "reasons": []}
    if made.checked_by != report.checked_by:
        wanted["found"] = [_told(one) for one in made.claims]
        wanted["level"] = {
            "level": made.risk_level.value,
            "score": round(made.risk_score * 1_000_000),
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
    }


@pytest.mark.skipif(not NODE, reason="no node here")
def test_random_replies_come_to_the_same_in_the_page(tmp_path: Path) -> None:
    chance = random.Random(29)
    report = examine(ANSWER, list(PASSAGES), question=QUESTION)
    cases = [case(chance, report) for _ in range(600)]
    ours = files("crp_integrations.receipt.page")
    parts = [constants()]
    parts += [ours.joinpath(name).read_text(encoding="utf-8") for name in ("bytes.js", "judge.js")]
    parts.append((Path(__file__).parent / "judge.js").read_text(encoding="utf-8"))
    script = tmp_path / "judge.js"
    script.write_text("\n".join(parts), encoding="utf-8")
    lines = "".join(f"{json.dumps(given)}\n" for given, _ in cases)
    done = subprocess.run(
        [NODE, str(script)], input=lines, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(cases)
    for (given, wanted), made in zip(cases, found, strict=True):
        assert made == wanted, given
    statuses = [one["status"] for _, wanted in cases for one in wanted["found"] or ()]
    # Not all of one kind: the quotations are found in some and not in others.
    assert all(statuses.count(word) > 100 for word in STATUSES[1:5])
    assert sum(wanted["found"] is None for _, wanted in cases) > 10
    assert sum(one["id"].startswith("u") for _, w in cases for one in w["found"] or ()) > 20


# --- in a browser ------------------------------------------------------------------------------


def test_a_right_reply_is_read_again_and_shown(show: Open) -> None:
    receipt, _, answer = judged()
    opened = show(write(receipt))
    assert opened.state == "yes", opened.place
    assert f"{LABEL} holds: statuses of 3 claims and level HIGH follow" in opened.text
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
        ((misquoting,), "HIGH", "statuses of 3 claims and level HIGH follow"),
        ((lenient,), "LOW", "statuses of 3 claims and level LOW follow"),
        ((nonsense,), "HIGH", "no reply of the judge can be read"),
        ((nonsense, right), "HIGH", "statuses of 3 claims and level HIGH follow"),
    ],
)
def test_replies_of_every_form_are_read(show: Open, says: Any, level: str, words: str) -> None:
    receipt, _, _ = judged(*says)
    opened = show(write(receipt))
    assert opened.state == "yes", opened.place
    assert words in opened.text
    assert receipt.content["report"]["risk_level"] == level


def test_a_judge_that_was_not_asked_is_told(show: Open) -> None:
    receipt, _, _ = judged(options={"judge_when": "sample:0"})
    opened = show(write(receipt))
    assert opened.state == "yes", opened.place
    assert f"{LABEL} holds: the judge was not asked: sample" in opened.text
    assert "Checked by screen: SCREENED" in opened.text


def test_statuses_beside_the_composite_are_read_again(show: Open) -> None:
    receipt, _, _ = judged(lenient, opening={"dpe": {"decides": "composite"}})
    opened = show(write(receipt))
    assert opened.state == "yes", opened.place
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
    "a claim less": (lambda content: content["report"]["claims"].pop(), "score is 560000"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_a_signer_says_beside_the_reply_is_red(show: Open, name: str) -> None:
    change, words = FORGED[name]
    receipt, _, _ = judged()
    opened = show(write(changed(receipt, change)))
    assert opened.state == "no"
    assert LABEL in opened.place
    assert words in opened.place


@pytest.mark.parametrize(
    "change",
    [("CONTRADICTED", "SUPPORTED"), ("412 megawatts", "413 megawatts"), ("INVENTION", "OVERREACH")],
)
def test_another_reply_is_red(show: Open, change: tuple[str, str]) -> None:
    receipt, _, _ = judged()
    text = receipt.text(receipt.number("judge/1")) or ""
    opened = show(write(changed(receipt, texts={"judge/1": text.replace(*change)})))
    assert (opened.state, LABEL in opened.place) == ("no", True)
    # Without a key, the text alone is not that of its leaf.
    opened = show(write(_with_text(receipt, text.replace(*change))))
    assert (opened.state, opened.place.startswith("Texts:")) == ("no", True)


def _with_text(receipt: Receipt, text: str) -> Receipt:
    number = receipt.number("judge/1")
    shown: Any = receipt.texts[number]
    texts = (*receipt.texts[:number], shown._replace(text=text), *receipt.texts[number + 1 :])
    return replace(receipt, texts=texts)


def test_a_reply_that_is_not_here_is_told_and_not_taken_for_read(show: Open) -> None:
    receipt, _, _ = judged()
    opened = show(write(redact(receipt, names=["judge/1"])))
    assert opened.state == "yes"
    assert f"{LABEL} were not computed again" in opened.place
    assert f"{LABEL} not checked" in opened.text
    # What is signed of it is shown all the same.
    assert "contradicted" in opened.script("return document.getElementById('row-2').textContent")
