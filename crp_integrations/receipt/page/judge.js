// The word of a judge, read again from its recorded replies: statuses and level by the rules of
// `dpe/judge`. Its words and numbers are in JUDGING, which the package writes in front of this.

const BLANK = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;
const DIGIT = /[\p{Nd}\xb2\xb3\xb9\u1369-\u1371\u19da\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u2474-\u247c\u2488-\u2490\u24ea\u24f5-\u24fd\u24ff\u2776-\u277e\u2780-\u2788\u278a-\u2792\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}\u{1f100}-\u{1f10a}]/u;
const NUMERAL = /^\p{Nd}/u;
const DECIMAL = /\.(?:\p{Nd}{1,2}|\p{Nd}{4,})$/u;
const WRITTEN = /[\p{L}\p{N}]/u;
const JOINS = /[\p{M}\u1160-\u11ff\uff9e\uff9f]/u;
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
const signAt = (signs, place) => signs[place] ?? "";
const isOf = (name, sign) => sign !== "" && JUDGING[name].includes(sign);

// Unicode's case folding: lower case by way of upper case, with some exceptions.
function foldedSign(sign) {
  if (CHEROKEE.test(sign)) return sign.toUpperCase();
  return sign === "\u0131" ? sign : sign === "\u1e9e" ? "ss" : sign.toUpperCase().toLowerCase();
}

// A sign with the marks on it; one for an accent alone would be a blank with that accent.
function foldedCluster(cluster) {
  const found = cluster.normalize("NFKC");
  return Array.from(BLANK.test(signAt(found, 0)) ? cluster : found, foldedSign).join("").replaceAll("\u2044", "/");
}

const SETTINGS = new RegExp(JUDGING.settings, "gu");
const FORMULA = new RegExp(JUDGING.formula, "uy");
const HYPHENATION = JUDGING.hyphenation;

// The signs of a text without its typesetting, as `language.typeset_text` undoes it, with offsets.
function unset(text) {
  const made = { signs: [], starts: [], ends: [] };
  let [at, place, formula] = [0, 0, false];
  const braces = [];
  const put = (sign, length) => {
    if (sign) {
      made.signs.push(sign);
      made.starts.push(place);
      made.ends.push(place + length);
    }
    place += length;
  };
  const keep = (piece) => { for (const sign of piece) put(sign, 1); };
  for (const match of text.matchAll(SETTINGS)) {
    const [whole, reference, escaped, command, comma, symbol, space, brace, dollar, hyphen, identifier] = match;
    keep(text.slice(at, match.index));
    at = match.index + whole.length;
    let sign = null;
    if (reference) sign = referred(reference);
    else if (symbol) sign = JUDGING.symbols[symbol];
    else if (escaped || comma || space) sign = space ? " " : escaped || comma;
    else if (command) {
      braces.push(true);
      sign = "";
    } else if (brace === "{") braces.push(false);
    else if (brace) sign = braces.pop() ? "" : null;
    else if (dollar) {
      FORMULA.lastIndex = match.index;
      if (formula || FORMULA.test(text)) [formula, sign] = [!formula, ""];
    } else if (hyphen) sign = hyphenOf(hyphen, text, match.index, at);
    else if (identifier) {
      for (const each of whole) put(isOf("separated", each) ? "" : each, 1);
      continue;
    }
    if (sign === null) keep(whole);
    else put(sign, Array.from(whole).length);
  }
  keep(text.slice(at));
  return made;
}

function referred(name) {
  if (name[0] !== "#") return Object.hasOwn(JUDGING.references, name) ? JUDGING.references[name] : null;
  const code = /^#x/i.test(name) ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
  return (code > 0 && code < 0xd800) || (code > 0xdfff && code < 0x110000) ? String.fromCodePoint(code) : null;
}

// What a hyphen before a line's end stands for; null where it is a dash or a bullet.
function hyphenOf(hyphen, text, start, end) {
  const [before, behind] = [Array.from(text.slice(Math.max(0, start - 2), start)).pop() ?? "", Array.from(text.slice(end, end + 2))[0] ?? ""];
  if (!WRITTEN.test(before) || !WRITTEN.test(behind)) return null;
  if (hyphen === "\xad") return "";
  return /\p{L}/u.test(before) && /\p{Lowercase}/u.test(behind) ? HYPHENATION : "-";
}

// A text as quotations are compared: its signs, where each is from, and where a mark was left out.
function folded(original) {
  const { signs, starts, ends } = unset(original);
  const made = { signs: [], starts: [], ends: [], apart: new Set() };
  let [blank, place] = [true, 0];
  const keep = (told, first) => {
    for (const sign of told) {
      made.signs.push(sign);
      made.starts.push(starts[first]);
      made.ends.push(ends[place - 1]);
    }
  };
  while (place < signs.length) {
    const [first, sign] = [place, signs[place]];
    place += 1;
    if (isOf("nothing", sign)) continue;
    if (BLANK.test(sign)) {
      if (!blank) keep(" ", first);
      blank = true;
    } else if (isOf("marks", sign)) {
      while (isOf("marks", signAt(signs, place))) place += 1;
      if (!DIGIT.test(signAt(signs, first - 1)) || !DIGIT.test(signAt(signs, place))) made.apart.add(made.signs.length);
      else keep(isOf("apostrophes", sign) ? "'" : sign === "*" ? "*" : '"', first);
    } else {
      blank = false;
      while (JOINS.test(signAt(signs, place))) place += 1;
      let told = isOf("dashes", sign) ? "-" : foldedCluster(signs.slice(first, place).join(""));
      // A power or a fraction behind a figure is no further digit of it.
      const further = DIGIT.test(signAt(made.signs, made.signs.length - 1)) && DIGIT.test(Array.from(told)[0]);
      if (further && !NUMERAL.test(sign)) told = (told.includes("/") ? " " : "^") + told;
      keep(told, first);
    }
  }
  return made;
}

