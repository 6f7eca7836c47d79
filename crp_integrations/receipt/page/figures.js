// Numbers as pictures, each with a table or a sentence that says the same.

const LEVELS = { LOW: "supported", MEDIUM: "unread", HIGH: "contradicted", CRITICAL: "contradicted" };

function tiles(view) {
  const claims = view.answer.claims.length;
  const tile = (name, value, note) => el("li", {}, el("span", { class: "name" }, name),
    el("b", {}, value), el("span", { class: "small quiet" }, note));
  return el("ul", { class: "tiles", "aria-label": "In short" },
    tile("Risk of hallucination", view.risk.level, `${decimals(view.risk.score)}, 1 is worst`),
    tile("Quality tier", view.quality.score === null ? "–" : `Tier ${view.quality.tier}`,
      view.quality.score === null ? "no envelope" : `score of the context ${decimals(view.quality.score)}`),
    tile("Grounded", claims ? percent(view.risk.grounded) : "–", claims ? "of the factual claims" : "no claim"),
    tile("Checked", claims ? percent(view.risk.checked) : "–", claims ? "of what can be checked" : "no claim"),
    tile("Budget", percent(view.budget.total ? view.budget.used / view.budget.total : null),
      view.budget.total ? `${whole(view.budget.used)} of ${many(view.budget.total, "token")}` : "no envelope"));
}

function partsTable(caption, parts) {
  return table(caption, [["part"], ["value", "number"], ["", ""]],
    parts.map(([name, value, note]) => [name, decimals(value),
      [value === null ? null : gauge(value), note ? el("span", { class: "small quiet" }, ` ${note}`) : null]]));
}

function riskSection(view) {
  const { risk, quality } = view;
  const said = (names) => names.map((name) => line(name)).join(", ");
  return section("risk", "Risk and quality", el("div", { class: "pair" },
    el("div", {}, el("h3", {}, "Risk ", el("span", { class: `word ${LEVELS[risk.level] || "unscored"}` },
      risk.level)),
    risk.checkedBy ? el("p", {}, "Checked by ", el("span", { class: "code" }, raw(risk.checkedBy)), `: ${line(risk.verification)}, score ${decimals(risk.score)}.`) : null,
    risk.reasons === null ? el("p", { class: "small quiet" }, "The reasons rest on texts that are not in this copy.")
      : risk.reasons.length ? el("ul", { class: "reasons", "aria-label": "Reasons" }, risk.reasons.map((one) => el("li", { dir: "auto" }, raw(one)))) : null,
    partsTable("What the stages without a model call measured; 0 is best.", risk.parts),
    risk.amplifiers.length ? el("p", { class: "small" }, `Raised by: ${said(risk.amplifiers)}.`) : null,
    risk.flags.length ? el("p", { class: "small" }, `Flags: ${said(risk.flags)}.`) : null),
    el("div", {}, el("h3", {}, `Quality of the answer: ${decimals(risk.quality)}`),
      partsTable("What was measured of the answer; 1 is best.", risk.qualityParts),
      quality.parts.length ? [el("h3", {}, `Quality of the context: ${decimals(quality.score)}`),
        partsTable("What was measured of the context; 1 is best.", quality.parts)] : null,
      quality.caps.length ? el("ul", { class: "small" }, quality.caps.map((cap) =>
        el("li", {}, `At most ${line(cap[0])}: `, raw(cap[1])))) : null)));
}

function budgetSection(view) {
  const { used, total, counter } = view.budget;
  if (!total) {
    return section("budget", "Token budget", el("p", { class: "quiet" },
      "No envelope was packed for this answer, so no budget is told."));
  }
  const facts = view.facts.reduce((sum, fact) => sum + (fact.tokens || 0), 0);
  const scale = Math.max(used, total, facts, 1);
  const frame = Math.max(0, used - facts);
  let at = 0;
  const piece = (kind, tokens) => {
    const x = 1000 * at / scale;
    at += tokens;
    return draw("rect", { class: kind, x: x.toFixed(2), y: 0, height: 10,
      width: (1000 * tokens / scale).toFixed(2) });
  };
  const shown = [...view.facts.map((fact, place) => piece(place % 2 ? "b" : "a", fact.tokens)),
    piece("other", frame), piece("free", Math.max(0, total - used))];
  const words = `${whole(used)} of ${many(total, "token")}: ${many(view.facts.length, "fact")} with `
    + `${whole(facts)}, ${whole(frame)} for what stands around them, ${whole(Math.max(0, total - used))} free`;
  return section("budget", "Token budget",
    draw("svg", { class: "bar", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img",
      "aria-label": words }, shown),
    el("p", { class: "small" }, el("span", { class: "key a", "aria-hidden": "true" }), "facts, in turns  ",
      el("span", { class: "key other", "aria-hidden": "true" }), "around them  ",
      el("span", { class: "key free", "aria-hidden": "true" }), "free"),
    el("p", {}, `${words}.`), counter ? el("p", { class: "small quiet" }, "Counted by ",
      el("span", { class: "code" }, raw(counter)), ".") : null);
}

