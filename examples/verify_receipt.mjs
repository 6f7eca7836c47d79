// Verify a receipt without this package, in JavaScript alone: `node verify_receipt.mjs RECEIPT`.
// In a browser, `check(bytes)` needs nothing but WebCrypto. The format: docs/reference/receipt.md.

const utf8 = (text) => new TextEncoder().encode(text);
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
const refuse = (place, reason) => { throw new Error(`${place}: ${reason}`); };

const LEVELS = ["LOW", "UNKNOWN", "MEDIUM", "HIGH", "CRITICAL"];
const SPECIFIC = ["DATE", "INVENTION", "NAME", "NUMBER", "UNIT"];
const DOUBTS = ["HIDDEN_TEXT", "contradiction"];
// In millionths: the score of a level, and what each further claim above UNKNOWN adds.
const SCORES = { LOW: 50_000, MEDIUM: 300_000, HIGH: 550_000, CRITICAL: 800_000 };
const [FURTHER, MOST_FURTHER] = [10_000, 10];
const UNSUPPORTED = { "context-strict": "HIGH", "context-preferred": "MEDIUM", open: "LOW" };
const NOT_CHECKED = "the statuses by the judge's replies, its ids, prompt and context, chain and log";

const worse = (one, other) => (LEVELS.indexOf(one) < LEVELS.indexOf(other) ? other : one);

function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
  return whole;
}