// Whether a sign is one of a word or figure that blanks stand around.
function isInner(sign) {
  if (DIGIT.test(sign)) return true;
  const code = sign.codePointAt(0);
  return (WRITTEN.test(sign) || JOINS.test(sign)) && !JUDGING.unspaced.some(([low, high]) => low <= code && code <= high);
}

// Whether what stands before and behind a place is one.
function isCut({ signs, starts, apart }, place) {
  if (place < 1 || place >= signs.length || apart.has(place)) return false;
  const [before, behind] = [signs[place - 1], signs[place]];
  return JOINS.test(behind) || before === HYPHENATION || behind === HYPHENATION
    || (starts[place - 1] === starts[place] && !isOf("stops", before) && !isOf("stops", behind))
    || (" ^".includes(behind) && starts[place] === starts[place + 1])
    || (isInner(before) && isInner(behind))
    || (isOf("hanFigures", before) && isOf("hanFigures", behind));
}

function figuresAt(signs, place) {
  let end = place;
  while (NUMERAL.test(signAt(signs, end))) end += 1;
  return end - place;
}

// Whether more figures than a group of thousands has end at a place.
function isMany(signs, end) {
  const figures = signs.slice(Math.max(0, end - JUDGING.group - 1), end);
  return figures.length > JUDGING.group && figures.every((sign) => NUMERAL.test(sign));
}

// Whether a comma parts figures of a row, as in 38,12,26, and no groups of one figure.
function inList(signs, place) {
  const inside = (sign) => sign === "," || DIGIT.test(sign || "");
  let [first, last] = [place, place];
  while (first && inside(signs[first - 1])) first -= 1;
  while (last < signs.length && inside(signs[last])) last += 1;
  const figures = signs.slice(first, last).join("").replace(/^,+|,+$/g, "").split(",").map((one) => Array.from(one).length);
  return figures.length > 2 && figures.slice(1).some((size) => size !== JUDGING.group);
}

const isWord = (sign) => WRITTEN.test(sign) || (sign !== "" && ")]%°-".includes(sign));

// Whether a figure begins here behind another one and what makes them one.
function isBehindSeparator({ signs, apart }, place) {
  if (place < 1 || apart.has(place)) return false;
  const [earlier, before, first] = [signAt(signs, place - 2), signs[place - 1], signs[place]];
  if (isOf("separators", first)) return DIGIT.test(before) && DIGIT.test(signAt(signs, place + 1));
  if (!isOf("separators", before) || !DIGIT.test(first)) return false;
  if (before === "." && !isWord(earlier) && earlier !== ".") return true;
  if (before === "," && inList(signs, place)) return false;
  return DIGIT.test(earlier) && (before !== "," || (figuresAt(signs, place) === JUDGING.group && !isMany(signs, place - 1)));
}

// Whether a figure ends here in front of what makes it one with the next.
function isBeforeSeparator({ signs, apart }, place, end) {
  if (end + 1 >= signs.length || apart.has(end) || !isOf("separators", signs[end])) return false;
  const figures = figuresAt(signs, end + 1);
  if (!figures || !DIGIT.test(signs[end - 1])) return false;
  if (signs[end] === "," && inList(signs, end)) return false;
  const separate = figures === JUDGING.group && isMany(signs, end);
  return signs[end] !== "," || !(separate || figures > JUDGING.group || DECIMAL.test(signs.slice(place, end).join("")));
}

// Whether a figure begins here that has a sign before it: 5 does not stand in -5.
function isSigned({ signs }, place) {
  return signAt(signs, place - 1) === "-" && (DIGIT.test(signs[place]) || /\p{Sc}/u.test(signs[place])) && !isWord(signAt(signs, place - 2));
}

// Where words end that begin at a place, 0 for nowhere; hyphens of line ends may lack.
function endOf({ signs }, words, start) {
  let place = start;
  for (const word of words) {
    if (word === HYPHENATION) {
      if (signs[place] === "-" || signs[place] === HYPHENATION) place += 1;
      continue;
    }
    if (signs[place] === HYPHENATION && word !== "-" && place > start) place += 1;
    if (signs[place] !== word && !(word === "-" && signs[place] === HYPHENATION)) return 0;
    place += 1;
  }
  return place;
}

