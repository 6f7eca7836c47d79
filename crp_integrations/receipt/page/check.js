// The checks of a receipt, with WebCrypto alone. Each is a line that the page shows.

const SCHEMA = "receipt/1";
const PAYLOAD_TYPE = "application/vnd.in-toto+json";
const STATEMENT_TYPE = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE = "https://crp-integrations.dev/receipt/v1";
const SUBJECTS = ["request", "context", "answer"];
// Characters of a composed text, and of all of them.
const LONGEST = 50000000;
const LONGEST_TOGETHER = 10 * LONGEST;
const DIGEST = /^[0-9a-f]{64}$/;
// RFC 8032, 7.1, test 2: a key, a signature and a message whose answer is known.
const KNOWN = {
  key: "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
  sig: "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    + "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
  message: "72",
};
const ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

async function signed(key, signature, message) {
  const made = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
  return (await crypto.subtle.verify({ name: "Ed25519" }, made, signature, message)) === true;
}

// What the browser can do is shown by cases whose answer is known, a wrong one among them.
async function hashesHere() {
  try {
    return toHex(await sha256(utf8("abc"))) === ABC && toHex(await sha256(utf8("abd"))) !== ABC;
  } catch {
    return false;
  }
}

async function signsHere() {
  try {
    const [key, sig, message] = [KNOWN.key, KNOWN.sig, KNOWN.message].map((text) => fromHex(text, ""));
    const right = await signed(key, sig, message);
    const wrong = await signed(key, sig, utf8("s"));
    return right && !wrong;
  } catch {
    return false;
  }
}

function only(value, names, place) {
  const given = value !== null && typeof value === "object" && !Array.isArray(value)
    ? Object.keys(value).sort().join() : typeof value;
  if (given !== [...names].sort().join()) refuse(place, `wanted exactly ${names.join(", ")}`);
  return value;
}

// DSSE's pre-authentication encoding: what is signed names the type and both lengths.
function preAuthentication(type, payload) {
  return joined(utf8(`DSSEv1 ${utf8(type).length} ${type} ${payload.length} `), payload);
}

// RFC 9162, 2.1.1: the tree splits at the largest power of two below the number of leaves.
async function treeRoot(hashes) {
  if (hashes.length === 1) return hashes[0];
  let half = 1;
  while (half * 2 < hashes.length) half *= 2;
  const [left, right] = await Promise.all([treeRoot(hashes.slice(0, half)), treeRoot(hashes.slice(half))]);
  return sha256(joined(Uint8Array.of(1), left, right));
}

function opened(bytes) {
  if (bytes[bytes.length - 1] !== 10) refuse("receipt", "it does not end with a line end");
  const file = only(fromCanonical(bytes.subarray(0, -1), "receipt"), ["envelope", "key", "schema", "texts"], "receipt");
  if (file.schema !== SCHEMA) refuse("schema", `it is ${line(file.schema)}, this page reads ${SCHEMA}`);
  only(file.envelope, ["payload", "payloadType", "signatures"], "envelope");
  if (file.envelope.payloadType !== PAYLOAD_TYPE) refuse("envelope.payloadType", `wanted ${PAYLOAD_TYPE}`);
  const { signatures } = file.envelope;
  if (!Array.isArray(signatures) || !signatures.length) refuse("envelope.signatures", "wanted one");
  // Those of countersigners, by key id, are checked by whoever has their keys.
  const ids = signatures.map((one) => one.keyid);
  if (ids.length > 16 || ids.some((id, at) => at && (id === ids[0] || (at > 1 && ids[at - 1] >= id)))) refuse("envelope.signatures", "their order is wrong");
  signatures.forEach((one, number) => only(one, ["keyid", "sig"], `envelope.signatures[${number}]`));
  const payload = fromBase64(file.envelope.payload, "envelope.payload");
  const statement = fromCanonical(payload, "envelope.payload");
  only(statement, ["_type", "predicate", "predicateType", "subject"], "statement");
  if (statement._type !== STATEMENT_TYPE) refuse("statement._type", `wanted ${STATEMENT_TYPE}`);
  if (statement.predicateType !== PREDICATE_TYPE) {
    refuse("statement.predicateType", `wanted ${PREDICATE_TYPE}`);
  }
  const predicate = only(statement.predicate, ["chain", "content", "digest", "texts"], "predicate");
  if (predicate.content === null || typeof predicate.content !== "object" || Array.isArray(predicate.content)) {
    refuse("predicate.content", "this is no object");
  }
  if (predicate.content.schema !== CONTENT) refuse("content.schema", `it is ${line(predicate.content.schema)}, this page reads ${CONTENT}`);
  checkChain(predicate.chain);
  const { leaves: listed } = only(predicate.texts, ["leaves", "root"], "predicate.texts");
  if (!Array.isArray(listed) || !listed.length) refuse("predicate.texts.leaves", "there is none");
  const leaves = listed.map((leaf, number) => leafOf(leaf, listed.length, `predicate.texts.leaves[${number}]`));
  leaves.forEach((leaf, number) => leaf.parts.forEach((part) => {
    const from = Array.isArray(part) ? part[0] : part;
    if (Number.isInteger(from) && leaves[from].parts.length) {
      refuse(`predicate.texts.leaves[${number}].parts`, "it names a text that is put together itself");
    }
  }));
  if (new Set(leaves.map((leaf) => leaf.name)).size < leaves.length) {
    refuse("predicate.texts.leaves", "two have one name");
  }
  if (!Array.isArray(file.texts) || file.texts.length !== leaves.length) {
    refuse("texts", `wanted ${leaves.length}, one for each leaf`);
  }
  return { bytes, file, payload, statement, predicate, leaves, key: fromBase64(file.key, "key"),
    keyid: signatures[0].keyid, sig: fromBase64(signatures[0].sig, "envelope.signatures[0].sig") };
}