const BOX = { wide: 184, high: 54, apart: 60, below: 22 };

// A window stands in the column of its number; those of one number stand below one another.
function places(windows) {
  const columns = [...new Set(windows.map((window) => window.number))].sort((a, b) => a - b);
  const filled = new Map();
  const at = new Map();
  for (const window of windows) {
    const column = columns.indexOf(window.number);
    const row = filled.get(column) || 0;
    filled.set(column, row + 1);
    at.set(window.id, { x: 4 + column * (BOX.wide + BOX.apart), y: 4 + row * (BOX.high + BOX.below) });
  }
  return { at, width: columns.length * (BOX.wide + BOX.apart) - BOX.apart + 8,
    height: Math.max(...filled.values()) * (BOX.high + BOX.below) - BOX.below + 8 };
}

function edge(from, to) {
  const [x1, y1] = [from.x + BOX.wide, from.y + BOX.high / 2];
  const [x2, y2] = [to.x - 7, to.y + BOX.high / 2];
  const half = (x1 + x2) / 2;
  return [draw("path", { class: "edge", d: `M${x1} ${y1} C${half} ${y1} ${half} ${y2} ${x2} ${y2}` }),
    draw("path", { class: "tip", d: `M${x2 + 7} ${y2} l-9 -4.5 v9 z` })];
}

function windowsSection(view) {
  const { windows } = view;
  const { at, width, height } = places(windows);
  const rowOf = new Map(windows.map((window, place) => [window.id, `window-${place + 1}`]));
  const edges = windows.flatMap((window) => window.parents.filter((id) => at.has(id))
    .map((id) => edge(at.get(id), at.get(window.id))));
  const boxes = windows.map((window) => {
    const { x, y } = at.get(window.id);
    const kind = [window.here ? "here" : "", window.known ? "" : "unknown"].join(" ").trim();
    const name = `Window ${window.number}${window.here ? ", this receipt" : ""}`;
    return draw("a", { href: `#${rowOf.get(window.id)}`, class: kind || null,
      "aria-label": `${name}, follows ${many(window.parents.length, "window")}` },
    draw("rect", { x, y, width: BOX.wide, height: BOX.high, rx: 8 }),
    draw("text", { x: x + 12, y: y + 22 }, name),
    draw("text", { class: "sub", x: x + 12, y: y + 40 }, short(window.known ? window.id : "known by its seal", 25)));
  });
  const number = new Map(windows.map((window) => [window.id, window.number]));
  return section("windows", "Windows of the session",
    scrolling("Graph of the windows", draw("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height,
      role: "group", "aria-label": `Graph of ${many(windows.length, "window")}; the table below says the same` },
    edges, boxes)),
    scrolling("Windows", table(`${many(windows.length, "window")} that this receipt knows of.`,
      [["window"], ["number", "number"], ["follows"], ["seal"], ["what it is"]],
      windows.map((window) => [window.known ? el("span", { class: "code" }, raw(window.id)) : "–", String(window.number),
        window.parents.length ? window.parents.map((id) => number.has(id) ? `window ${number.get(id)}`
          : line(id)).join(", ") : "none",
        window.seal ? el("span", { class: "code" }, raw(short(window.seal, 32))) : "–", raw(window.note)]),
      windows.map((window) => rowOf.get(window.id)))));
}

function policySection(view) {
  const { policy } = view;
  return section("policy", "Policy",
    pairs([["Safety policy", policy.text ? el("code", {}, raw(policy.text)) : "none"],
      ["Hash", policy.hash && el("span", { class: "code" }, raw(policy.hash))],
      ["Reported only", policy.reported && el("code", {}, raw(policy.reported))],
      ["Bundle", policy.bundle && el("span", { class: "code" }, raw(policy.bundle))]]),
    el("h3", {}, "Decisions"),
    policy.decisions.length ? scrolling("Policy decisions", table("What the policy decided, and on what.",
      [["decision"], ["outcome"], ["why"]],
      policy.decisions.map(([what, outcome, why]) => [el("span", {}, raw(what)), el("span", {}, raw(outcome)),
        el("span", {}, raw(why))]))) : el("p", { class: "quiet" }, "Nothing was judged."));
}

function pairsSection(id, heading, rows) {
  return section(id, heading, pairs(rows.map(([name, value]) =>
    [name, value === "" || value === null ? null : el("span", { class: "code" }, raw(String(value)))])));
}
