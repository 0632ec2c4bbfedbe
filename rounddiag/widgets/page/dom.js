// @ts-check
// Elements, numbers and visible text. Text becomes text nodes, so none of it can run.

/** Create an element. `on` has listeners by event; `true` sets an attribute without a
 * value; null, undefined and false are left out, of attributes and children.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 * @returns {any} an HTMLElement, with the properties of its kind */
function element(tag, { on = {}, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  node.append(...children.flat().filter(isThere));
  return node;
}

/** Create a button.
 * @param {Record<string, any>} attributes
 * @param {(event: any) => any} onClick
 * @param {...any} children
 * @returns {HTMLButtonElement} */
function pushButton(attributes, onClick, ...children) {
  return element("button", { type: "button", ...attributes, on: { click: onClick } }, ...children);
}

/** Create an SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 * @returns {any} an SVGElement */
function shape(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

function setAttribute(node, name, value) {
  if (isThere(value)) node.setAttribute(name, value === true ? "" : value);
}

function isThere(value) {
  return value !== null && value !== undefined && value !== false;
}

/** Replace the children of a node. */
function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter(isThere));
}

// Each explorer of a page loads this script anew, so a counter would start anew too.
function uniqueName(kind) {
  return `rdx-${kind}-${Math.random().toString(36).slice(2)}`;
}

/** A sentence in place of missing content. */
function sentence(...children) {
  return element("p", { class: "rdx-empty" }, ...children);
}

/** Nodes of a message, in which backticks enclose code. */
function prose(text) {
  return visible(text).split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

/** Put text on the clipboard, also where a page without https has no API for it. */
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = element("textarea", { value: text });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// Making one takes longer than using it.
const DECIMALS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });

/** Format a number with three significant digits, as `format_number` in the figures. */
function number(value) {
  // JSON has null for values that are not finite.
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "−∞" : "not finite";
  const rounded = Number(value.toPrecision(3)) || 0;
  const size = Math.abs(rounded);
  const text = size && (size < 1e-4 || size >= 1e6) ? rounded.toExponential() : DECIMALS.format(rounded);
  return text.replaceAll("-", "−").replace("e+", "e");
}

/** Write a share with two significant digits; 0 % and 100 % are none and all. */
function percent(share) {
  if (share > 0 && share < 1e-4) return "<0.01 %";
  const rounded = Number((100 * share).toPrecision(2));
  return share < 1 && rounded >= 100 ? ">99 %" : `${number(rounded)} %`;
}

/** Pad texts of numbers so that their decimal points are below each other. */
function alignDecimals(texts) {
  const parts = texts.map((text) => text.match(/^[^\d]*[\d,]+(\.?)(\d*)$/)); // none with an exponent
  const digits = Math.max(0, ...parts.map((part) => part?.[2].length ?? 0));
  // Spaces as wide as a point, and as a digit.
  return texts.map((text, at) => (parts[at] && digits ? text + (parts[at][1] ? "" : "\u2008") + "\u2007".repeat(digits - parts[at][2].length) : text));
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** Format a count with separators. */
const groupDigits = (count) => DECIMALS.format(count);

const ORDINALS = new Intl.PluralRules("en-US", { type: "ordinal" });
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };

/** Format a place: 1st, 2nd. */
const ordinal = (place) => groupDigits(place) + ENDINGS[ORDINALS.select(place)];

/** Format a number with its sign. */
function withSign(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

/** Format a count with its noun in the right number. */
function pluralize(count, noun) {
  return `${groupDigits(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function brokenTokens(count) {
  return `${pluralize(count, "token")} not finite`;
}

/** Scroll a box, and nothing around it, until a node inside is visible, with a margin
 * of at most a quarter of the box. */
function reveal(box, node, margin = 24) {
  const [around, inside] = [box.getBoundingClientRect(), node.getBoundingClientRect()];
  const nearest = (start, end, from, to, room) =>
    start < from + room ? start - from - room : end > to - room ? end - to + room : 0;
  const room = (size) => Math.min(margin, size / 4);
  box.scrollBy({
    top: nearest(inside.top, inside.bottom, around.top, around.bottom, room(around.height)),
    left: nearest(inside.left, inside.right, around.left, around.right, room(around.width)),
  });
}

/** Let arrow keys, Home and End move the focus within a group. */
function walkWithArrows(group, controls, onReach) {
  group.addEventListener("keydown", (event) => {
    const all = controls();
    const at = all.indexOf(event.target.closest("button"));
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const next = { Home: 0, End: all.length - 1 }[event.key] ?? at + step;
    if (at < 0 || Number.isNaN(next)) return;
    event.preventDefault();
    event.stopPropagation();
    const reached = all[clamp(next, 0, all.length - 1)];
    reached.focus({ preventScroll: true });
    onReach(reached);
  });
}

// Visible signs for invisible characters: models and web pages wrote this text.

const PICTURE_PARTS =
  /(?<=\p{Extended_Pictographic}\ufe0f?)(?:\u200d(?=\p{Extended_Pictographic})|\ufe0f)/uy;
// Line ends and tabs; spaces that stand alone, in a row or at the end; characters
// without a glyph; combining marks without a base, or stacked.
const UNSEEN = new RegExp(
  [
    "\\n|\\t",
    "^ +$| {2,}| $",
    "(?! )[\\p{C}\\p{Z}\\p{Default_Ignorable_Code_Point}\\u2800]",
    "^\\p{M}+|(?<=\\p{M}{3})\\p{M}",
  ].join("|"),
  "gu",
);
const SIGNS = { "\n": "↵", "\t": "⇥" };
const knownParts = new Map();

/** Split text into strings and signs, `{sign, isCode, text}`. */
function visibleParts(text) {
  let parts = knownParts.get(text);
  if (!parts) {
    parts = dividedAtUnseen(text);
    if (knownParts.size > 50_000) knownParts.clear();
    knownParts.set(text, parts);
  }
  return parts;
}

function dividedAtUnseen(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (joinsPicture(text, match.index)) continue;
    if (match.index > end) parts.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    parts.push(signOf(match[0]));
  }
  if (end < text.length) parts.push(text.slice(end));
  return parts;
}

// Joiners within an emoji are kept.
function joinsPicture(text, at) {
  PICTURE_PARTS.lastIndex = at;
  return PICTURE_PARTS.test(text);
}

function signOf(unseen) {
  if (unseen[0] === " ") return { sign: "·".repeat(unseen.length), text: unseen };
  if (unseen in SIGNS) return { sign: SIGNS[unseen], text: unseen };
  const codes = [...unseen].map((letter) => letter.codePointAt(0).toString(16).toUpperCase());
  const sign = codes.map((code) => `⟨U+${code.padStart(4, "0")}⟩`).join("");
  return { sign, isCode: true, text: unseen };
}

/** Text on one line, with signs for invisible characters. */
function visible(text) {
  return visibleParts(text).map((part) => part.sign ?? part).join("");
}

/** Nodes that show text; a line breaks after the sign of its end. */
function visibleNodes(text) {
  return nodesOfParts(visibleParts(text));
}

function nodesOfParts(parts) {
  return parts.flatMap((part) => {
    if (!part.sign) return [part];
    const sign = part.isCode
      ? element("span", { class: "rdx-code" }, part.sign)
      : element("i", { class: "rdx-sign" }, part.sign);
    return part.text === "\n" ? [sign, "\n"] : [sign];
  });
}