// Each place where folded words stand and no word or figure is cut.
function* placesOf(text, words) {
  for (let place = 0; words.length && place < text.signs.length; place += 1) {
    const end = endOf(text, words, place);
    if (end <= place) continue;
    if (isCut(text, place) || isCut(text, end) || isSigned(text, place)) continue;
    if (!isBehindSeparator(text, place) && !isBeforeSeparator(text, place, end)) yield [text.starts[place], text.ends[end - 1]];
  }
}

function foldedWords(quotation) {
  const { signs } = folded(quotation);
  let [from, to] = [0, signs.length];
  while (from < to && isOf("edges", signs[from])) from += 1;
  while (to > from && isOf("edges", signs[to - 1])) to -= 1;
  const first = signAt(signs, from);
  // The point of .5 is a part of the figure, and what a mark stands on is one with it.
  const point = DIGIT.test(first) && signAt(signs, from - 1) === "." && signAt(signs, from - 2) !== ".";
  return signs.slice(point || JOINS.test(first) ? Math.max(0, from - 1) : from, to);
}

const isSaid = (words) => words.some((sign) => WRITTEN.test(sign));

// Where a quotation stands, rather within none of some spans; an ellipsis may stand for words.
function located(quotation, text, spans = []) {
  const whole = foldedWords(quotation);
  if (!isSaid(whole)) return null;
  let found = null;
  for (const place of placesOf(text, whole)) {
    if (!spans.some(([start, end]) => start <= place[0] && place[1] <= end)) return place;
    found = found || place;
  }
  if (found) return found;
  const pieces = quotation.replaceAll("...", "…").split("…").map(foldedWords).filter(isSaid);
  for (const piece of pieces.length < 2 ? [] : pieces) {
    let here = null;
    for (const place of placesOf(text, piece)) {
      if (place[0] < (found ? found[1] : 0)) continue;
      here = place;
      break;
    }
    if (!here) return null;
    found = found ? [found[0], here[1]] : here;
  }
  return found;
}

function isSame(one, other) {
  const [a, b] = [one, other].map((value) => (typeof value === "boolean" ? Number(value) : value));
  if (a instanceof Map && b instanceof Map) return a.size === b.size && [...a].every(([name, value]) => b.has(name) && isSame(value, b.get(name)));
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((value, at) => isSame(value, b[at]));
  return a === b;
}

