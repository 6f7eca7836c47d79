// What of a receipt is shown: the one file that knows the fields of its content.

const CONTENT = "receipt-content/1";
const ELLIPSIS = " … ";
const GONE = {
  redacted: "Its text was left out of this copy; its hash is in the tree.",
  erased: "Its text was erased with its source; its hash is in the tree.",
};

function viewOf(opening, texts, others) {
  const { chain, content } = opening.predicate;
  const read = reader(opening, texts, content);
  const facts = factsOf(read, content);
  const title = read.named("request");
  return {
    title: title === null ? "The question is not in this copy" : title,
    answer: answerOf(read, content, facts, chain.outcome),
    risk: riskOf(read, content, facts),
    quality: tierOf(read, content),
    budget: { used: (content.envelope || {}).token_count || 0, total: (content.envelope || {}).token_budget || 0,
      counter: counterOf(content.model) },
    facts,
    dropped: droppedOf(read, content),
    windows: windowsOf(opening, others),
    policy: policyOf(content.policy || {}),
    made: madeBy(read, opening, content),
  };
}

function reader(opening, texts, content) {
  const leaf = new Map(opening.leaves.map((entry, number) => [entry.name, number]));
  return {
    fixed: (value) => (typeof value === "number" ? value / content.scale : null),
    text: (number) => (Number.isInteger(number) ? texts[number] : null),
    composed: (parts) => composed(parts, texts),
    number: (name) => leaf.get(name),
    named: (name) => (leaf.has(name) ? texts[leaf.get(name)] : null),
    gone: (number) => GONE[opening.file.texts[number]] || "Its text is not in this receipt.",
  };
}

// Claims are of what was examined; of an answer that was withheld, that is not what was released.
function answerOf(read, content, facts, outcome) {
  const released = read.number("answer");
  const told = (content.examined || {}).answer;
  const leaf = Number.isInteger(told) ? told : released;
  const withheld = outcome === "halted" || leaf !== released;
  const none = withheld || outcome === "released" ? "" : `No answer, ${line(outcome)}`;
  return { text: read.text(leaf), gone: read.gone(leaf), heading: withheld ? "Answer, withheld" : none || "Answer",
    withheld, claims: claimsOf(read, content, facts) };
}

// Facts of the envelope; where another made the context, what the answer was examined beside.
function factsOf(read, content) {
  const { envelope, examined } = content;
  if (!envelope) return ((examined || {}).passages || []).map((one, place) => passageOf(read, one, place));
  return envelope.facts.map((fact) => {
    const candidate = content.candidates[fact.at];
    const whole = read.text(candidate.leaf);
    // A leaf that is itself a part of a longer fact is shown whole.
    const spans = canonical(fact.spans || []) === canonical(candidate.spans || []) ? [] : fact.spans || [];
    return {
      id: candidate.id, position: fact.position, tokens: fact.tokens, source: candidate.source,
      score: read.fixed(fact.composite),
      text: whole === null || !spans.length ? whole : partsShown(whole, spans),
      gone: read.gone(candidate.leaf),
      note: [(fact.spans || []).length ? "shown in part" : "", candidate.stale ? "stale" : ""].filter(Boolean).join(", "),
      parts: [["relevance", candidate.relevance], ["importance", candidate.importance],
        ["freshness", fact.freshness], ["diversity", fact.diversity], ["words", candidate.lexical],
        ["second hop", candidate.hop]].filter(([, value]) => typeof value === "number")
        .map(([name, value]) => [name, read.fixed(value)]),
    };
  });
}

// What the answer was held against: in a session that goes on, more than the envelope's facts.
function passagesOf(read, content, facts) {
  const { passages } = content.examined || {};
  return passages ? passages.map((one, place) => passageOf(read, one, place)) : facts;
}

function passageOf(read, passage, place) {
  const leaves = passage.pieces.map((piece) => [piece].flat()[0]).filter((leaf) => Number.isInteger(leaf));
  const gone = leaves.find((leaf) => read.text(leaf) === null) ?? leaves[0];
  return { id: passage.id, position: place + 1, tokens: null, score: null, source: "", parts: [], note: "",
    text: read.composed(passage.pieces), gone: read.gone(gone) };
}

function partsShown(text, spans) {
  const unit = units(text);
  return spans.map(([start, end]) => text.slice(unit(start), unit(end))).join(ELLIPSIS);
}

function droppedOf(read, content) {
  const { dropped = [] } = content.envelope || {};
  return dropped.map((drop) => {
    const candidate = content.candidates[drop.at];
    const kept = Number.isInteger(drop.kept) ? content.candidates[drop.kept].id : null;
    return { id: candidate.id, tokens: candidate.tokens, score: read.fixed(candidate.relevance),
      reason: drop.reason, kept, text: read.text(candidate.leaf), gone: read.gone(candidate.leaf) };
  });
}