function checkChain(chain) {
  const place = "predicate.chain";
  only(chain, ["hmac", "outcome", "parents", "session_id", "timestamp", "window_id", "window_number"], place);
  const { parents, window_number: number } = chain;
  if (!Number.isInteger(number) || number < 1) refuse(`${place}.window_number`, "this is no number of a window");
  const texts = ["hmac", "outcome", "session_id", "timestamp", "window_id"].map((name) => chain[name]);
  if (!Array.isArray(parents) || ![...texts, ...parents].every((text) => typeof text === "string")) {
    refuse(place, "something in it is no text");
  }
  if ((parents.length > 0) !== (number > 1)) refuse(`${place}.parents`, "they do not go with the window's number");
  if (canonical([...new Set(parents)].sort()) !== canonical(parents)) refuse(`${place}.parents`, "they are not in order");
}

// A fact's leaf says whose text it is; any other has a name, and parts where it is put together.
function leafOf(leaf, count, place) {
  if (leaf && "fact" in leaf) {
    only(leaf, ["fact", "hash"], place);
    if (typeof leaf.fact !== "string" || !leaf.fact) refuse(`${place}.fact`, "this is no id");
    return { name: `fact/${leaf.fact}`, hash: leaf.hash, parts: [] };
  }
  only(leaf, ["follows", "hash", "name", "of", "parts"], place);
  if (typeof leaf.name !== "string" || !leaf.name || leaf.name.startsWith("fact/")) refuse(`${place}.name`, "this is no name");
  const known = (number) => Number.isInteger(number) && number >= 0 && number < count;
  const stretch = (part) => Array.isArray(part) && part.length === 3 && known(part[0])
    && part.slice(1).every((at) => Number.isInteger(at) && at >= 0) && part[1] <= part[2];
  if (typeof leaf.follows !== "boolean" || !Array.isArray(leaf.of) || !leaf.of.every(known)) {
    refuse(place, "what it may quote is not told");
  }
  if (!Array.isArray(leaf.parts) || !leaf.parts.every((part) => typeof part === "string" || known(part) || stretch(part))) {
    refuse(`${place}.parts`, "these are not parts of a text");
  }
  return { name: leaf.name, hash: leaf.hash, parts: leaf.parts };
}

// The text of each leaf: a string, or null where it is left out or erased.
function textsOf({ file, leaves }) {
  const own = file.texts.map((entry) => (entry !== null && typeof entry === "object"
    && typeof entry.text === "string" ? entry.text : null));
  let left = LONGEST_TOGETHER;
  return leaves.map((leaf, number) => {
    if (!leaf.parts.length || typeof file.texts[number] === "string") return own[number];
    const text = composed(leaf.parts, own, left);
    left -= text === null ? 0 : characters(text);
    return text;
  });
}

// Null where a part is not here, or where all are longer than any context: parts can be named often.
function composed(parts, texts, most = LONGEST) {
  const pieces = [];
  let left = Math.min(most, LONGEST);
  for (const part of parts) {
    let piece = part;
    if (typeof part !== "string") {
      const [from, start, end] = Array.isArray(part) ? part : [part, 0, null];
      piece = texts[from];
      if (piece !== null && end !== null) {
        const at = starts(piece);
        piece = end < at.length ? piece.slice(at[start], at[end]) : null;
      }
    }
    if (piece === null || piece === undefined) return null;
    left -= characters(piece);
    if (left < 0) return null;
    pieces.push(piece);
  }
  return pieces.join("");
}