// RFC 8785 for whole numbers: keys in order, no white space.
function canonical(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  const fields = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${fields.join(",")}}`;
}

function fromCanonical(text, place) {
  const value = JSON.parse(text);
  if (canonical(value) !== text) refuse(place, "this is not canonical JSON");
  return value;
}

function fromBase64(text, place) {
  const binary = atob(text);
  if (btoa(binary) !== text) refuse(place, "the base64 is not in its one form");
  return Uint8Array.from(binary, (sign) => sign.charCodeAt(0));
}

// RFC 9162, 2.1.1: the tree is split at the largest power of two below its size.
async function treeRoot(hashes) {
  if (hashes.length === 1) return hashes[0];
  let half = 1;
  while (half * 2 < hashes.length) half *= 2;
  const [left, right] = [await treeRoot(hashes.slice(0, half)), await treeRoot(hashes.slice(half))];
  return sha256(joined(Uint8Array.of(1), left, right));
}

// A text from its parts: literals, whole leaves by number, and stretches of a leaf in code points.
function composed(parts, texts) {
  let whole = "";
  for (const part of parts) {
    const [number, start, end] = Array.isArray(part) ? part : [part, 0, undefined];
    const text = typeof part === "string" ? part : texts[number];
    if (text === null || text === undefined) return null;
    whole += Array.isArray(part) ? Array.from(text).slice(start, end).join("") : text;
  }
  return whole;
}

function opened(bytes) {
  const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  if (!text.endsWith("\n")) refuse("file", "it does not end with a line feed");
  const file = fromCanonical(text.slice(0, -1), "file");
  if (file.schema !== "receipt/1") refuse("file", `its schema is ${file.schema}, wanted receipt/1; from a bundle, take its field receipt as canonical JSON with a line feed, or export without --bundle`);
  if (!file.envelope.signatures.length) refuse("file", "it has no signature");
  const payload = fromBase64(file.envelope.payload, "payload");
  const statement = fromCanonical(new TextDecoder("utf-8", { fatal: true }).decode(payload), "payload");
  const { leaves, root } = statement.predicate.texts;
  if (file.texts.length !== leaves.length) refuse("texts", "there is not one for each leaf");
  const own = file.texts.map((entry) => (typeof entry === "object" ? entry.text ?? null : null));
  const texts = leaves.map((leaf, number) => (leaf.parts?.length ? composed(leaf.parts, own) : own[number]));
  return { file, payload, statement, leaves, root, texts, content: statement.predicate.content };
}

const named = ({ leaves }, name) => {
  const number = leaves.findIndex((leaf) => leaf.name === name);
  return number < 0 ? refuse("texts.leaves", `none is named ${name}`) : number;
};

async function checkSignature({ file, payload }) {
  const key = fromBase64(file.key, "key");
  const [{ keyid, sig }] = file.envelope.signatures;
  if (hex(await sha256(key)) !== keyid) refuse("key", "its SHA-256 is not the key id");
  const type = file.envelope.payloadType;
  const signed = joined(utf8(`DSSEv1 ${utf8(type).length} ${type} ${payload.length} `), payload);
  const imported = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
  if (!(await crypto.subtle.verify("Ed25519", imported, fromBase64(sig, "sig"), signed))) refuse("signatures[0].sig", "it does not fit payload and key");
  return `by key ${keyid}, which the file itself names`;
}

async function checkTree(receipt) {
  const root = await treeRoot(receipt.leaves.map((leaf) => unhex(leaf.hash)));
  if (hex(root) !== receipt.root) refuse("texts.root", "it is not the root of the leaves");
  for (const { name, digest } of receipt.statement.subject) {
    if (digest.sha256 !== receipt.leaves[named(receipt, name)].hash) refuse(`subject ${name}`, "its digest is not its leaf's hash");
  }
  const { digest, ...rest } = receipt.statement.predicate;
  if (hex(await sha256(utf8(canonical(rest)))) !== digest) refuse("predicate.digest", "it is not the hash of the predicate without it");
  return `${receipt.leaves.length} leaves; request, context and answer are among them`;
}

async function checkTexts({ file, leaves, texts }) {
  let shown = 0;
  for (const [number, leaf] of leaves.entries()) {
    const entry = file.texts[number];
    if (typeof entry === "string") continue;
    if (texts[number] === null) refuse(`texts[${number}]`, "it is composed of a text that is not here");
    const salt = fromBase64(entry.salt, `texts[${number}].salt`);
    if (hex(await sha256(joined(Uint8Array.of(0), salt, utf8(texts[number])))) !== leaf.hash) refuse(`texts[${number}]`, "it does not have its leaf's hash");
    shown += 1;
  }
  return `${shown} of ${leaves.length} are here`;
}

// Each candidate is either shown, once, or dropped with a reason.
async function checkSelection({ content }) {
  const { envelope, candidates } = content;
  if (envelope === null) return "no context was packed";
  const places = [...envelope.facts, ...envelope.dropped].map((item) => item.at).sort((a, b) => a - b);
  if (places.length !== candidates.length || places.some((place, at) => place !== at)) refuse("envelope", `${places.length} candidates are shown or dropped, wanted ${candidates.length}`);
  const ids = envelope.facts.map((fact) => candidates[fact.at].id).sort();
  const etag = `sha256:${hex(await sha256(utf8(`${ids.join("|")}|${ids.length}`)))}`;
  if (!content.fit?.salted && envelope.etag !== etag) refuse("envelope.etag", "it is not the hash of the facts' ids");
  return `${ids.length} of ${candidates.length} candidates are shown`;
}

async function checkSeal(receipt) {
  const hashOf = async (text) => `sha256:${hex(await sha256(utf8(text)))}`;
  const { policy, seal } = receipt.content;
  if ((await hashOf(policy.text)) !== policy.hash) refuse("policy.hash", "it is not the hash of the policy's text");
  const [sealed, answer] = [receipt.texts[seal], receipt.texts[named(receipt, "answer")]];
  if (sealed === null || answer === null) return "the answer is not in this copy";
  if (JSON.parse(sealed).response_hash !== (await hashOf(answer))) refuse("seal.response_hash", "it is not the hash of the answer");
  return "answer and policy have their hashes";
}

// Whether a text contains a datum: a name by its words, anything else by its characters.
function isRepeated(datum, text) {
  const words = (value) => value.toLowerCase().match(/[\p{L}\p{Nl}\p{No}]{3,}/gu) ?? [];
  const letters = (value) => value.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
  if (!words(datum).length || /[\p{Nd}@]/u.test(datum)) return letters(text).includes(letters(datum));
  const known = new Set(words(text));
  return words(datum).every((word) => known.has(word));
}

// Personal data of the answer that neither the passages nor the question contain.
function ownData(receipt) {
  const { report, examined } = receipt.content;
  const answer = receipt.texts[examined.answer];
  const known = examined.question === null ? [] : [receipt.texts[examined.question]];
  if (examined.passages === null) known.push(receipt.texts[named(receipt, "context")]);
  for (const passage of examined.passages ?? []) known.push(composed(passage.pieces, receipt.texts));
  const data = report.personal.found.filter((item) => item.where === "answer");
  if (answer === null || known.includes(null)) return data;
  const signs = Array.from(answer);
  return data.filter((item) => !isRepeated(signs.slice(item.start, item.end).join(""), known.join("\n")));
}

// Whether the claim, or another one of its sentence, has such data.
function isPersonal(claim, own, report) {
  const near = report.claims.filter((other) => other === claim || (claim.sentence_index >= 0 && other.sentence_index === claim.sentence_index));
  return near.some((other) => own.some((item) => item.start < other.end && other.start < item.end));
}

function levelOf(claim, data, { report, examined }) {
  if (claim.disputed) return "MEDIUM";
  const own = claim.findings.some((finding) => DOUBTS.includes(finding.kind)) ? "MEDIUM" : "LOW";
  if (claim.status === "CONTRADICTED") {
    const highRisk = report.eu_ai_act_class === "HIGH" && examined.system.domain !== null;
    return highRisk || isPersonal(claim, data, report) ? "CRITICAL" : "HIGH";
  }
  if (claim.status === "UNSUPPORTED") return worse(own, SPECIFIC.includes(claim.error) ? "HIGH" : UNSUPPORTED[examined.grounding]);
  return claim.status === "NOT_CHECKED" ? worse(own, "UNKNOWN") : own;
}

// Claims that contradict each other by the replies of the judge.
function conflictsOf({ content, texts }) {
  return (content.examined.judged?.calls ?? []).flatMap((call) => {
    try {
      return JSON.parse(texts[call.leaf] ?? "").conflicts ?? [];
    } catch {
      return [];
    }
  });
}

// Level, score and counts follow from the claims' statuses (ADR 57).
async function checkLevel(receipt) {
  const { report, examined, settings } = receipt.content;
  if (settings.dpe.decides !== "claims") return "not derived from claims: the preset is literal";
  const data = ownData(receipt);
  const levels = report.claims.map((claim) => levelOf(claim, data, receipt.content));
  let worst = levels.reduce(worse, "LOW");
  if (conflictsOf(receipt).some((conflict) => (conflict.claims ?? []).length > 1)) worst = worse(worst, "MEDIUM");
  const answer = receipt.texts[examined.answer];
  // Reasoning alone is no answer.
  if (!report.claims.length || (answer !== null && !/[\p{L}\p{N}]/u.test(answer))) worst = worse(worst, "UNKNOWN");
  if (worst !== report.risk_level) refuse("report.risk_level", `it is ${report.risk_level}, by the claims ${worst}`);
  const count = (...statuses) => report.claims.filter((claim) => statuses.includes(claim.status)).length;
  const counted = report.claims.filter((claim, at) => !["LOW", "UNKNOWN"].includes(levels[at]) || claim.status === "UNSUPPORTED").length;
  const score = worst in SCORES ? SCORES[worst] + FURTHER * Math.min(counted, MOST_FURTHER) : null;
  if (report.risk_score !== score) refuse("report.risk_score", `it is ${report.risk_score}, by the claims ${score}`);
  const [supported, wrong, unread] = [count("SUPPORTED"), count("CONTRADICTED", "UNSUPPORTED"), count("NOT_CHECKED")];
  const counts = canonical({ read: supported + wrong, supported, unread, wrong });
  if (canonical(report.claim_counts) !== counts) refuse("report.claim_counts", `they are ${canonical(report.claim_counts)}, by the claims ${counts}`);
  return `${worst} follows from ${report.claims.length} claims`;
}

const CHECKS = { signature: checkSignature, tree: checkTree, texts: checkTexts, selection: checkSelection, seal: checkSeal, level: checkLevel };

// A line for each check; the last one begins with the check that fails, where one does.
export async function check(bytes) {
  const lines = [];
  let step = "encoding";
  try {
    const receipt = opened(bytes);
    lines.push("encoding: ok");
    for (step of Object.keys(CHECKS)) lines.push(`${step}: ok, ${await CHECKS[step](receipt)}`);
    return { ok: true, lines: [...lines, `not checked: ${NOT_CHECKED}`] };
  } catch (error) {
    return { ok: false, lines: [...lines, `${step}: FAILS, ${error.message}`] };
  }
}

if (typeof process !== "undefined" && process.argv[1]?.endsWith("verify_receipt.mjs")) {
  const { readFile } = await import("node:fs/promises");
  const { ok, lines } = await check(new Uint8Array(await readFile(process.argv[2])));
  console.log(lines.join("\n"));
  process.exitCode = ok ? 0 : 1;
}
