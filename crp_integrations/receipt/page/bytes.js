// Bytes, text and canonical JSON (RFC 8785), strict: two writings of one value never pass as one.

class Refused extends Error {}
class Unreadable extends Refused {}
class NotHere extends Refused {}
class Differs extends Refused {}

function refuse(place, why) {
  throw new Refused(`${place}: ${why}`);
}

// For a receipt that is whole, whose contents do not fit one another.
function differ(place, why) {
  throw new Differs(`${place}: ${why}`);
}

const HALF = /\p{Surrogate}/u;
const BEYOND_ASCII = /[^\0-\x7f]/;
const BEYOND_FIRST_PLANE = /[\u{10000}-\u{10ffff}]/u;
const BEYOND_BASE64 = /[^A-Za-z0-9+/=]/;

function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  }
  return btoa(text);
}

function fromBase64(text, place) {
  // One sign is looked for: over megabytes a pattern of all of them has no room to go back in.
  if (typeof text !== "string" || text.length % 4 || BEYOND_BASE64.test(text)) refuse(place, "this is not base64");
  let signs;
  try {
    signs = atob(text);
  } catch {
    return refuse(place, "this is not base64");
  }
  const bytes = Uint8Array.from(signs, (sign) => sign.charCodeAt(0));
  // The last sign can have bits that no byte needs.
  if (toBase64(bytes) !== text) refuse(place, "its base64 is not canonical");
  return bytes;
}

function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function fromHex(text, place) {
  if (typeof text !== "string" || !/^(?:[0-9a-f]{2})*$/.test(text)) {
    refuse(place, "this is not lower-case hexadecimal");
  }
  return Uint8Array.from(text.match(/../g) || [], (pair) => parseInt(pair, 16));
}

function utf8(text) {
  return new TextEncoder().encode(text);
}

function fromUtf8(bytes, place) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return refuse(place, "this is not UTF-8");
  }
}

function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// RFC 8785: JSON.stringify writes strings and numbers as it asks, sort() orders UTF-16 units.
// A receipt holds whole numbers alone, and none that a reader could round.
function canonical(value) {
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw new Refused("a number is not whole, or too large to be read in one way");
  }
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const members = Object.keys(value).sort()
      .map((name) => `${canonical(name)}:${canonical(value[name])}`);
    return `{${members.join(",")}}`;
  }
  // JSON can write half of a surrogate pair, UTF-8 cannot: its hash would be another text's.
  if (typeof value === "string" && HALF.test(value)) throw new Refused("half of a surrogate pair");
  return JSON.stringify(value);
}

// By code points, keys are in another order than by UTF-16 units, where both kinds are at hand.
function oneOrder(value) {
  if (value === null || typeof value !== "object") return true;
  if (Array.isArray(value)) return value.every(oneOrder);
  return Object.keys(value).every((name) => !BEYOND_ASCII.test(name) && oneOrder(value[name]));
}

function fromCanonical(bytes, place) {
  const text = fromUtf8(bytes, place);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    refuse(place, "this is not JSON");
  }
  let wanted;
  try {
    wanted = canonical(value);
  } catch (error) {
    refuse(place, error instanceof Refused ? error.message : "it is nested too deeply");
  }
  if (BEYOND_FIRST_PLANE.test(text) && !oneOrder(value)) refuse(place, "a key that is not ASCII");
  if (wanted !== text) {
    let at = 0;
    while (wanted[at] === text[at]) at += 1;
    refuse(place, `its JSON is not canonical at character ${at}`);
  }
  return value;
}

// Offsets in a receipt count code points; a JavaScript string counts UTF-16 units.
function beginnings(text) {
  const at = [];
  let unit = 0;
  for (const sign of text) {
    at.push(unit);
    unit += sign.length;
  }
  at.push(unit);
  return at;
}

function units(text) {
  const at = beginnings(text);
  return (point) => at[Math.max(0, Math.min(point, at.length - 1))];
}