// The JSON value that begins at a place, and where it ends; null for none. Objects are maps, without
// fields that stand twice with two values; texts may have raw line breaks.
function jsonAt(text, from) {
  let at = from;
  const fail = () => { throw new SyntaxError("no JSON"); };
  const take = (form) => {
    form.lastIndex = at;
    const [found] = form.exec(text) || fail();
    at += found.length;
    return found;
  };
  const blank = () => take(/[ \t\n\r]*/y);
  const quoted = () => JSON.parse(take(/"[^"\\]*(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\]*)*"/y)
    .replace(/[\0-\x1f]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16).padStart(2, "0")}`));
  const each = (close, item) => {
    at += 1;
    blank();
    for (let more = text[at] !== close; more;) {
      item();
      blank();
      more = text[at] === ",";
      if (more) take(/,[ \t\n\r]*/y);
    }
    if (text[at] !== close) fail();
    at += 1;
  };
  const value = () => {
    if (text[at] === '"') return quoted();
    if (text[at] === "[") {
      const items = [];
      each("]", () => items.push(value()));
      return items;
    }
    if (text[at] === "{") {
      const [fields, twice] = [new Map(), []];
      each("}", () => {
        const name = quoted();
        blank();
        take(/:/y);
        blank();
        const told = value();
        if (fields.has(name) && !isSame(fields.get(name), told)) twice.push(name);
        fields.set(name, told);
      });
      for (const name of twice) fields.delete(name);
      return fields;
    }
    return JSON.parse(take(/true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y));
  };
  try {
    return [value(), at];
  } catch {
    return null;
  }
}

// The verdicts of a reply, behind thoughts, in a fence or another object, or cut off; null for none,
// and for two that differ.
function replyOf(written, id) {
  const text = written.replace(/^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*<(think|thinking|reasoning|scratchpad)>[^]*?<\/\1>/i, "");
  const said = [];
  let last = 0;
  for (let [at, left] = [text.indexOf("{"), JUDGING.mostBraces]; at >= 0 && left > 0; left -= 1) {
    const read = jsonAt(text, at);
    for (const one of read ? [read[0], ...read[0].values()] : []) {
      if (!(one instanceof Map) || one.get("id") !== id || !one.has("claims")) continue;
      said.push(one);
      last = read[1];
    }
    at = text.indexOf("{", read ? read[1] : at + 1);
  }
  if (!said.length) return cutOff(text, id);
  if (said.some((one) => !isSame(one, said[0])) || !Array.isArray(said[0].get("claims")) || begunAt(text, id, last) !== null) return null;
  return verdictsOf(said[0].get("claims"), said[0]);
}

// Where the list of claims begins in an object that did not come whole; null for none.
function begunAt(text, id, start) {
  const blank = `${BLANK.source}*`;
  const form = ['"id"', ":", '"([0-9a-f]{16})"', ",", '"claims"', ":", "\\["].join(blank);
  const head = [...text.matchAll(new RegExp(form, "g"))].filter((one) => one[1] === id && one.index >= start).pop();
  return head ? head.index + head[0].length : null;
}

// The verdicts that came whole in an object that did not; null for none.
function cutOff(text, id) {
  const items = [];
  for (let at = begunAt(text, id, 0); at !== null;) {
    while (at < text.length && (text[at] === "," || BLANK.test(text[at]))) at += 1;
    const read = jsonAt(text, at);
    if (!read) return items.length ? verdictsOf(items, new Map()) : null;
    items.push(read[0]);
    at = read[1];
  }
  return null;
}

function verdictsOf(items, reply) {
  const [numbered, twice] = [new Map(), new Set()];
  for (const item of items) {
    const number = item instanceof Map ? numberOf(item.get("n")) : null;
    if (number === null) continue;
    const word = wordOf(item);
    if (numbered.has(number) && JSON.stringify(numbered.get(number)) !== JSON.stringify(word)) twice.add(number);
    if (!numbered.has(number)) numbered.set(number, word);
  }
  for (const number of twice) numbered.delete(number);
  const [others, conflicts] = [reply.get("unnumbered"), reply.get("conflicts")];
  const opposed = (Array.isArray(conflicts) ? conflicts.slice(0, JUDGING.mostListed) : []).filter((one) => one instanceof Map)
    .map((one) => [...new Set((Array.isArray(one.get("claims")) ? one.get("claims") : []).slice(0, JUDGING.mostListed).map(numberOf))]);
  return { numbered, opposed, others: (Array.isArray(others) ? others.slice(0, JUDGING.mostListed) : []).map(wordOf).filter((word) => word && word.text) };
}

function numberOf(value) {
  if (typeof value === "string") return /^[0-9]{1,9}$/.test(stripped(value)) ? Number(stripped(value)) : null;
  return Number.isInteger(value) ? value : null;
}

function wordOf(item) {
  const upper = (value) => (typeof value === "string" ? stripped(value).toUpperCase().replaceAll(" ", "_") : "");
  const text = (value) => (typeof value === "string"
    ? sliced(stripped(value.replace(/\p{Surrogate}/gu, "\ufffd")), 0, JUDGING.longestQuote) : "");
  const place = (value) => (Number.isInteger(value) ? String(value)
    : typeof value === "string" ? stripped(sliced(value, 0, JUDGING.longestName)).toLowerCase() : "");
  const status = item instanceof Map ? upper(item.get("status")) : "";
  if (status === "NOT_CHECKED" || !JUDGING.first.includes(status)) return null;
  const quotes = Array.isArray(item.get("quotes")) ? item.get("quotes").slice(0, JUDGING.mostQuotes) : [];
  return { status, kind: JUDGING.kinds.find((kind) => kind === upper(item.get("kind"))) || null,
    wrong: text(item.get("wrong")), text: text(item.get("text")),
    fix: typeof item.get("fix") === "string" ? text(item.get("fix")) : null,
    reason: sliced(text(item.get("reason")), 0, JUDGING.longestSaid),
    quotes: quotes.filter((one) => one instanceof Map && one.get("text") !== "").map((one) => [place(one.get("in")), text(one.get("text"))]) };
}

const UNCHECKED = { status: "NOT_CHECKED", error: null, wrong: null, quotations: [], disputed: false };
const isFlagged = (claim) => claim.status === "CONTRADICTED" || claim.status === "UNSUPPORTED";

// --- which quotations count (dpe/judge/belief.py) ---

const isUnspaced = (sign) => JUDGING.unspaced.some(([low, high]) => low <= sign.codePointAt(0) && sign.codePointAt(0) <= high);
const isLetter = (sign) => sign !== "" && /[\p{L}\p{N}\p{M}]/u.test(sign) && !DIGIT.test(sign);
const foldedCase = (word) => Array.from(word, foldedSign).join("");
const shared = (one, other) => [...one].filter((word) => other.has(word)).length;

function piecesOf(text) {
  const [signs, pieces] = [Array.from(text), []];
  for (let place = 0; place < signs.length;) {
    const first = place;
    place += 1;
    if (DIGIT.test(signs[first])) {
      while (DIGIT.test(signAt(signs, place)) || (isOf("separators", signAt(signs, place)) && DIGIT.test(signAt(signs, place + 1)))) place += 1;
    } else if (isLetter(signs[first]) && !isUnspaced(signs[first])) {
      while (isLetter(signAt(signs, place)) && !isUnspaced(signs[place])) place += 1;
    }
    pieces.push(signs.slice(first, place).join(""));
  }
  return pieces;
}

// What a text is about: its values, names, and families of words that carry content.
function matterOf(text) {
  const found = { values: new Set(), names: new Set(), words: new Set(), count: 0 };
  let [begins, before] = [true, ""];
  for (const written of piecesOf(text.normalize("NFKC"))) {
    const [first] = Array.from(written);
    const word = foldedCase(written);
    if (DIGIT.test(first)) {
      found.values.add(Array.from(word).filter((sign) => !isOf("separators", sign)).join("").replace(/^0+/, "") || "0");
    } else if (!isLetter(first)) {
      begins = begins || JUDGING.ends.includes(written);
      before = BLANK.test(written) ? before : "";
      continue;
    } else if (isUnspaced(Array.from(word)[0])) {
      if (before) found.words.add(before + word);
    } else if (Array.from(word).length >= JUDGING.leastLetters && !JUDGING.functionWords.includes(word)) {
      const family = sliced(word.replace(/s$/, ""), 0, JUDGING.family);
      found.words.add(family);
      if (first !== Array.from(word)[0] && !begins) found.names.add(family);
    }
    found.count += 1;
    [before, begins] = [isUnspaced(Array.from(word)[0]) ? word : "", false];
  }
  return found;
}

const lettersOf = (text) => new Set(piecesOf(text).filter((piece) => isLetter(Array.from(piece)[0])).map(foldedCase));

function lineAround(text, start, end) {
  const [before, behind] = [sliced(text, 0, start), sliced(text, end)];
  const first = Math.max(0, ...JUDGING.sentenceEnds.filter((stop) => before.includes(stop)).map((stop) => before.lastIndexOf(stop) + stop.length));
  const last = Math.min(behind.length, ...JUDGING.sentenceEnds.filter((stop) => behind.includes(stop)).map((stop) => behind.indexOf(stop)));
  return before.slice(first) + sliced(text, start, end) + behind.slice(0, last);
}

const isRow = (line) => line.includes("|") || (line.includes(":") && stripped(line.slice(line.indexOf(":") + 1)) !== ""
  && line.slice(0, line.indexOf(":")).split(BLANK).filter(Boolean).length <= JUDGING.leastWords);

function isVerdict(line) {
  const own = lettersOf(line);
  return JUDGING.verdicts.some((word) => own.has(word)) && JUDGING.judged.some((word) => own.has(word));
}

const claimMatter = (text) => matterOf(text.replace(new RegExp(JUDGING.citation, "gi"), " "));

// What all claims of an answer are held against.
function beliefOf(said) {
  const texts = [...said.passages.map((one) => one.text), said.system];
  const [own, there, question] = [lettersOf(said.answer), lettersOf(texts.join("\n")), matterOf(said.question)];
  return { question, topic: matterOf(`${said.answer}\n${said.question}`),
    known: new Set([...question.values, ...texts.flatMap((text) => [...matterOf(text).values])]),
    translated: shared(own, there) * 100 < JUDGING.sameLanguage * own.size };
}

// Whether some words are a whole cell of a table, a list or a record.
function isCell(text, start, end) {
  const signs = Array.from(text);
  const edge = (sign) => " \"'*`".includes(sign);
  let [before, behind] = [start - 1, end];
  while (before >= 0 && edge(signs[before])) before -= 1;
  while (behind < signs.length && edge(signs[behind])) behind += 1;
  return (before < 0 || JUDGING.cellBegins.includes(signs[before])) && (behind === signs.length || JUDGING.cellEnds.includes(signs[behind]));
}

