// First the page is drawn from the embedded receipt, then the receipt is checked and the badge set.

const BADGES = {
  wait: ["", "…", "Checking"],
  holds: ["yes", "✓", "Receipt holds"],
  differs: ["no", "✕", "Receipt differs"],
  broken: ["no", "✕", "Receipt broken"],
  "not recomputed": ["", "?", "Signature holds, not recomputed"],
  cannot: ["", "?", "Cannot check here"],
};
const [EMBEDDED, ...REST] = document.scripts;
const SCRIPT = REST.pop();
const STYLE = document.querySelector("style");
const RULES = document.querySelector("meta[http-equiv]");
let opening = null;
let texts = null;
let others = [];
let view = null;
let shown = null;

function embedded(element = EMBEDDED) {
  return fromBase64(element.textContent, "receipt");
}

function read() {
  opening = opened(embedded());
  texts = textsOf(opening);
  others = REST.map((element) => opened(embedded(element)));
}

// Steps in the order in which they are told; each gives a sentence or refuses.
const STEPS = [
  ["Form", () => {
    read();
    return "canonical, nothing in it twice";
  }],
  ["Key", () => checkKey(opening)],
  ["Signature", () => checkSignature(opening)],
  ["Tree of the texts", () => checkTree(opening)],
  ["Subjects", () => checkSubjects(opening)],
  ["Texts", () => checkTexts(opening, texts)],
  ["Other windows", () => checkOthers(opening, others)],
  ["Contents", () => checkContents(opening, texts)],
  ["Statuses and level", () => checkJudge(opening, texts)],
  ["crp receipt verify", () => checkWritten(opening)],
  ["This page", () => checkPage()],
  ["What is shown", () => {
    const wanted = readable(() => drawing(viewOf(opening, texts, others)));
    const same = shown.every((part, place) => part.isEqualNode(wanted[place]) && part.isConnected);
    if (!same) refuse("page", "what is shown is not what the receipt holds");
    return "all of it comes from the receipt";
  }],
];

// A content that this page cannot read is nothing to be green for.
function readable(make) {
  try {
    return make();
  } catch (error) {
    throw new Unreadable(error instanceof Refused ? error.message : "this page cannot read the content");
  }
}

async function verdict() {
  const told = [];
  const hashes = window.crypto && crypto.subtle ? await hashesHere() : false;
  const signs = hashes && (await signsHere());
  const missing = hashes ? ["Signature", "Other windows"] : ["Key", "Signature", "Tree of the texts", "Subjects", "Texts", "Other windows", "Contents", "crp receipt verify", "This page"];
  let worst = "";
  for (const [name, step] of STEPS) {
    // What this page finds is told; whether it is worse, the package knows.
    if (worst && name !== "crp receipt verify") continue;
    if (!signs && missing.includes(name)) {
      told.push([name, null, hashes ? "this browser has no Ed25519" : "this browser gives no WebCrypto"]);
      continue;
    }
    try {
      told.push([name, true, await step()]);
    } catch (error) {
      if (error instanceof NotHere) {
        told.push([name, null, error.message]);
        continue;
      }
      const known = error instanceof Refused;
      const unread = error instanceof Unreadable;
      told.push([name, unread ? null : false, line(known ? error.message : `the page failed: ${error.message}`)]);
      const state = unread ? "cannot" : error instanceof Differs ? "differs" : "broken";
      if (state === "broken") return { state, told };
      if (worst !== "differs") worst = state;
    }
  }
  if (worst) return { state: worst, told };
  const lacks = told.some(([, ok]) => ok === null);
  return { state: !signs ? "cannot" : lacks ? "not recomputed" : "holds", told };
}

function tell({ state, told }) {
  const [kind, sign, words] = BADGES[state];
  const badge = document.getElementById("badge");
  badge.className = `badge ${kind}`.trim();
  badge.dataset.state = state;
  badge.replaceChildren(el("span", { class: "sign", "aria-hidden": "true" }, sign), el("span", {}, words));
  const broken = told.find(([, ok]) => ok === false);
  const unknown = told.find(([, ok]) => ok === null);
  const key = opening ? fingerprint(opening.keyid) : "";
  const whose = `Signed by key ${key}. Whose key that is, this page cannot know.`;
  document.getElementById("place").textContent = broken ? `${broken[0]}: ${broken[2]}` : {
    wait: "",
    holds: whose,
    "not recomputed": `${whose}${unknown ? ` ${unknown[0]} not computed again: ${unknown[2]}.` : ""}`,
    cannot: `${unknown ? `${unknown[2]}; ` : ""}crp receipt verify can tell more.`,
  }[state];
  document.getElementById("checks").replaceChildren(...told.map(([name, ok, why]) => {
    const [style, mark, word] = ok === null ? ["", "?", "not checked"] : ok ? ["yes", "✓", "holds"] : ["no", "✕", "does not hold"];
    return el("li", { class: style }, el("span", { class: "sign", "aria-hidden": "true" }, mark),
      el("b", {}, name), el("span", { class: "hear" }, ` ${word}`), `: ${why}`);
  }));
  document.title = `${words}: ${view ? short(view.title, 60) : "CRP receipt"}`;
}