function claimsOf(read, content, facts) {
  const byId = new Map(facts.map((fact) => [fact.id, fact]));
  const { claims = [] } = content.report || {};
  return claims.map((claim, place) => ({
    number: place + 1, start: claim.start, end: claim.end, type: claim.claim_type,
    attribution: claim.attribution, checked: claim.checked,
    entailment: read.fixed(claim.entailment), contradiction: read.fixed(claim.contradiction),
    status: claim.status || "", disputed: claim.disputed || false, error: claim.error || "", wrong: claim.wrong || null,
    quotations: (claim.quotations || []).map((one) => quotationOf(read, content, facts, one)),
    findings: (claim.findings || []).map((one) => ({ kind: one.kind, start: one.start, end: one.end,
      expected: wordsOf(byId, one.evidence) })),
    evidence: (claim.evidence || []).map((item, number) => ({ number: number + 1, factId: item.fact_id,
      fact: byId.get(item.fact_id) || null, start: item.start, end: item.end, score: read.fixed(item.score) })),
  }));
}

// What a judge was given besides the answer and the passages; null for a text that is not here.
function saidBefore(read, content) {
  const { judged, question } = content.examined || {};
  const users = ((judged || {}).conversation || []).filter((one) => one.role === "user").map((one) => read.text(one.leaf));
  const asked = [Number.isInteger(question) ? read.text(question) : "", ...users];
  const told = (judged || {}).instructions;
  return { question: asked.includes(null) ? null : asked.join("\n"), system: Number.isInteger(told) ? read.text(told) : "" };
}

function quotationOf(read, content, facts, one) {
  const text = one.passage ? (passagesOf(read, content, facts)[one.passage - 1] || { text: null }).text : saidBefore(read, content)[one.fact_id];
  return { ...one, text: text === null || text === undefined ? null : sliced(text, one.start, one.end),
    source: one.passage ? `passage ${one.passage}` : one.fact_id === "system" ? "the system prompt" : "the question" };
}

// All that statuses and level are computed from again; null where a text of it is not here.
function judgedOf(read, content, facts) {
  const { judged, answer, grounding } = content.examined;
  const passages = passagesOf(read, content, facts);
  const said = { ...saidBefore(read, content), answer: read.text(answer), passages, grounding,
    measured: ((content.settings || {}).dpe || {}).decides === "composite",
    replies: (judged || { calls: [] }).calls.map((call) => (Number.isInteger(call.leaf) ? read.text(call.leaf) : "")) };
  const texts = [said.answer, said.question, said.system, ...said.replies, ...passages.map((one) => one.text)];
  const claims = (content.report.claims || []).map((claim) => ({ id: claim.claim_id, start: claim.start, end: claim.end,
    type: claim.claim_type, status: claim.status, error: claim.error || null, wrong: claim.wrong || null,
    quotations: claim.quotations || [], findings: claim.findings || [], sentence: claim.sentence_index,
    disputed: claim.disputed || false }));
  if (texts.includes(null)) return null;
  const { report, examined } = content;
  const question = Number.isInteger(examined.question) ? read.text(examined.question) : "";
  const known = [question, ...passages.map((one) => one.text)].join("\n");
  const stakes = { mode: grounding, answer: said.answer,
    highRisk: report.eu_ai_act_class === "HIGH" && Boolean((examined.system || {}).domain),
    personal: ((report.personal || {}).found || []).filter((one) => one.where === "answer" && !isRepeated(sliced(said.answer, one.start, one.end), known)) };
  return { said, claims, stakes };
}

// Reasons are put together from answer, statuses and quotations.
function reasonsTold(read, content, facts) {
  const { report, examined, settings } = content;
  const { judged, answer } = examined || {};
  if (!report || !report.flagged || !report.checked_by) return [];
  const screened = report.checked_by === JUDGING.comparison;
  if (!screened && ((settings || {}).dpe || {}).decides === "composite") return [];
  const text = read.text(Number.isInteger(answer) ? answer : read.number("answer"));
  const claims = claimsOf(read, content, facts);
  if (text === null || claims.some((claim) => claim.quotations.some((one) => one.text === null))) return null;
  const language = judged && (!screened || judged.skipped === "no doubt") ? judged.language : "en";
  return reasonsOf(claims, text, language);
}

// What the context says where a finding says that the answer differs.
function wordsOf(facts, evidence) {
  const fact = evidence ? facts.get(evidence.fact_id) : null;
  return fact && fact.text !== null ? Array.from(fact.text).slice(evidence.start, evidence.end).join("") : null;
}

