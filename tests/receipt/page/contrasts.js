// Contrast ratios (WCAG 2.2) of every text that is shown on what is behind it, and of graphics.
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return [red, green, blue, alpha / 255];
}
function over(top, below) {
  const share = top[3];
  return [0, 1, 2].map((place) => top[place] * share + below[place] * (1 - share)).concat(1);
}
function ground(element) {
  const stack = [];
  for (let one = element; one; one = one.parentElement) stack.push(rgba(getComputedStyle(one).backgroundColor));
  const page = rgba(getComputedStyle(document.body).backgroundColor);
  return stack.reverse().reduce((below, top) => over(top, below), page);
}
function luminance(colour) {
  const [red, green, blue] = colour.slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function contrast(one, other) {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}
const text = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const { parentElement: parent, data } = walk.currentNode;
  const style = getComputedStyle(parent);
  if (!data.trim() || parent.closest(".hear, .skip, script, style") || style.visibility === "hidden") continue;
  if (parent.namespaceURI.includes("svg")) {
    const box = rgba(getComputedStyle(parent.parentElement.querySelector("rect")).fill);
    text.push([contrast(rgba(style.fill), over(box, ground(parent.closest("div")))), data.slice(0, 30)]);
  } else {
    const below = ground(parent);
    text.push([contrast(over(rgba(style.color), below), below), data.slice(0, 30)]);
  }
}
const graphics = [];
for (const [selector, property] of [[".answer .claim", "textDecorationColor"], [".graph rect", "stroke"],
  [".graph .edge", "stroke"], [".gauge .front", "fill"], [".bar .a", "fill"], [".bar .other", "fill"]]) {
  for (const one of document.querySelectorAll(selector)) {
    const below = ground(one.closest("div, section, td"));
    graphics.push([contrast(over(rgba(getComputedStyle(one)[property]), below), below), selector]);
  }
}
return { text, graphics };
