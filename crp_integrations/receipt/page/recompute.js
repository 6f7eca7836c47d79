// What is signed is computed again from the receipt's own texts, as far as a page can.

// Each leaf whose text the computations of this page and of `crp receipt verify` rest on.
function restingOn({ predicate, leaves }) {
  const { content } = predicate;
  const { request, examined, envelope, candidates, repaired } = content;
  const messages = (list) => (list || []).flatMap((one) => [one.leaf, one.frame]);
  const named = (name) => leaves.findIndex((leaf) => leaf.name === name);
  const numbers = [named("seal"), named("context"), named("answer")];
  if (request.shaped && content.calls.length) {
    numbers.push(request.question, request.system_prompt, ...request.instructions, ...messages(request.history),
      ...messages(content.calls[0].messages));
  }
  if (repaired) numbers.push(repaired.original, ...repaired.edits.map((edit) => edit.leaf));
  if (examined) {
    const { judged } = examined;
    const pieces = examined.passages ? examined.passages.flatMap((one) => one.pieces.map((piece) => [piece].flat()[0]))
      : (envelope ? envelope.facts : []).map((fact) => candidates[fact.at].leaf);
    numbers.push(examined.answer, examined.question, examined.prompt, ...examined.needs, ...messages(examined.prior), ...pieces,
      ...examined.rejected.flatMap((one) => [one.leaf, one.said, one.wrong, one.reason]));
    if (examined.prompt === "conversation") numbers.push(request.system_prompt, request.question, ...messages(request.history));
    if (judged) numbers.push(...messages(judged.conversation), judged.instructions, judged.system, ...messages(judged.calls));
  }
  return [...new Set(numbers)].filter((number) => Number.isInteger(number));
}

// Throws where the copy lacks what the result rests on.
function checkHere(opening, texts) {
  const { content } = opening.predicate;
  const gone = restingOn(opening).find((number) => (texts[number] ?? null) === null);
  if (gone !== undefined) throw new NotHere("a text that they rest on is not in this copy");
  if (content.envelope && !content.fit) throw new NotHere("the envelope was made elsewhere");
  if (!content.examined && (content.report.claims || []).length) throw new NotHere("nothing was examined");
  if ((content.settings.withheld || []).length) throw new NotHere("weights were not disclosed");
  const { judgement, terms } = content.policy;
  if (judgement && !(content.examined && (terms || !content.fit))) {
    throw new NotHere("the conditions on the answer besides the policies are not recorded");
  }
}

const sealOf = async (text) => `sha256:${toHex(await sha256(utf8(text)))}`;

// A signer who changes one field and signs again leaves a digest that does not fit.
async function checkDigest({ predicate: { chain, content, digest, texts } }) {
  if (toHex(await sha256(utf8(canonical({ chain, content, texts })))) !== digest) {
    differ("predicate.digest", "it is not that of chain, content and texts");
  }
}

// Each candidate is shown once or dropped with a reason, and the context is rendered from those shown.
async function checkSelection(read, content) {
  const { envelope, candidates } = content;
  const facts = factsOf(read, content);
  if (envelope) {
    const places = [...envelope.facts, ...envelope.dropped].map((one) => one.at).sort((a, b) => a - b);
    if (canonical(places) !== canonical(candidates.map((_, place) => place))) {
      differ("envelope", `${places.length} candidates are shown or dropped, ${candidates.length} were there`);
    }
    const ids = facts.map((fact) => fact.id).sort();
    if (!content.fit.salted && envelope.etag !== (await sealOf(`${ids.join("|")}|${ids.length}`))) {
      differ("envelope.etag", "it is not the hash of the facts' ids");
    }
    const context = facts.map((fact, place) => `[${place + 1}] ${fact.text}`).join(JUDGING.between);
    if (context !== read.named("context")) differ("context", "it is not rendered from the facts shown");
  }
}

// A window whose seal names a report was examined.
function checkExamined(read, content) {
  if (!content.examined && JSON.parse(read.named("seal")).report_hash) differ("content.examined", "it is missing, and a report is sealed");
}

// The first call's messages (`prompt@1`), unless the caller wrote them.
function checkPrompt(read, { request, calls, model, fit }) {
  const [call] = calls;
  if (!call) return;
  if (call.model !== model.asked || call.purpose !== "answer") differ("calls[0]", "another model or purpose than was asked");
  if (fit && !request.shaped) differ("request.shaped", "an envelope was packed, but no prompt built around it");
  if (!request.shaped) return;
  const text = (leaf) => (leaf === null ? "" : read.text(leaf));
  const context = read.named("context");
  const system = [text(request.system_prompt), JUDGING.instructions[request.grounding], JUDGING.strategies[request.strategy],
    ...request.instructions.map(text), context && JUDGING.contextOpen + context + JUDGING.contextClose].filter(Boolean);
  const history = request.history.map((one) => [one.role, text(one.leaf)]);
  const place = Math.max(0, history.length - request.results);
  const built = [...(system.length ? [["system", system.join(JUDGING.between)]] : []), ...history.slice(0, place),
    ["user", text(request.question)], ...history.slice(place)];
  if (canonical(built) !== canonical(call.messages.map((one) => [one.role, text(one.leaf)]))) {
    differ("calls[0].messages", "they are not built from the request and the context");
  }
}