// Whether a quotation says anything of a claim; values are those of all quotations of the claim.
function isCounting(said, claim, text, source, [start, end], values) {
  const { question, topic, known, translated } = said.belief;
  const within = (one, other) => shared(one, other) === one.size;
  if (source.id === "question" && !source.passage) {
    const next = Array.from(sliced(said.question, end)).find((sign) => JUDGING.clauseEnds.includes(sign));
    return !JUDGING.asking.includes(next) && within(claim.values, question.values) && claim.values.size + claim.words.size > 0
      && 2 * shared(claim.words, question.words) >= claim.words.size;
  }
  const found = text.replaceAll("...", "…").split("…").map(matterOf).reduce((best, one) => (one.count > best.count ? one : best));
  const line = lineAround(source.text, start, end);
  const around = matterOf(line);
  const alike = shared(found.values, claim.values);
  if (isVerdict(line)) return alike + shared(found.words, claim.words) > 1;
  const stated = (value) => claim.values.has(value) && question.values.has(value);
  if (!within(claim.values, known) && [...values].every(stated)) return false;
  if (alike) return true;
  const cell = isCell(source.text, start, end);
  const short = found.count < JUDGING.leastWords;
  if (short) {
    const telling = found.values.size ? values.size > 1 || !claim.values.size
      : found.words.size > 0 && (cell || shared(found.words, around.names) > 0);
    if (!telling) return false;
  }
  if (shared(around.words, claim.words) || shared(around.values, claim.values)) return true;
  if (!source.passage || (!within(claim.values, question.values) && !values.size)) return false;
  if (translated && (values.size || claim.values.size + claim.names.size === 0)) return !short;
  if (shared(around.words, topic.words)) return true;
  return (cell || isRow(line)) && shared(matterOf(source.text).words, topic.words) > 0;
}

function sentencesOf(text) {
  const stops = new RegExp(`(${JUDGING.sentenceEnds.map((stop) => stop.replace(/[.?]/g, "\\$&")).join("|")})`);
  const sentences = [];
  let place = 0;
  for (const [at, piece] of text.split(stops).entries()) {
    const end = place + Array.from(piece).length;
    if (at % 2 === 0 && stripped(piece)) sentences.push([place, end]);
    place = end;
  }
  return sentences;
}

