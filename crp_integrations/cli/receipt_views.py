"""Tables for receipts and replays; texts are printed without control characters or markup."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from typing import Any

import typer
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from crp_integrations.cli.terminal import RISK_STYLE, STATUS_STYLE, envelope_table, plain, terminal
from crp_integrations.dpe.records import ClaimCounts
from crp_integrations.errors import ReceiptBroken
from crp_integrations.markup import counted
from crp_integrations.receipt.bundle import KeyStatement, ReceiptBundle
from crp_integrations.receipt.comparison import ComparedReceipts
from crp_integrations.receipt.leaves import composed
from crp_integrations.receipt.reconstruction import MALFORMED, Texts, content_of, passages_of
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay import stated as stated_values
from crp_integrations.receipt.replay_records import DIFFERS, EQUAL, HOLDS, NOT_RECOMPUTED, Replayed
from crp_integrations.receipt.signed_statement import keyid_of
from crp_integrations.receipt.timestamp import read_timestamp
from crp_integrations.receipt.verify import Verified
from crp_integrations.vocabulary import ClaimStatus, RiskLevel

MARK = {
    True: ("holds", "green"),
    False: ("does not hold", "bold red"),
    None: ("not taken", "yellow"),
}
# Printed instead of a text that is missing from this copy.
GONE = {"redacted": "left out of this copy", "erased": "erased with its source"}
# Number of characters that identify a fact in print.
DIGITS = 12


def draw_verification(verification: Verified) -> None:
    """Print the steps of a verification, its key and its result."""
    table = Table(title="Verification", title_justify="left", show_header=False)
    for step in verification.steps:
        words, style = MARK[step.ok]
        why = ": ".join(part for part in (step.place, step.reason) if part)
        cells = (Text(words, style=style), Text(plain(why, whole=True)))
        table.add_row(str(step.number), step.name, *cells)
    lines = []
    if verification.receipt_id:
        here = f"{verification.shown} of {counted(verification.texts, 'text')} here"
        gone = f"{verification.redacted} left out, {verification.erased} erased"
        lines.append(f"{verification.receipt_id}: {here}, {gone}")
        whose = "the file cannot show whose key this is"
        if verification.pinned:
            signed = any(step.name == "signature" and step.ok for step in verification.steps)
            whose = "the given key" if signed else "not the given key"
        lines.append(f"signed by key {verification.keyid}: {whose}")
    terminal().print(table)
    # Lines are not wrapped, so that an id can be copied whole.
    terminal().print(Text("\n".join(lines)), soft_wrap=True)
    terminal().print(_stated(verification.stated), soft_wrap=True)
    terminal().print(receipt_word(verification.word))


def receipt_word(word: str) -> Text:
    """The word for a receipt, in its colour."""
    return Text(word, {HOLDS: "green", NOT_RECOMPUTED: "yellow"}.get(word, "bold red"))


def _stated(stated: Iterable[tuple[str, str]]) -> Text:
    """What rests on the signer's word alone."""
    lines = [f"  {name}: {plain(value, whole=True)}" for name, value in stated]
    heading = ["Stated by the signer, not recomputed:"] if lines else []
    return Text("\n".join([*heading, *lines]), style="dim")


def draw_bundle(bundle: ReceiptBundle) -> None:
    """Print the keys of a bundle's log, and what its time stamp states."""
    lines = []
    for period in KeyStatement.read(bundle.keys).keys:
        when = f", from {period.first} to {period.last}" if period.entries else ""
        lines.append(
            f"key {keyid_of(period.key)}: signed {counted(period.entries, 'receipt')}{when}"
        )
    if bundle.timestamp:
        time = read_timestamp(bundle.timestamp).time
        lines.append(f"head stamped at {time}; openssl ts -verify checks by whom")
    terminal().print(Text("\n".join(plain(line, whole=True) for line in lines)), soft_wrap=True)