function characters(text) {
  let count = text.length;
  for (let unit = 0; unit < text.length; unit += 1) {
    const code = text.charCodeAt(unit);
    if (code >= 0xdc00 && code <= 0xdfff) count -= 1;
  }
  return count;
}

// Where each character of a text begins, and where it ends; asked for once for all its stretches.
const STARTS = new Map();
function starts(text) {
  if (!STARTS.has(text)) STARTS.set(text, beginnings(text));
  return STARTS.get(text);
}

async function checkLeaf(opening, texts, number) {
  const entry = opening.file.texts[number];
  const place = `texts[${number}]`;
  const leaf = opening.leaves[number];
  if (entry === "redacted" || entry === "erased") return;
  only(entry, leaf.parts.length ? ["salt"] : ["salt", "text"], place);
  const salt = fromBase64(entry.salt, `${place}.salt`);
  if (salt.length !== 32) refuse(`${place}.salt`, `${salt.length} bytes, wanted 32`);
  const text = texts[number];
  if (text === null) refuse(place, "it is composed of a text that is not here");
  if (toHex(await sha256(joined(Uint8Array.of(0), salt, utf8(text)))) !== leaf.hash) {
    refuse(place, `it is not the text of ${short(leaf.name, 40)}`);
  }
}

async function checkTexts(opening, texts) {
  await Promise.all(opening.leaves.map((_, number) => checkLeaf(opening, texts, number)));
  const count = (word) => opening.file.texts.filter((entry) => entry === word).length;
  const here = texts.filter((text) => text !== null).length;
  return `${here} of ${texts.length} texts are here, ${count("redacted")} left out, ${count("erased")} erased`;
}

async function checkTree(opening) {
  const hashes = opening.leaves.map((leaf, number) => {
    if (!DIGEST.test(leaf.hash)) refuse(`predicate.texts.leaves[${number}].hash`, "this is no SHA-256");
    return fromHex(leaf.hash, "");
  });
  if (toHex(await treeRoot(hashes)) !== opening.predicate.texts.root) {
    refuse("predicate.texts.root", "it is not the root of the leaves");
  }
  return `root ${opening.predicate.texts.root.slice(0, 16)}… over ${many(hashes.length, "text")}`;
}

async function checkSubjects(opening) {
  const { subject } = opening.statement;
  if (!Array.isArray(subject) || subject.map((one) => one.name).join() !== SUBJECTS.join()) {
    refuse("subject", `wanted ${SUBJECTS.join(", ")}`);
  }
  for (const one of subject) {
    only(only(one, ["digest", "name"], `subject ${one.name}`).digest, ["sha256"], `subject ${one.name}`);
    const leaf = opening.leaves.find((entry) => entry.name === one.name);
    if (!leaf || one.digest.sha256 !== leaf.hash) refuse(`subject ${one.name}`, "its digest is not that of its leaf");
  }
  return SUBJECTS.join(", ");
}

async function checkKey(opening) {
  if (opening.key.length !== 32) refuse("key", `${opening.key.length} bytes, wanted 32`);
  if (toHex(await sha256(opening.key)) !== opening.keyid) refuse("key", "its SHA-256 is not the signature's key id");
  return `key ${fingerprint(opening.keyid)}`;
}

async function checkSignature(opening) {
  const message = preAuthentication(opening.file.envelope.payloadType, opening.payload);
  if (!(await signed(opening.key, opening.sig, message))) refuse("envelope.signatures[0].sig", "it does not fit the payload and the key");
  return "Ed25519 over the whole statement";
}

// Receipts of other windows hold on their own, and are of the same session and key.
async function checkOthers(opening, others) {
  const { session_id: session, window_id: here } = opening.predicate.chain;
  const seen = new Set([here]);
  for (const other of others) {
    const chain = other.predicate.chain;
    const place = `receipt of window ${line(chain.window_id)}`;
    if (chain.session_id !== session) refuse(place, "it is of another session");
    if (seen.has(chain.window_id)) refuse(place, "it is here twice");
    seen.add(chain.window_id);
    if (other.keyid !== opening.keyid) refuse(place, `it was signed by another key, ${fingerprint(other.keyid)}`);
    try {
      for (const step of [checkKey, checkSignature, checkTree, checkSubjects]) await step(other);
      await checkTexts(other, textsOf(other));
    } catch (error) {
      refuse(place, error.message);
    }
  }
  return others.length ? `${many(others.length, "further receipt")} of the session` : "no receipt of one is in this page";
}