function withNeighbours(words, text, [start, end]) {
  const sentences = sentencesOf(text);
  const own = sentences.flatMap(([first, last], at) => (first < end && start < last ? [at] : []));
  if (!own.length) return words;
  const rows = sentences.map(([first, last]) => isRow(sliced(text, first, last)));
  let [first, last] = [own[0], own[own.length - 1]];
  while (first > 0 && rows[first] && rows[first - 1]) first -= 1;
  while (last + 1 < rows.length && rows[last] && rows[last + 1]) last += 1;
  return sliced(text, sentences[Math.max(0, first - 1)][0], sentences[Math.min(rows.length - 1, last + 1)][1]);
}

// Whether a claim is about another place of the evidence than the one that is quoted.
function isElsewhere(said, claim, quoted, values) {
  if (values.size > 1 || quoted.some(({ source }) => source.id === "question" && !source.passage)) return false;
  said.sentences = said.sentences || [...said.passages.map((one) => one.text), said.system]
    .flatMap((text) => sentencesOf(text).map(([start, end]) => matterOf(sliced(text, start, end))));
  const best = Math.max(0, ...said.sentences.map((one) => shared(claim.words, one.words) + shared(claim.values, one.values)));
  if (best < JUDGING.leastShared) return false;
  const around = quoted.map(({ words, source, here }) => matterOf(withNeighbours(words, source.text, here)));
  const all = (part) => new Set(around.flatMap((one) => [...one[part]]));
  return 2 * (shared(claim.words, all("words")) + shared(claim.values, all("values"))) <= best;
}

// Whether a claim cannot be one that asserts nothing: it has a value or a name of its own.
function isAsserting(said, claim, text) {
  if (claim.type === "META" || /^[ \t|]*\n[ \t]*\|?[ \t]*:?--/.test(sliced(said.answer, claim.end))) return false;
  const found = claimMatter(text);
  const { question } = said.belief;
  const german = shared(new Set(JUDGING.german), new Set(piecesOf(text).map(foldedCase))) >= JUDGING.mostGerman;
  return shared(found.values, question.values) < found.values.size || (!german && shared(found.names, question.words) < found.names.size);
}

// What exact comparison, or the document's arithmetic, found of a claim before the judge; null for nothing.
function exactOf(said, claim) {
  const findings = claim.findings || [];
  const errors = said.measured ? JUDGING.measured : JUDGING.errors;
  const first = findings.find((one) => errors[one.kind]);
  if (!first || rejectionOf(claim)) return null;
  const error = errors[first.kind];
  const at = first.evidence && !said.measured ? said.passages.findIndex((one) => one.id === first.evidence.fact_id) : -1;
  return { status: error === "INVENTION" ? "UNSUPPORTED" : "CONTRADICTED", error, wrong: [first.start, first.end], disputed: false,
    quotations: at < 0 ? [] : [{ fact_id: first.evidence.fact_id, passage: at + 1, start: first.evidence.start, end: first.evidence.end }] };
}

// A word is believed as far as its quotations stand where it says, and say anything of the claim.
function believed(said, claim, word, shown) {
  const exact = exactOf(said, claim);
  const unread = exact || UNCHECKED;
  if (!word) return unread;
  const text = sliced(said.answer, claim.start, claim.end);
  const stand = [];
  for (const [name, words] of word.quotes) {
    const source = sourceOf(said, name);
    const here = source && (!source.passage || shown.has(source.passage)) ? located(words, source.folded) : null;
    if (here) stand.push({ words, source, here });
  }
  const quotations = stand.map(({ source, here }) => ({ fact_id: source.id, passage: source.passage, start: here[0], end: here[1] }));
  if (word.status === "SUPPORTED") {
    const [matter, values] = [claimMatter(text), new Set(stand.flatMap(({ words }) => [...matterOf(words).values]))];
    const counting = stand.filter(({ words, source, here }) => isCounting(said, matter, words, source, here, values));
    if (!counting.length || isElsewhere(said, matter, stand, values)) return unread;
    const found = exact ? matterOf(sliced(said.answer, ...(exact.wrong || [claim.start, claim.end]))).values : new Set();
    const explained = found.size && counting.some(({ source, here }) => source.passage && !exact.quotations.some((one) => one.fact_id === source.id)
      && shared(found, matterOf(sliced(source.text, ...here)).values) === found.size);
    const disputed = Boolean(exact && !explained);
    return { ...UNCHECKED, status: "SUPPORTED", quotations, disputed, wrong: disputed ? exact.wrong : null };
  }
  if (word.status === "NOT_CHECKABLE") return exact || isAsserting(said, claim, text) ? unread : { ...UNCHECKED, status: "NOT_CHECKABLE" };
  if (stand.length < word.quotes.length || (word.status === "CONTRADICTED" && !stand.length)) {
    // It was held against the answer, so what it is about asserts something.
    return exact || !word.quotes.length ? unread : { ...UNCHECKED, type: "FACTUAL" };
  }
  if (exact && word.status === "UNSUPPORTED") return exact;
  const wrong = word.wrong ? located(word.wrong, folded(text)) : null;
  return { status: word.status, quotations, disputed: false, error: word.kind || (word.status === "UNSUPPORTED" ? "OVERREACH" : null),
    wrong: wrong && [claim.start + wrong[0], claim.start + wrong[1]] };
}