def draw_receipt(receipt: Receipt, verification: Verified) -> None:
    """Print question, answer, envelope, verdict per claim, policy, identity and verification."""
    state = receipt_word(verification.word)
    if not verification.ok:
        why = plain(f": {verification.place} {verification.reason}", whole=True)
        state.append(why)
    try:
        content = _printable(receipt.content)
        parts = Group(
            Panel(Text(_named_text(receipt, "request")), title="Question", title_align="left"),
            Panel(Text(_examined(receipt)), title=_answer_title(receipt), title_align="left"),
            _envelope(receipt, content),
            _claims(receipt, content),
            _policy(content),
            _identity(receipt),
            state,
        )
    except MALFORMED as error:
        # The content has no fixed schema, and a valid signature does not make it well-formed.
        problem = f"it is malformed: {type(error).__name__}"
        raise ReceiptBroken("payload.predicate.content", problem) from error
    terminal().print(parts)


def _printable(value: Any) -> Any:
    """The content with control characters removed, since its signer could put any into it."""
    if isinstance(value, str):
        return plain(value, whole=True)
    if isinstance(value, Mapping):
        return {name: _printable(inner) for name, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, list) else value


def _answer_leaf(receipt: Receipt) -> int:
    """The leaf of the examined answer, even if that answer was withheld."""
    leaf = (receipt.content.get("examined") or {}).get("answer")
    return leaf if isinstance(leaf, int) else receipt.number("answer")


def _examined(receipt: Receipt) -> str:
    return _text(receipt, _answer_leaf(receipt), whole=True)


def _answer_title(receipt: Receipt) -> str:
    released = (
        _answer_leaf(receipt) == receipt.number("answer") and receipt.chain.outcome != "halted"
    )
    if not released:
        return "Answer, withheld"
    outcome = receipt.chain.outcome
    return "Answer" if outcome == "released" else plain(f"No answer, {outcome}", whole=True)


def _named_text(receipt: Receipt, name: str) -> str:
    return _text(receipt, receipt.numbers.get(name), whole=True)


def _text(receipt: Receipt, number: Any, *, whole: bool = False) -> str:
    if not isinstance(number, int):
        return ""
    text = receipt.text(number)
    if text is not None:
        return plain(text, whole=whole)
    state = receipt.state(number)
    return f"({GONE.get(state, 'put together from texts that are not here')})"


def _score(content: Mapping[str, Any], value: Any) -> str:
    return f"{value / content['scale']:.3f}" if isinstance(value, int) else "–"


def _envelope(receipt: Receipt, content: Mapping[str, Any]) -> Group:
    envelope = content.get("envelope")
    if not envelope:
        return Group(Text("No context was sent."))
    rows = [
        (
            f"{fact['position']} part" if fact.get("spans") else str(fact["position"]),
            _score(content, fact["composite"]),
            str(fact["tokens"]),
            _text(receipt, content["candidates"][fact["at"]]["leaf"]),
        )
        for fact in envelope["facts"]
    ]
    counts = f"{envelope['token_count']} of {counted(envelope['token_budget'], 'token')}"
    score = _score(content, envelope["envelope_score"])
    # The policy's tier is that of the envelope, capped by the quality of the answer.
    tier = content.get("policy", {}).get("tier") or envelope["quality_tier"]
    tier = f"tier {tier}, score of the context {score}"
    lines = [f"{counted(len(envelope['facts']), 'fact')}, {counts}; {tier}"]
    lines += [f"  at most {ceiling}: {plain(reason)}" for ceiling, reason in envelope["caps"]]
    return envelope_table(rows, lines, (drop["reason"] for drop in envelope["dropped"]))


