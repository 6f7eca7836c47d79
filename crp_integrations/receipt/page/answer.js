// The answer with its claims, the claims as a table, and the facts with the spans behind them.

const ATTRIBUTIONS = { CONTEXT_GROUNDED: "in the context", MIXED: "partly in the context",
  PARAMETRIC: "not from the context", UNVERIFIABLE: "cannot be verified" };
const UNSCORED = ["unscored", "not scored"];
// What decided a claim gives it its colour, and a line of its own under it.
const STATUSES = {
  SUPPORTED: ["supported", "supported"],
  CONTRADICTED: ["contradicted", "contradicted"],
  UNSUPPORTED: ["unsupported", "unsupported"],
  NOT_CHECKED: ["unread", "not checked"],
  NOT_CHECKABLE: ["unscored", "nothing to check"],
};
const DISPUTED = ["unread", "disputed"];

function decidedOf(claim) {
  return claim.disputed ? DISPUTED : STATUSES[claim.status] || UNSCORED;
}

function spotId(claim, item) {
  return `spot-${claim.number}-${item.number}`;
}

// The first piece of evidence that stands in a fact whose text is here, else the claim's row.
function behind(claim) {
  const item = claim.evidence.find((one) => one.fact && one.fact.text !== null);
  return item ? `#${spotId(claim, item)}` : `#row-${claim.number}`;
}

// What of a claim a finding calls wrong stands out within it; one on all of it stands in the table.
function claimText(text, unit, claim) {
  const nodes = [];
  let from = claim.start;
  const marks = claim.findings.filter((one) => one.end > one.start && one.start >= claim.start
    && one.end <= claim.end && (one.start > claim.start || one.end < claim.end - 1)).sort((a, b) => a.start - b.start || a.end - b.end);
  for (const mark of marks) {
    if (mark.start < from) continue;
    nodes.push(raw(text.slice(unit(from), unit(mark.start))),
      el("span", { class: "wrong" }, raw(text.slice(unit(mark.start), unit(mark.end)))));
    from = mark.end;
  }
  nodes.push(raw(text.slice(unit(from), unit(claim.end))));
  return nodes;
}

function answerText(answer) {
  const { text, claims } = answer;
  const unit = units(text);
  const nodes = [];
  let from = 0;
  for (const claim of claims) {
    if (claim.start < from || claim.end <= claim.start) continue;
    const [style, words] = decidedOf(claim);
    nodes.push(raw(text.slice(unit(from), unit(claim.start))),
      el("a", { class: `claim ${style}`, id: `claim-${claim.number}`, href: behind(claim),
        "data-claim": claim.number },
      claimText(text, unit, claim), el("span", { class: "hear" }, ` (claim ${claim.number}: ${[words, ...claim.findings.map((one) => line(one.kind))].join(", ")}) `)),
      el("a", { class: "ref", href: `#row-${claim.number}`, "data-claim": claim.number,
        "aria-label": `Claim ${claim.number} in the table` }, String(claim.number)));
    from = claim.end;
  }
  nodes.push(raw(text.slice(unit(from))));
  return nodes;
}

function legend(claims) {
  const seen = new Map();
  for (const claim of claims) {
    const entry = decidedOf(claim);
    seen.set(entry, (seen.get(entry) || 0) + 1);
  }
  return el("ul", { class: "legend", "aria-label": "Legend" },
    [...Object.values(STATUSES), DISPUTED, UNSCORED].filter((entry) => seen.has(entry))
      .map((entry) => el("li", {}, el("span", { class: `claim ${entry[0]}` }, entry[1]),
        ` ${seen.get(entry)}`)));
}

function answerSection(view) {
  if (view.answer.text === null) {
    return section("answer", view.answer.heading, el("p", { class: "quiet" }, view.answer.gone));
  }
  const { claims, heading, text, withheld } = view.answer;
  return section("answer", heading,
    text === "" ? el("p", { class: "quiet" }, "There is no text of an answer.") : null,
    withheld ? el("p", {}, "This answer was examined and not released.") : null,
    el("div", { class: "answer", dir: "auto" }, answerText(view.answer)),
    claims.length ? [legend(claims), el("p", { class: "small quiet" },
      "A claim leads to the words of the context behind it, its number to its row below.")] : null);
}

// The status, what is wrong, and the words of the evidence that it rests on.
function statusOf(claim) {
  const [style, words] = decidedOf(claim);
  return [el("span", { class: `word ${style}` }, words),
    claim.error ? [" ", el("span", { class: "small" }, raw(claim.error.toLowerCase()))] : null,
    claim.quotations.map((one) => [el("br"), el("span", { class: "small quiet" }, `${one.source}: `),
      one.text === null ? el("span", { class: "small quiet" }, `${one.start}–${one.end}, not in this copy`)
        : el("q", { class: "raw", dir: "auto" }, raw(one.text))])];
}

function restsOn(claim) {
  if (!claim.evidence.length) return "nothing found";
  return claim.evidence.map((item, place) => [place ? el("br") : null,
    item.fact
      ? el("a", { href: item.fact.text === null ? `#fact-${item.fact.position}`
        : `#${spotId(claim, item)}`, "data-claim": claim.number }, `fact ${item.fact.position}`)
      : el("span", { class: "code" }, raw(short(item.factId, 12))),
    el("span", { class: "quiet small" }, ` ${item.start}–${item.end}`
      + (item.score === null ? "" : `, ${decimals(item.score)}`))]);
}

function found(claim) {
  const nodes = [];
  if (claim.checked && claim.checked !== "CHECKED") {
    nodes.push(claim.checked === "NOT_CHECKED" ? "not checked" : "not checkable");
  }
  for (const one of claim.findings) {
    nodes.push([el("b", {}, raw(one.kind)),
      one.expected ? [", context has ", el("q", { class: "raw" }, raw(one.expected))] : null]);
  }
  return nodes.length ? nodes.map((node, place) => [place ? el("br") : null, node]) : "–";
}

