// The word of a judge, read again from its recorded replies: statuses and level by the rules of
// `dpe/judge`. Its words and numbers are in JUDGING, which the package writes in front of this.

const BLANK = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;
const DIGIT = /[\p{Nd}\u1369-\u1371\u19da\u24f5-\u24fd\u24ff\u2776-\u277e\u2780-\u2788\u278a-\u2792\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}]/u;
const WRITTEN = /[\p{L}\p{N}]/u;
const CHEROKEE = /[\u13a0-\u13fd\uab70-\uabbf]/;

function trimmed(text, edge) {
  const signs = Array.from(text);
  let [from, to] = [0, signs.length];
  while (from < to && edge(signs[from])) from += 1;
  while (to > from && edge(signs[to - 1])) to -= 1;
  return signs.slice(from, to).join("");
}

const stripped = (text) => trimmed(text, (sign) => BLANK.test(sign));
const sliced = (text, start, end) => Array.from(text).slice(start, end).join("");

// Unicode's case folding: lower case by way of upper case, with two exceptions.
function foldedSign(sign) {
  return Array.from(sign.normalize("NFKC"), (one) => (CHEROKEE.test(one) ? one.toUpperCase()
    : one === "\u0131" ? one : one.toUpperCase().toLowerCase())).join("").replaceAll("\u2044", "/");
}

// A text as quotations are compared, and the character behind each unit of it.
function folded(original) {
  const [kept, places] = [[], []];
  let [blank, place] = [true, -1];
  for (const sign of original) {
    place += 1;
    if (JUDGING.dropped.includes(sign)) continue;
    const space = BLANK.test(sign);
    if (space && blank) continue;
    blank = space;
    const made = space ? " " : JUDGING.dashes.includes(sign) ? "-" : foldedSign(sign);
    kept.push(made);
    for (let unit = 0; unit < made.length; unit += 1) places.push(place);
  }
  return { text: kept.join(""), places };
}

const signAt = (text, at) => (at >= 0 && at < text.length ? String.fromCodePoint(text.codePointAt(at)) : "");
const signBefore = (text, at) => (at > 0 ? Array.from(text.slice(Math.max(0, at - 2), at)).pop() : "");

// No word or figure is cut: 2 does not stand in 12, nor in 2.5.
function uncut(text, at, end) {
  const [before, first, last, after] = [signBefore(text, at), signAt(text, at), signBefore(text, end), signAt(text, end)];
  const inner = (sign) => WRITTEN.test(sign) && sign.codePointAt(0) < JUDGING.unspaced;
  const point = (sign) => sign === "." || sign === ",";
  if ((inner(before) && inner(first)) || (inner(after) && inner(last))) return false;
  if (DIGIT.test(last) && point(after) && DIGIT.test(signAt(text, end + 1))) return false;
  return !(DIGIT.test(first) && point(before) && DIGIT.test(signBefore(text, at - 1)));
}

function placeOf({ text, places }, sought) {
  for (let at = text.indexOf(sought); at >= 0; at = text.indexOf(sought, at + 1)) {
    const end = at + sought.length;
    if (uncut(text, at, end)) return [places[at], places[end - 1] + 1];
  }
  return null;
}

// Where a quotation stands; what was left out with an ellipsis may be missing.
function located(quotation, target) {
  const pieces = quotation.replaceAll("...", "…").split("…")
    .map((piece) => trimmed(folded(piece).text, (sign) => JUDGING.edges.includes(sign)))
    .filter((piece) => WRITTEN.test(piece));
  let all = null;
  for (const piece of pieces) {
    const here = placeOf(target, piece);
    if (!here || (all && here[1] < all[0])) return null;
    all = all ? [Math.min(all[0], here[0]), Math.max(all[1], here[1])] : here;
  }
  return all;
}

// The JSON object that begins at a brace, and where it ends; null for none.
function objectAt(text, at) {
  let [depth, quoted] = [0, false];
  for (let place = at; place < text.length; place += 1) {
    const sign = text[place];
    if (quoted) {
      if (sign === "\\") place += 1;
      else if (sign === '"') quoted = false;
    } else if (sign === '"') quoted = true;
    else if (sign === "{" || sign === "[") depth += 1;
    else if ((sign === "}" || sign === "]") && --depth === 0) {
      try {
        return [JSON.parse(text.slice(at, place + 1)), place + 1];
      } catch {
        return null;
      }
    }
  }
  return null;
}