def _claims(receipt: Receipt, content: Mapping[str, Any]) -> Group:
    report = content.get("report")
    if not report:
        return Group(Text("No answer was examined."))
    answer = receipt.text(_answer_leaf(receipt))
    table = Table.grid(padding=(0, 2, 0, 0))
    for claim in report["claims"]:
        start, end = claim["start"], claim["end"]
        text = f"characters {start} to {end}" if answer is None else plain(answer[start:end])
        status = ClaimStatus(claim.get("status") or ClaimStatus.NOT_CHECKED)
        table.add_row(Text(status, style=STATUS_STYLE[status]), _claim(receipt, claim, text))
    level = RiskLevel(report["risk_level"])
    counts = ClaimCounts.model_validate(report.get("claim_counts") or {})
    risk = Text.assemble(
        "Risk ",
        (level.value, RISK_STYLE[level]),
        "" if report["risk_score"] is None else f" ({_score(content, report['risk_score'])})",
        f" by {plain(str(report['checked_by']))}; {counts}",
    )
    return Group(Text("Verdict per claim", style="italic"), table, risk)


def _claim(receipt: Receipt, claim: Mapping[str, Any], claim_text: str) -> Text:
    text = Text(claim_text)
    quotations = claim.get("quotations", ())
    for words in dict.fromkeys(_words(receipt, quotation) for quotation in quotations):
        text.append(f"\n“{words}”" if words else "", style="dim")
    for finding in claim.get("findings", ()):
        words = _words(receipt, finding.get("evidence"))
        text.append(f"\n{finding['kind']}{f', context has {words}' if words else ''}", style="red")
    return text


def _words(receipt: Receipt, evidence: Mapping[str, Any] | None) -> str:
    """The words of the context for a finding; empty if there are none or they were redacted."""
    if evidence is None:
        return ""
    text = _shown_text(receipt, evidence["fact_id"])
    return plain(text[evidence["start"] : evidence["end"]])


def _shown_text(receipt: Receipt, fact_id: str) -> str:
    """A fact's text as the model saw it; empty if the model did not see it or it is missing."""
    content = content_of(receipt)
    passages = passages_of(content, content.examined) if content.examined else ()
    pieces = next((passage.pieces for passage in passages if passage.id == fact_id), ())
    return composed(pieces, receipt.text) or ""


def _policy(content: Mapping[str, Any]) -> Text:
    policy = content.get("policy") or {}
    judgement = policy.get("judgement") or {}
    lines = [f"Policy: {plain(policy.get('text') or 'none', whole=True)}"]
    for kind, word in (("violations", "violated"), ("warnings", "warned of")):
        lines += [
            f"  {word}: {finding['directive']}, found {finding['seen']}, wanted {finding['wanted']}"
            for finding in judgement.get(kind, ())
        ]
    if policy.get("decision"):
        lines.append(f"  decision: {policy['decision']} {policy.get('reason') or ''}".rstrip())
    return Text("\n".join(lines))


def _identity(receipt: Receipt) -> Table:
    chain, content = receipt.chain, content_of(receipt)
    table = Table(title="What made it", title_justify="left", show_header=False)
    table.add_column("name", no_wrap=True)
    table.add_column("value", overflow="fold")
    judged = content.examined and content.examined.judged
    rows = {
        "Receipt": receipt.receipt_id,
        "Window": f"{chain.window_number} ({chain.window_id}), {chain.outcome}",
        "Judge's prompt": f"{judged.prompt}, in the text judge-prompt" if judged else "",
        "Not in this copy": _first_ids(
            [leaf.name for n, leaf in enumerate(receipt.leaves) if receipt.state(n) != "shown"]
        ),
        "Key": receipt.keyid,
        **dict(stated_values(receipt, content, Texts(receipt))),
    }
    for name, value in rows.items():
        if value:
            table.add_row(Text(name), Text(plain(value, whole=True)))
    return table


def report_written(out: str, what: str) -> None:
    """Print where something was written; nothing for standard output."""
    if out:
        terminal().print(Text(f"{what} written to {out}"), soft_wrap=True)


def report_redacted(before: Receipt, after: Receipt, out: str) -> None:
    """Print the names of the texts that a copy lacks; nothing if it went to standard output."""
    if not out:
        return
    gone = [
        entry.name
        for number, entry in enumerate(after.leaves)
        if after.state(number) == "redacted" and before.state(number) == "shown"
    ]
    lines = [f"{counted(len(gone), 'text')} left out of {out}"]
    lines += [f"  {plain(name, whole=True)}" for name in gone]
    terminal().print(Text("\n".join(lines)), soft_wrap=True)