function sourceOf(said, name) {
  let key = trimmed(name, (sign) => " []#().".includes(sign));
  key = stripped(key.startsWith("passage") ? key.slice(7) : key);
  const own = ["q", "question", "0"].includes(key) ? "question" : ["s", "system"].includes(key) ? "system" : "";
  if (own) return { id: own, passage: 0, text: said[own], folded: folded(said[own]) };
  const passage = /^[0-9]{1,9}$/.test(key) ? Number(key) : 0;
  if (passage < 1 || passage > said.passages.length) return null;
  const source = said.passages[passage - 1];
  source.folded = source.folded || folded(source.text);
  return { id: source.id, passage, text: source.text, folded: source.folded };
}

const rejectionOf = (claim) => (claim.findings || []).find((one) => one.kind === JUDGING.rejected);

// A claim that repeats what a sub-agent's report rejected is flagged where nothing supports it.
function withRejection(claim) {
  const found = rejectionOf(claim);
  if (!found || claim.status === "SUPPORTED" || claim.status === "CONTRADICTED") return claim;
  return { ...claim, status: "UNSUPPORTED", error: "INVENTION", wrong: [found.start, found.end], quotations: [] };
}

// Numbers of the claims of a call, up to the last one.
const numbersOf = (call, most) => call.claims || Array.from({ length: Math.max(0, Math.min(call.last, most) - call.first + 1) }, (_, at) => call.first + at);

// Statuses by the replies; null where none can be read. Claims are those that have numbers.
function statusesOf(told, said, claims) {
  const calls = [];
  said.belief = beliefOf(said);
  for (const [place, call] of told.calls.entries()) {
    const reply = call.error ? null : replyOf(said.replies[place], call.id);
    if (reply) calls.push({ ...call, ...reply, shown: new Set(call.passages) });
  }
  if (!calls.length) return null;
  const left = new Set(told.left_out.map(([id]) => id));
  // A passage without words may be a picture; without any evidence nothing is unsupported.
  const bare = !said.passages.length && !WRITTEN.test(said.system) && said.grounding === "context-preferred";
  const unread = ["question", "system"].some((name) => left.has(name)) || bare
    || said.passages.some((one) => left.has(one.id) || !WRITTEN.test(one.text));
  // What several calls, each with other passages, come to.
  const merged = (claim, heard) => {
    const best = heard.map(([word, shown]) => believed(said, claim, word, shown))
      .sort((a, b) => JUDGING.first.indexOf(a.status) - JUDGING.first.indexOf(b.status))[0] || exactOf(said, claim) || UNCHECKED;
    const shown = new Set(heard.flatMap(([, there]) => [...there]));
    // What was not read may say it.
    const open = best.status === "UNSUPPORTED" && !exactOf(said, claim) && (unread || shown.size < told.passages);
    return withRejection({ ...claim, ...(open ? UNCHECKED : best) });
  };
  // The second judge's word, where it was asked and settles the claim.
  const again = new Set(calls.filter((one) => one.second).flatMap((one) => numbersOf(one, claims.length)));
  const found = claims.map((claim, place) => {
    const heard = (second) => calls.filter((one) => Boolean(one.second) === second && numbersOf(one, claims.length).includes(place + 1))
      .map((one) => [one.numbered.get(place + 1), one.shown]);
    const later = again.has(place + 1) ? merged(claim, heard(true)) : UNCHECKED;
    return later.status === "NOT_CHECKED" ? merged(claim, heard(false)) : later;
  });
  const [answer, spans, more, added] = [folded(said.answer), claims.map((one) => [one.start, one.end]), new Map(), []];
  for (const { others, shown, second } of calls) {
    for (const word of others) {
      const here = located(word.text, answer, spans);
      if (here) more.set(here.join(), [here, [...(more.get(here.join()) || [here, []])[1], [word, shown, second]]]);
    }
  }
  for (const [[start, end], all] of more.values()) {
    const last = all.filter(([, , second]) => second);
    const heard = last.length ? last : all;
    const around = found.filter((one) => one.start <= start && end <= one.end);
    const claim = merged({ id: `u${added.length + 1}`, start, end, type: "FACTUAL", sentence: -1 }, heard);
    // Words within a numbered claim count only where they are flagged and it is not.
    if (!around.length || (isFlagged(claim) && !around.some(isFlagged))) added.push(claim);
  }
  const made = [...found, ...added].sort((a, b) => a.start - b.start || a.end - b.end);
  // Claims that cannot all be true, as a judge names them.
  made.conflicts = calls.some((one) => one.opposed.some((numbers) => {
    const asked = numbers.filter((n) => numbersOf(one, claims.length).includes(n));
    return asked.length > 1 && (one.second || !asked.every((n) => again.has(n)));
  }));
  return made;
}

// Whether a claim asserts something and nobody read it.
const isUnread = (claim) => claim.status === "NOT_CHECKED";