function riskOf(read, content, facts) {
  const report = content.report || {};
  return {
    level: report.risk_level || "not examined", score: read.fixed(report.risk_score),
    checkedBy: report.checked_by || "", verification: report.verification || "", reasons: reasonsTold(read, content, facts),
    grounded: read.fixed(report.grounding_pct), checked: read.fixed(report.checked_share),
    parts: Object.entries(report.signals || {}).map(([name, value]) => [words(name), read.fixed(value)]),
    amplifiers: report.amplifiers_applied || [], flags: report.flags || [],
    quality: read.fixed(report.rqa_score),
    qualityParts: [["grounding", report.grounding_pct], ["fidelity", report.fidelity_score],
      ["entailment", report.entailment_score], ["completeness", report.completeness_score],
      ["flow", report.flow_score], ["repetition", report.repetition_overlap, "0 is best"]]
      .filter(([, value]) => typeof value === "number")
      .map(([name, value, note]) => [name, read.fixed(value), note]),
  };
}

// The tier that the policy saw: that of the envelope, capped by the quality of the answer.
function tierFor({ policy, envelope }) {
  return (policy || {}).tier || (envelope || {}).quality_tier || "–";
}

function tierOf(read, content) {
  const { envelope } = content;
  if (!envelope) return { tier: tierFor(content), score: null, parts: [], caps: [] };
  return {
    tier: tierFor(content), score: read.fixed(envelope.envelope_score),
    parts: [["coverage", envelope.coverage_score], ["saturation", envelope.saturation],
      ["relevance", envelope.relevance_mean]].filter(([, value]) => Number.isInteger(value))
      .map(([name, value]) => [name, read.fixed(value)]),
    caps: [...envelope.caps, ...(tierFor(content) === envelope.quality_tier ? [] : [[tierFor(content), "by the quality of the answer"]])],
  };
}

function words(name) {
  return line(name).replaceAll("_", " ");
}

function counterOf(model) {
  const { tokenizer } = model || {};
  return tokenizer ? `${tokenizer.identity} (${tokenizer.exactness})` : "";
}

// This window, those whose receipts are here as well, and those that are known by their seals.
function windowsOf(opening, others) {
  const known = [opening, ...others].map((one) => ({ ...one.predicate.chain, content: one.predicate.content }));
  const bySeal = new Map(known.map((window) => [window.hmac, window.window_id]));
  const windows = known.map((window, place) => ({ id: window.window_id, number: window.window_number,
    parents: window.parents.map((seal) => bySeal.get(seal) || seal), seal: window.hmac, known: true,
    here: place === 0, note: place === 0 ? "this receipt" : foundOf(window) }));
  for (const window of known) {
    for (const seal of window.parents.filter((one) => !bySeal.has(one))) {
      bySeal.set(seal, seal);
      windows.push({ id: seal, number: window.window_number - 1, parents: [], seal, known: false, here: false,
        note: "known by its seal alone" });
    }
  }
  return windows.sort((a, b) => a.number - b.number || (a.id < b.id ? -1 : 1));
}

function foundOf({ outcome, content }) {
  const { report, envelope } = content;
  return [outcome, report && report.risk_level && `risk ${report.risk_level}`, envelope && `tier ${tierFor(content)}`]
    .filter(Boolean).map(line).join(", ");
}

function policyOf(policy) {
  const decisions = [];
  const take = (judgement, place) => {
    for (const one of (judgement || {}).violations || []) {
      decisions.push([one.directive, one.withholds ? `withholds${place}` : `not met${place}`,
        `found ${one.seen}, wanted ${one.wanted}`]);
    }
    for (const one of (judgement || {}).warnings || []) {
      decisions.push([one.directive, `warns${place}`, `found ${one.seen}, wanted ${one.wanted}`]);
    }
  };
  take(policy.judgement, "");
  take(policy.reported, " (reported only)");
  if (policy.decision) decisions.push(["answer", policy.decision, policy.reason || ""]);
  if (policy.approved) decisions.push(["oversight", "approved", "a person had to approve it, and has"]);
  if (policy.reviewed) decisions.push(["oversight", "reviewed", "a person had to look at it"]);
  return { text: policy.text || "", hash: policy.hash || "", reported: policy.report_only || "",
    bundle: policy.catalogue || "", decisions };
}

// What made the receipt, besides what only the signer states.
function madeBy(read, opening, content) {
  const { judged, engines } = content.examined || {};
  return [
    ["Judge's prompt", judged && Number.isInteger(judged.system) ? read.text(judged.system) || "not in this copy" : ""],
    ["Not in this copy", opening.leaves.filter((leaf, at) => typeof opening.file.texts[at] === "string").map((leaf) => leaf.name).join(", ")],
    ["Window", opening.predicate.chain.window_id], ["Counted by", counterOf(content.model)], ["Verifier", (engines || {}).verifier],
    ["Algorithms", ((content.envelope || {}).algorithms || []).join(", ")],
    ["Stages", ((content.report || {}).stages || []).map(([number, name]) => `${number} ${name}`).join(", ")],
  ];
}