def draw_receipt_list(receipts: Iterable[Receipt], *, as_json: bool) -> None:
    """Print one line per receipt, in the order of the log."""
    if as_json:
        names = ("timestamp", "session_id", "window_number", "window_id")
        rows = [
            {
                "receipt_id": receipt.receipt_id,
                **{name: getattr(receipt.chain, name) for name in names},
            }
            for receipt in receipts
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    for receipt in receipts:
        chain = receipt.chain
        line = f"{receipt.receipt_id}  {chain.timestamp}  {chain.session_id}  {chain.window_number}"
        terminal().print(Text(f"{line}  {chain.window_id}"), soft_wrap=True)


STYLE = {EQUAL: "green", DIFFERS: "bold red"}
# Maximum number of ids in a list.
MAX_IDS = 5
_LINES = {"+": "green", "-": "red", "@": "cyan"}


def draw_replay(replayed: Replayed) -> None:
    """Print the result for each part, and the limits of the replay."""
    table = Table(title="Replay", title_justify="left")
    for name in ("part", "state", "where", "remark"):
        table.add_column(name, overflow="fold")
    for part in replayed.parts:
        remark = part.why
        if part.state == DIFFERS and part.recorded != part.replayed:
            remark = f"recorded {part.recorded or 'nothing'}, replayed {part.replayed or 'nothing'}"
        table.add_row(
            part.name,
            Text(part.state, style=STYLE.get(part.state, "yellow")),
            Text(plain(part.place)),
            Text(plain(remark, whole=True)),
        )
    terminal().print(Group(table, _limits(replayed.limits)))
    terminal().print(_stated(replayed.stated), soft_wrap=True)
    # Not wrapped, as scripts read the last line.
    missing = f"; not run: {', '.join(replayed.not_run)}" if replayed.not_run else ""
    terminal().print(receipt_word(replayed.word).append(missing), soft_wrap=True)


def draw_comparison(compared: ComparedReceipts) -> None:
    """Print where two receipts differ, and a line diff of their contexts."""
    missing = compared.not_compared
    left_out = [Text(f"not compared, not in both copies: {_first_ids(missing)}")] if missing else []
    if compared.same:
        what = "nothing that was compared" if missing else "nothing"
        message = Text(f"{what} differs but ids, times and places in the chain", "green")
        terminal().print(Group(*left_out, message))
        return
    table = Table(title="First differences", title_justify="left")
    for name in ("part", "where", "left", "right"):
        table.add_column(name, overflow="fold")
    for difference in compared.differences:
        table.add_row(
            Text(difference.part),
            Text(plain(difference.place)),
            Text(plain(difference.left)),
            Text(plain(difference.right)),
        )
    sets = (
        ("facts only in the right context", compared.facts_in),
        ("facts only in the left context", compared.facts_out),
    )
    lines = [Text(f"{what}: {_first_ids(ids)}") for what, ids in sets if ids]
    context_diff = _line_diff(compared.left_context, compared.right_context, ("left", "right"))
    terminal().print(Group(table, *lines, *left_out, *context_diff))


def _first_ids(ids: Sequence[str]) -> str:
    """The first ids, and the number of further ones."""
    more = len(ids) - MAX_IDS
    return ", ".join(map(plain, ids[:MAX_IDS])) + (f" and {more} more" if more > 0 else "")


def _line_diff(before: str, after: str, names: tuple[str, str]) -> list[Text]:
    """A line diff of two texts; empty if they are equal or one is missing."""
    if not before or not after:
        return []
    lines = unified_diff(before.split("\n"), after.split("\n"), *names, lineterm="", n=1)
    return [Text(plain(line, whole=True), style=_LINES.get(line[:1], "")) for line in lines]


def _limits(limits: Iterable[str]) -> Text:
    return Text("\n".join(f"limit: {limit}" for limit in limits), style="dim")