// The verdicts of a reply, behind thoughts, in a fence or cut off; null where there is none.
function replyOf(text, id) {
  const objects = [];
  for (let at = text.indexOf("{"); at >= 0;) {
    const read = objectAt(text, at);
    if (read) objects.push(read[0]);
    at = text.indexOf("{", read ? read[1] : at + 1);
  }
  const whole = objects.reverse().find((one) => one.id === id && Array.isArray(one.claims));
  if (whole) return verdictsOf(whole.claims, whole.unnumbered);
  const blank = `${BLANK.source}*`;
  const heads = [...text.matchAll(new RegExp(`"id"${blank}:${blank}"([0-9a-f]{16})"`, "g"))].filter((one) => one[1] === id);
  if (!heads.length) return null;
  const [head, item, items] = [heads.pop(), new RegExp(`\\{${blank}"n"${blank}:`, "g"), []];
  item.lastIndex = head.index + head[0].length;
  for (let next = item.exec(text); next; next = item.exec(text)) {
    const read = objectAt(text, next.index);
    if (!read) break;
    items.push(read[0]);
    item.lastIndex = read[1];
  }
  return items.length ? verdictsOf(items, null) : null;
}

function verdictsOf(items, unnumbered) {
  const [numbered, twice, others] = [new Map(), new Set(), []];
  for (const item of items) {
    const number = isObject(item) && Number.isInteger(item.n) ? item.n : null;
    const word = number === null ? null : wordOf(item);
    if (word === null) continue;
    if (numbered.has(number) && numbered.get(number).status !== word.status) twice.add(number);
    if (!numbered.has(number)) numbered.set(number, word);
  }
  for (const item of Array.isArray(unnumbered) ? unnumbered.slice(0, JUDGING.mostUnnumbered) : []) {
    const word = wordOf(item);
    if (word !== null && word.text) others.push(word);
  }
  for (const number of twice) numbered.delete(number);
  return { numbered, others };
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function wordOf(item) {
  const upper = (value) => (typeof value === "string" ? stripped(value).toUpperCase().replaceAll(" ", "_") : "");
  const text = (value) => (typeof value === "string"
    ? sliced(stripped(value.replace(/\p{Surrogate}/gu, "\ufffd")), 0, JUDGING.longestQuote) : "");
  const place = (value) => (Number.isInteger(value) ? String(value)
    : typeof value === "string" ? stripped(value).toLowerCase() : "");
  if (!isObject(item) || upper(item.status) === "NOT_CHECKED" || !JUDGING.first.includes(upper(item.status))) return null;
  const quotes = Array.isArray(item.quotes) ? item.quotes.slice(0, JUDGING.mostQuotes).filter(isObject) : [];
  return { status: upper(item.status), kind: JUDGING.kinds.find((kind) => kind === upper(item.kind)) || null,
    wrong: text(item.wrong), quotes: quotes.map((one) => [place(one.in), text(one.text)]), text: text(item.text) };
}

const UNCHECKED = { status: "NOT_CHECKED", error: null, wrong: null, quotations: [] };
const isFlagged = (claim) => claim.status === "CONTRADICTED" || claim.status === "UNSUPPORTED";

// A word is believed as far as its quotations stand where it says.
function believed(said, claim, word, shown) {
  if (!word) return UNCHECKED;
  const quotations = [];
  for (const [name, text] of word.quotes) {
    const source = sourceOf(said, name);
    const here = source && (!source.passage || shown.has(source.passage)) ? located(text, source.folded) : null;
    if (!here) return UNCHECKED;
    quotations.push({ fact_id: source.id, passage: source.passage, start: here[0], end: here[1] });
  }
  if (!quotations.length && (word.status === "SUPPORTED" || word.status === "CONTRADICTED")) return UNCHECKED;
  const wrong = isFlagged(word) && word.wrong ? located(word.wrong, folded(sliced(said.answer, claim.start, claim.end))) : null;
  return { status: word.status, quotations,
    error: isFlagged(word) ? word.kind || (word.status === "UNSUPPORTED" ? "OVERREACH" : null) : null,
    wrong: wrong && [claim.start + wrong[0], claim.start + wrong[1]] };
}

function sourceOf(said, name) {
  let key = trimmed(name, (sign) => " []#".includes(sign));
  key = stripped(key.startsWith("passage") ? key.slice(7) : key);
  const own = ["q", "question", "0"].includes(key) ? "question" : ["s", "system"].includes(key) ? "system" : "";
  if (own) return { id: own, passage: 0, folded: folded(said[own]) };
  const passage = /^[0-9]{1,9}$/.test(key) ? Number(key) : 0;
  if (passage < 1 || passage > said.passages.length) return null;
  return { id: said.passages[passage - 1].id, passage, folded: folded(said.passages[passage - 1].text) };
}

// Statuses by the replies; null where none can be read. Claims are those that have numbers.
function statusesOf(told, said, claims) {
  const heard = [];
  for (const [place, call] of told.calls.entries()) {
    const reply = call.error ? null : replyOf(said.replies[place], call.id);
    if (reply) heard.push({ ...call, ...reply, shown: new Set(call.passages) });
  }
  if (!heard.length) return null;
  const left = new Set(told.left_out.map(([id]) => id));
  const unread = said.passages.some((one) => left.has(one.id));
  const found = claims.map((claim, place) => {
    const asked = heard.filter((one) => one.first <= place + 1 && place + 1 <= one.last);
    const best = asked.map((one) => believed(said, claim, one.numbered.get(place + 1), one.shown))
      .sort((a, b) => JUDGING.first.indexOf(a.status) - JUDGING.first.indexOf(b.status))[0] || UNCHECKED;
    const shown = new Set(asked.flatMap((one) => [...one.shown]));
    // What was not read may say it.
    const open = best.status === "UNSUPPORTED" && (unread || shown.size < told.passages);
    return { ...claim, ...(open ? UNCHECKED : best) };
  });
  const [answer, more] = [folded(said.answer), new Map()];
  for (const { others, shown } of heard) {
    for (const word of others) {
      const here = located(word.text, answer);
      if (!here || more.has(here.join()) || claims.some((one) => one.start <= here[0] && here[1] <= one.end)) continue;
      const claim = { id: `u${more.size + 1}`, start: here[0], end: here[1], type: "FACTUAL" };
      more.set(here.join(), { ...claim, ...believed(said, claim, word, shown) });
    }
  }
  return [...found, ...more.values()].sort((a, b) => a.start - b.start || a.end - b.end);
}

// An answer is as risky as its worst claim; further ones only raise the score.
function levelOf(claims, mode) {
  let [worst, counted, open] = [0, 0, false];
  for (const claim of claims) {
    let level = "LOW";
    if (claim.status === "CONTRADICTED") level = "HIGH";
    else if (claim.status === "UNSUPPORTED") level = JUDGING.specific.includes(claim.error) ? "HIGH" : JUDGING.unsupported[mode];
    else if (claim.status === "NOT_CHECKED" && JUDGING.checkable.includes(claim.type)) [level, open] = ["MEDIUM", true];
    if (level !== "LOW" || claim.status === "UNSUPPORTED") counted += 1;
    worst = Math.max(worst, JUDGING.levels.indexOf(level));
  }
  const level = JUDGING.levels[worst];
  return { level, score: JUDGING.base[level] + JUDGING.further * Math.min(counted, JUDGING.mostFurther),
    verification: open ? "PARTIAL" : "VERIFIED" };
}

// Why, in at most five sentences, gravest first; quotations have their texts.
function reasonsOf(claims, answer, language) {
  const [said, grave] = [JUDGING.sentences[language], ["CONTRADICTED", "UNSUPPORTED", "NOT_CHECKED"]];
  const fill = (name, values) => said[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
  const quoted = (text) => {
    const flat = trimmed(text.split(BLANK).filter(Boolean).join(" "), (sign) => " .,;:".includes(sign));
    const cut = sliced(flat, 0, JUDGING.longestReason);
    const kept = cut === flat ? flat : `${cut.includes(" ") ? cut.slice(0, cut.lastIndexOf(" ")) : cut} …`;
    const figure = Array.from(kept).some((sign) => DIGIT.test(sign) || /^\p{Nd}$/u.test(sign.normalize("NFKC")));
    return kept.split(" ").length <= 2 && figure ? kept : `“${kept}”`;
  };
  const sentences = claims.filter((claim) => isFlagged(claim) || (claim.status === "NOT_CHECKED" && JUDGING.checkable.includes(claim.type)))
    .sort((a, b) => grave.indexOf(a.status) - grave.indexOf(b.status) || a.start - b.start)
    .map((claim) => {
      const wrong = quoted(sliced(answer, ...(claim.wrong || [claim.start, claim.end])));
      const [first] = claim.quotations;
      if (claim.status === "NOT_CHECKED") return fill("unchecked", { wrong });
      if (claim.status === "UNSUPPORTED") return fill("unsupported", { wrong });
      if (!first) return fill("contradicted bare", { wrong });
      const source = fill(first.passage ? "passage" : first.fact_id, { number: first.passage });
      return fill("contradicted", { wrong, source, quote: quoted(first.text) });
    }).map((one) => `${signAt(one, 0).toUpperCase()}${one.slice(signAt(one, 0).length)}.`);
  return [...new Set(sentences)].slice(0, JUDGING.mostReasons);
}