// The id of each question to a judge is the hash of what it was asked, and its prompt has a hash.
async function checkAsked(given, { examined }, read) {
  const { judged } = examined;
  const { said, claims } = given;
  const signs = (text, most) => sliced(text, 0, most);
  const numbered = claims.filter((claim) => !claim.id.startsWith("u"));
  const answerOf = (numbers) => {
    const [first, last] = [numbers[0], numbers[numbers.length - 1]];
    let place = first <= 3 ? 0 : numbered[first - 3].start;
    const parts = [];
    const between = (end) => {
      const words = stripped(sliced(said.answer, place, end));
      if (words) parts.push(words);
    };
    for (const number of numbers) {
      const claim = numbered[number - 1];
      between(claim.start);
      parts.push([number, sliced(said.answer, claim.start, claim.end)]);
      place = claim.end;
    }
    between(last + 2 >= numbered.length ? undefined : numbered[last + 1].end);
    return parts;
  };
  const spoken = judged.conversation.map((one) => [one.role, read.text(one.leaf)]).slice(-JUDGING.earlier);
  const earlier = spoken.filter(([, text]) => stripped(text)).map(([role, text]) => [role, signs(text, JUDGING.earlierCharacters)]);
  const question = examined.question === null ? "" : read.text(examined.question);
  const hashOf = async (value) => toHex(await sha256(utf8(value)));
  const own = read.text(judged.system);
  if (own !== null && judged.prompt.split("+").pop() !== (await hashOf(own)).slice(0, 12)) differ("judged.prompt", "it is not the hash of its text");
  let sent = [];
  for (const [place, call] of judged.calls.entries()) {
    const passages = call.passages.flatMap((number) => {
      const pieces = (call.pieces || []).filter((piece) => piece[0] === number);
      const { text } = said.passages[number - 1];
      return pieces.length ? pieces.map(([, start, end]) => [String(number), sliced(text, start, end)]) : [[String(number), text]];
    });
    const data = { ...(earlier.length ? { earlier } : {}), question: signs(question, JUDGING.questionCharacters),
      ...(examined.needs.length ? { needs: examined.needs.map((leaf, at) => [at + 1, read.text(leaf)]) } : {}),
      ...(stripped(said.system) ? { system: signs(said.system, JUDGING.systemCharacters) } : {}), passages,
      ...(new Set(call.passages).size < judged.passages ? { note: `${passages.length} of ${judged.passages} passages; others are read separately` } : {}),
      answer: answerOf(numbersOf(call, numbered.length)) };
    const id = (await hashOf(canonical(data))).slice(0, JUDGING.idDigits);
    if (id !== call.id) differ(`judged.calls[${place}].id`, "it is not the hash of what the judge was asked");
    // After a reply that could not be read, the same question is sent once more.
    const again = place > 0 && judged.calls[place - 1].id === id && judged.calls[place - 1].second === call.second;
    sent = again ? [...sent, ["assistant", said.replies[place - 1] || "-"], ["user", JUDGING.again]]
      : [["system", own], ["user", JSON.stringify({ id, ...data })]];
    if (own !== null && (await hashOf(canonical(sent))) !== call.prompt_hash) differ(`judged.calls[${place}].prompt_hash`, "it is not that of what was sent");
  }
  if (own === null && judged.calls.length) throw new NotHere("the judge's prompt is not in this copy");
}

// With its edits the original gives the answer; that they are the judge's corrections `verify` computes.
async function checkRepair(read, { repaired, examined }) {
  if (!repaired) return;
  const original = read.text(repaired.original);
  const { original_response_hash: hash } = JSON.parse(read.named("seal"));
  if (hash !== (await sealOf(original))) differ("seal.original_response_hash", "it is not the hash of the original");
  let [made, place] = ["", 0];
  for (const { start, end, leaf } of repaired.edits) {
    if (start < place) differ("repaired.edits", "they overlap");
    made += sliced(original, place, start) + (leaf === null ? "" : read.text(leaf));
    place = end;
  }
  if (made + sliced(original, place) !== read.text(examined.answer)) differ("repaired.edits", "with them the original does not give the answer");
}

const OUTCOMES = { deliver: "released", withhold: "halted", unreachable: "refused" };

async function checkPolicy({ policy }, { outcome }) {
  if (policy.hash !== (await sealOf(policy.text))) differ("policy.hash", "it is not the hash of the policy's text");
  if (policy.decision && OUTCOMES[policy.decision] !== outcome) {
    differ("chain.outcome", `it is ${line(outcome)}, by the decision ${OUTCOMES[policy.decision]}`);
  }
  const { halt } = policy.judgement || {};
  if (halt && policy.decision === "deliver" && !(policy.terms || {}).unanswered) differ("policy.decision", "the policy withholds the answer");
}

async function checkContents(opening, texts) {
  try {
    await checkDigest(opening);
    return await recomputed(opening, texts);
  } catch (error) {
    throw error instanceof Refused ? error : new Unreadable("this page cannot read the content");
  }
}

async function recomputed(opening, texts) {
  const { content, chain } = opening.predicate;
  await checkPolicy(content, chain);
  checkHere(opening, texts);
  const read = reader(opening, texts, content);
  checkExamined(read, content);
  await checkSelection(read, content);
  checkPrompt(read, content);
  const { response_hash: hash } = JSON.parse(read.named("seal"));
  if (!hash) throw new NotHere("the window has no seal");
  if (hash !== (await sealOf(read.named("answer")))) differ("seal.response_hash", "it is not the hash of the answer");
  if (content.examined && content.examined.judged) {
    await checkAsked(judgedOf(read, content, factsOf(read, content)), content, read);
  }
  await checkRepair(read, content);
  return "digest, candidates, context, prompt, the judge's questions, policy and outcome fit one another";
}