// One check at a time; what changes meanwhile is checked again after it.
let busy = false;
let due = false;
async function check() {
  if (busy) {
    due = true;
    return;
  }
  busy = true;
  do {
    due = false;
    tell({ state: "wait", told: [] });
    tell(await verdict());
  } while (due);
  busy = false;
}

// All that is shown of the receipt: the head of the page and its content.
function drawing(of) {
  return [el("header", {}, el("p", { class: "kicker" }, "Receipt of an answer"), el("h1", { dir: "auto" }, raw(of.title))),
    el("div", { id: "content" }, tiles(of), answerSection(of), claimsSection(of), riskSection(of),
      budgetSection(of), factsSection(of), droppedSection(of), windowsSection(of), policySection(of),
      pairsSection("made", "What made it", of.made),
      pairsSection("stated", "Stated by the signer, not recomputed", VERIFIED.stated))];
}

function nothing() {
  return [el("header", {}, el("h1", {}, "This receipt cannot be read")),
    el("div", { id: "content" }, el("p", {}, "Nothing of it is shown, since it does not have the form of a receipt."))];
}

// All words behind the claim that was followed stand out, without a change to what is shown.
function mark() {
  if (!window.CSS || !CSS.highlights) return;
  CSS.highlights.delete("behind");
  const target = document.getElementById(location.hash.slice(1));
  const found = target && /^(?:spot|claim|row)-(\d+)/.exec(target.id);
  if (!found) return;
  const ranges = Array.from(shown[1].querySelectorAll("[data-spots]"))
    .filter((spot) => spot.dataset.spots.split(" ").some((id) => id.startsWith(`spot-${found[1]}-`)))
    .map((spot) => {
      const range = document.createRange();
      range.selectNodeContents(spot);
      return range;
    });
  if (ranges.length) CSS.highlights.set("behind", new Highlight(...ranges));
}

function save() {
  const link = el("a", { download: "receipt.json",
    href: URL.createObjectURL(new Blob([embedded()], { type: "application/json" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function skeleton() {
  const again = el("button", { type: "button" }, "Check again");
  again.addEventListener("click", check);
  const keep = el("button", { type: "button" }, "Save the receipt");
  keep.addEventListener("click", save);
  return [
    el("a", { class: "skip", href: "#main" }, "Skip to the answer"),
    shown[0],
    el("div", { class: "status" }, el("div", {},
      el("p", { id: "badge", class: "badge", role: "status", "aria-live": "polite" }, "Checking"),
      el("p", { id: "place", class: "place", "aria-live": "polite" }), again, keep)),
    el("main", { id: "main", tabindex: -1 }, shown[1],
      section("verification", "Checks", el("ul", { id: "checks", class: "checks" }))),
    el("footer", {}, el("p", {}, "The badge says that the receipt is whole, was signed by the holder of the key "
      + "above and fits together, and that this page shows it. It does not say who that is, nor that the answer is true. "
      + "Scores, order, report hash and corrections were computed by crp receipt verify, which wrote this page. "
      + "A page can vouch only for itself: for a check that does not rest on it, save the receipt and take it to ",
    el("code", {}, "crp receipt verify"), "; ", el("code", {}, "crp receipt replay"),
    " computes the context and the verdict again."))];
}

function start() {
  try {
    read();
    view = viewOf(opening, texts, others);
    shown = drawing(view);
  } catch {
    view = null;
    shown = nothing();
  }
  document.documentElement.lang = "en";
  document.body.replaceChildren(...skeleton());
  const changes = new MutationObserver(check);
  for (const part of shown) {
    changes.observe(part, { subtree: true, childList: true, characterData: true, attributes: true });
  }
  window.addEventListener("hashchange", mark);
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  mark();
  return check();
}

start();
