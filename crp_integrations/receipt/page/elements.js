// Elements from values. Text only ever enters through text nodes, so markup in it stays text.

const SVG = "http://www.w3.org/2000/svg";
// Signs that would steer how text around them is shown, or that show as nothing, are named.
const STEERING =
  /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|[\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function codeName(sign) {
  return `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

// Text that others wrote, as nodes.
function raw(text) {
  const nodes = [];
  let from = 0;
  for (const found of String(text).matchAll(STEERING)) {
    nodes.push(text.slice(from, found.index), el("span", { class: "control" }, codeName(found[0])));
    from = found.index + found[0].length;
  }
  nodes.push(String(text).slice(from));
  return nodes.filter((node) => node !== "");
}

// The same where no element can stand.
function line(text) {
  return String(text).replace(STEERING, codeName);
}

function short(text, most) {
  const points = Array.from(line(text));
  return points.length <= most ? points.join("") : `${points.slice(0, most - 1).join("")}…`;
}

function many(count, noun) {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function whole(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

function decimals(value) {
  return value === null || value === undefined ? "–" : Number(value).toFixed(3);
}

function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`;
}

function gauge(value) {
  const width = Math.round(100 * Math.max(0, Math.min(1, value || 0)));
  return draw("svg", { class: "gauge", viewBox: "0 0 100 8", preserveAspectRatio: "none",
    "aria-hidden": "true" },
  draw("rect", { class: "back", width: 100, height: 8 }),
  draw("rect", { class: "front", width, height: 8 }));
}

// Columns are [heading, class]; a cell is a node, a text or a list of them; the first is a header.
function table(caption, columns, rows, ids) {
  return el("table", {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {},
      columns.map(([name, kind]) => el("th", { scope: "col", class: kind }, name)))),
    el("tbody", {}, rows.map((cells, number) => el("tr", { id: ids ? ids[number] : null },
      cells.map((cell, place) => place === 0
        ? el("th", { scope: "row", class: columns[0][1] }, cell)
        : el("td", { class: columns[place][1], "data-name": columns[place][0] }, cell))))));
}

function scrolling(name, inner, tall) {
  return el("div", { class: tall ? "scroll tall" : "scroll", role: "region", tabindex: 0,
    "aria-label": name }, inner);
}

function pairs(entries) {
  return el("dl", {}, entries.filter(([, value]) => value !== null && value !== undefined
    && value !== "").map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function section(id, heading, ...children) {
  return el("section", { class: "card", "aria-labelledby": `${id}-heading`, id },
    el("h2", { id: `${id}-heading` }, heading), children);
}