// What a judge's replies come to is what was signed, and the level follows from the statuses.
function checkJudge(opening, texts) {
  const { content } = opening.predicate;
  const { report, examined } = content;
  if (!examined) return "nothing was examined";
  const given = readable(() => {
    const read = reader(opening, texts, content);
    return judgedOf(read, content, factsOf(read, content));
  });
  if (given === null) throw new NotHere("a text that they rest on is not in this copy");
  const { judged } = examined;
  const hidden = judged ? judged.calls.findIndex((call, place) => call.error === "Unreadable" && replyOf(given.said.replies[place], call.id)) : -1;
  if (hidden >= 0) differ("statuses", `reply ${hidden + 1} is told to be unreadable, and can be read`);
  const numbered = given.claims.filter((claim) => !claim.id.startsWith("u"));
  const found = judged && !judged.skipped ? readable(() => statusesOf(judged, given.said, numbered)) : null;
  if (found === null && String(report.checked_by).startsWith("judge ")) differ("statuses", "no reply of a judge can be read");
  const later = judged && judged.second !== judged.model && judged.calls.some((one) => one.second && !one.error) ? `, ${judged.second}` : "";
  const by = found ? `judge ${judged.model}${later}` : judged ? JUDGING.comparison : report.checked_by;
  if (report.checked_by !== by) differ("statuses", `${line(by)} decided, ${line(report.checked_by)} is signed`);
  for (let place = 0; found && place < Math.max(found.length, given.claims.length); place += 1) {
    const [made, told] = [found[place], given.claims[place]];
    if (!made || !told) differ("statuses", `${many(found.length, "claim")} by the replies, ${given.claims.length} signed`);
    const names = ["status", "error", "wrong", "quotations", "start", "end", "type", "id"];
    const other = names.find((name) => canonical(made[name]) !== canonical(told[name]));
    if (other) differ("statuses", `claim ${place + 1}: ${other} is ${short(canonical(made[other]), 80)} by the replies, ${short(canonical(told[other]), 80)} is signed`);
  }
  const from = found ? `statuses of ${many(found.length, "claim")} follow from the recorded replies` : "no judge's reply decided the statuses";
  if (given.said.measured) return from;
  const level = readable(() => levelOf(found || given.claims, given.stakes));
  const told = { level: report.risk_level, score: report.risk_score, verification: report.verification };
  const other = Object.keys(told).find((name) => told[name] !== level[name]);
  if (other) differ("statuses", `${other} is ${level[other]} by the statuses, ${line(told[other])} is signed`);
  if (report.flagged !== (JUDGING.levels.indexOf(level.level) >= JUDGING.levels.indexOf("MEDIUM"))) differ("statuses", "whether it is flagged does not follow from its level");
  return `${from}, level ${level.level} from the statuses`;
}

function fingerprint(keyid) {
  return line(keyid).slice(0, 32).match(/.{1,4}/g).join(" ");
}

// What the package found when it wrote this page; that is of no other receipt.
async function checkWritten({ bytes }) {
  if (toHex(await sha256(bytes)) !== VERIFIED.receipt) refuse("page", "it was written for another receipt");
  const why = [VERIFIED.place, VERIFIED.reason].filter(Boolean).map(line).join(" ");
  if (VERIFIED.word === "differs") throw new Differs(why);
  if (VERIFIED.word === "broken") throw new Refused(why);
  if (VERIFIED.word !== "holds") throw new NotHere(`${line(VERIFIED.word)} when it wrote this page`);
  return "holds, when it wrote this page";
}

// The page itself: its rules are those it was made with, and its style is the one they allow.
async function checkPage() {
  const rules = RULES.content;
  const form = /^default-src 'none'; script-src '(sha256-[A-Za-z0-9+/]{43}=)'; style-src '(sha256-[A-Za-z0-9+/]{43}=)'; base-uri 'none'; form-action 'none'$/;
  const [, script, style] = form.exec(rules) || refuse("page", "its content security policy was changed");
  for (const [name, given, wanted] of [["script", SCRIPT, script], ["style", STYLE, style]]) {
    const hash = toBase64(await sha256(utf8(given.textContent)));
    if (`sha256-${hash}` !== wanted) refuse("page", `its ${name} was changed`);
  }
  return "script and style are those that its rules name";
}