function claimsSection(view) {
  const { text, claims } = view.answer;
  if (!claims.length) {
    return section("claims", "Claims", el("p", { class: "quiet" }, "No claim was found in it."));
  }
  const unit = text === null ? null : units(text);
  const rows = claims.map((claim) => [
    [el("a", { href: `#claim-${claim.number}`, "data-claim": claim.number }, `${claim.number}`)],
    text === null ? el("span", { class: "quiet" }, `${claim.start}–${claim.end}`)
      : el("span", { class: "raw", dir: "auto" }, raw(text.slice(unit(claim.start), unit(claim.end)))),
    statusOf(claim),
    [ATTRIBUTIONS[claim.attribution] || "not scored", el("br"), el("span", { class: "small quiet" }, raw(claim.type.toLowerCase()))],
    decimals(claim.entailment), decimals(claim.contradiction), found(claim), restsOn(claim),
  ]);
  return section("claims", "Claims", scrolling("Claims", table(
    `${many(claims.length, "claim")} in order of the answer; entailed and contradicted are the verifier's `
    + "probabilities, or 0 and 1 by the status.",
    [["#"], ["claim"], ["status"], ["attribution"], ["entailed", "number"], ["contradicted", "number"],
      ["found"], ["rests on"]], rows, claims.map((claim) => `row-${claim.number}`))));
}

// Spans of several claims may overlap, so a fact's text is cut at every end of one.
function factText(fact, spans) {
  const unit = units(fact.text);
  const last = Array.from(fact.text).length;
  const inside = spans.filter((one) => one.start < one.end && one.end <= last);
  const cuts = [...new Set([0, last, ...inside.flatMap((one) => [one.start, one.end])])]
    .sort((a, b) => a - b);
  return cuts.slice(0, -1).map((from, place) => {
    const to = cuts[place + 1];
    const over = inside.filter((one) => one.start <= from && one.end >= to);
    const pieces = raw(fact.text.slice(unit(from), unit(to)));
    if (!over.length) return pieces;
    // An id stands where its span begins; several that begin here are nested.
    const starts = over.filter((one) => one.start === from).map((one) => one.id);
    const inner = starts.slice(1).reduce((nodes, id) => [el("span", { id }, nodes)], pieces);
    return el("span", { class: "spot", id: starts[0] || null,
      "data-spots": over.map((one) => one.id).join(" ") }, inner);
  });
}

function partsOf(fact) {
  return fact.parts.map(([name, value]) => `${name} ${decimals(value)}`).join(", ");
}

function factItem(fact, claims) {
  const spans = [];
  const used = [];
  for (const claim of claims) {
    const here = claim.evidence.filter((item) => item.fact === fact);
    if (here.length) used.push(claim);
    for (const item of here) spans.push({ id: spotId(claim, item), start: item.start, end: item.end });
  }
  return el("li", { class: "fact", id: `fact-${fact.position}` },
    el("p", { class: "head" }, el("b", {}, `Fact ${fact.position}`),
      fact.tokens === null ? null : [el("span", {}, many(fact.tokens, "token")),
        el("span", {}, `score ${decimals(fact.score)}`)],
      el("span", {}, "id ", el("span", { class: "code" }, raw(fact.id))),
      fact.source ? el("span", {}, "source ", el("span", { class: "code" }, raw(fact.source))) : null,
      fact.note ? el("span", {}, raw(fact.note)) : null),
    fact.text === null ? el("p", { class: "gone" }, fact.gone)
      : el("blockquote", { dir: "auto" }, factText(fact, spans)),
    fact.parts.length ? el("p", { class: "small quiet" }, partsOf(fact)) : null,
    used.length ? el("p", { class: "small" }, "Behind ", used.map((claim, place) => [place ? ", " : null,
      el("a", { href: `#claim-${claim.number}`, "data-claim": claim.number }, `claim ${claim.number}`)])) : null);
}

function factsSection(view) {
  const shown = view.facts.filter((fact) => fact.text !== null).length;
  const told = shown === view.facts.length ? "" : ` The text of ${shown} is in this copy.`;
  return section("facts", "Facts that the model saw",
    el("p", { class: "small quiet" }, `${many(view.facts.length, "fact")} in order of the context.${told} `
      + "Underlined words are what claims rest on."),
    el("ol", { class: "facts" }, view.facts.map((fact) => factItem(fact, view.answer.claims))));
}

function droppedSection(view) {
  if (!view.dropped.length) {
    return section("dropped", "Facts left out", el("p", { class: "quiet" },
      "Every candidate was included."));
  }
  const reasons = new Map();
  for (const drop of view.dropped) reasons.set(drop.reason, (reasons.get(drop.reason) || 0) + 1);
  const summary = [...reasons].sort().map(([reason, count]) => `${whole(count)} for ${line(reason)}`);
  return section("dropped", "Facts left out", scrolling("Facts left out", table(
    `${many(view.dropped.length, "candidate")}: ${summary.join(", ")}.`,
    [["fact"], ["reason"], ["tokens", "number"], ["relevance", "number"], ["begins"]],
    view.dropped.map((drop) => [el("span", { class: "code" }, raw(drop.id)),
      [raw(drop.reason), drop.kept ? [" of ", el("span", { class: "code" }, raw(drop.kept))] : null],
      whole(drop.tokens), decimals(drop.score), drop.text === null ? el("span", { class: "quiet" }, drop.gone)
        : el("bdi", {}, short(drop.text, 72))])),
  view.dropped.length > 12));
}