// Whether a text brings a datum up: a name by its words, all else as a whole.
function isRepeated(datum, known) {
  const words = (text) => text.match(/[\p{L}\p{Nl}\p{No}]{3,}/gu) || [];
  const letters = (text) => text.replace(/[^\p{L}\p{N}]/gu, "");
  const [own, others] = [datum.toLowerCase(), known.toLowerCase()];
  const named = words(own);
  if (!named.length || /[\p{Nd}@]/u.test(own)) return letters(others).includes(letters(own));
  const brought = new Set(words(others));
  return named.every((word) => brought.has(word));
}

// An answer is as risky as its worst claim; further ones only raise the score. What is at stake:
// a registered high-risk use, and the sentences with personal data that the answer brings up.
function levelOf(claims, { mode, answer, highRisk, personal }) {
  let [worst, counted, read, unread] = [0, 0, 0, 0];
  const rank = (level) => JUDGING.levels.indexOf(level);
  const touched = claims.filter((claim) => personal.some((one) => one.start < claim.end && claim.start < one.end));
  const sentences = new Set(touched.map((claim) => claim.sentence).filter((sentence) => sentence >= 0));
  for (const claim of claims) {
    let level = rank(claim.disputed || (claim.findings || []).some((one) => JUDGING.doubts.includes(one.kind)) ? "MEDIUM" : "LOW");
    if (claim.disputed) level = Math.max(level, rank("MEDIUM"));
    else if (claim.status === "CONTRADICTED") level = rank(highRisk || touched.includes(claim) || sentences.has(claim.sentence) ? "CRITICAL" : "HIGH");
    else if (claim.status === "UNSUPPORTED") level = Math.max(level, rank(JUDGING.specific.includes(claim.error) ? "HIGH" : JUDGING.unsupported[mode]));
    else if (isUnread(claim)) level = Math.max(level, rank("UNKNOWN"));
    if (level > rank("UNKNOWN") || isFlagged(claim)) counted += 1;
    if (isUnread(claim)) unread += 1;
    if (!claim.status.startsWith("NOT_")) read += 1;
    worst = Math.max(worst, level);
  }
  if (claims.conflicts) worst = Math.max(worst, rank("MEDIUM"));
  // Reasoning alone is no answer.
  const isAnswer = claims.length > 0 && WRITTEN.test(answer);
  if (!isAnswer) worst = Math.max(worst, rank("UNKNOWN"));
  const level = JUDGING.levels[worst];
  return { level, score: level === "UNKNOWN" ? null : JUDGING.base[level] + JUDGING.further * Math.min(counted, JUDGING.mostFurther),
    verification: !isAnswer || (unread && !read) ? "UNREAD" : unread ? "PARTIAL" : "VERIFIED" };
}

// Why, in at most five sentences, gravest first; quotations have their texts.
function reasonsOf(claims, answer, language) {
  const [said, grave] = [JUDGING.sentences[language], ["CONTRADICTED", "UNSUPPORTED", "SUPPORTED", "NOT_CHECKED"]];
  const fill = (name, values) => said[name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
  const quoted = (text) => {
    const flat = trimmed(text.split(BLANK).filter(Boolean).join(" "), (sign) => " .,;:".includes(sign));
    const cut = sliced(flat, 0, JUDGING.longestReason);
    const kept = cut === flat ? flat : `${cut.includes(" ") ? cut.slice(0, cut.lastIndexOf(" ")) : cut} …`;
    return kept.split(" ").length <= 2 && DIGIT.test(kept) ? kept : `“${kept}”`;
  };
  // What an earlier claim of the answer contradicts.
  const oppositeOf = (claim) => {
    const found = isFlagged(claim) || claim.disputed ? null : (claim.findings || []).find((one) => one.kind === JUDGING.contradiction);
    return (found && claims.find((one) => one.id === found.other_claim_id)) || null;
  };
  const rank = (claim) => grave.indexOf(oppositeOf(claim) ? "SUPPORTED" : claim.status);
  const sentences = claims.filter((claim) => isFlagged(claim) || claim.disputed || oppositeOf(claim) || isUnread(claim))
    .sort((a, b) => rank(a) - rank(b) || a.start - b.start)
    .map((claim) => {
      const wrong = quoted(sliced(answer, ...(claim.wrong || [claim.start, claim.end])));
      const opposite = oppositeOf(claim);
      if (opposite) return fill("within", { wrong, quote: quoted(sliced(answer, opposite.start, opposite.end)) });
      const [first] = claim.quotations;
      if (claim.disputed) return fill("disputed", { wrong });
      if (claim.status === "NOT_CHECKED") return fill("unread", { wrong });
      if (claim.status === "UNSUPPORTED") return fill(rejectionOf(claim) ? "rejected" : "unsupported", { wrong });
      if (!first) return fill("contradicted bare", { wrong });
      const source = fill(first.passage ? "passage" : first.fact_id, { number: first.passage });
      return fill("contradicted", { wrong, source, quote: quoted(first.text) });
    }).map((one) => `${sliced(one, 0, 1).toUpperCase()}${sliced(one, 1)}.`);
  return [...new Set(sentences)].slice(0, JUDGING.mostReasons);
}
