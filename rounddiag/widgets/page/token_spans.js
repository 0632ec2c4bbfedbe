// @ts-check
// Tokens as spans, in chunks that are laid out only when visible; of many tokens, rounds
// and chunks are filled only when they come near.

const NOT_FINITE = 127; // the level of a diff that is not
const CHUNK = 200; // tokens; a chunk ends with a line where it can
const LONGEST_CHUNK = 800;
const MANY_SPANS = 800;
const spanClasses = [];

/** The chunks of some tokens; `fill` makes the spans, which `makeSpan` returns. */
function tokenChunks(tokens, first, stop, makeSpan) {
  const chunks = [];
  for (let start = first; start < stop; start = chunks.at(-1).stop) {
    const end = chunkEnd(tokens.piece, start, stop);
    const node = element("div", { class: "rdx-chunk", "data-first": start });
    node.style.containIntrinsicBlockSize = `auto ${textHeight(end - start)}px`;
    const spans = () => Array.from({ length: end - start }, (_, at) => makeSpan(start + at));
    chunks.push({ first: start, stop: end, ...filledLater(node, textHeight(end - start), spans) });
  }
  return chunks;
}

const textHeight = (num) => 22 * Math.ceil(num / 12); // about, in pixels

/** A part of the text: `make` returns its nodes, and `fill` puts them in, once. */
function filledLater(node, height, make) {
  node.style.minHeight = `${height}px`;
  const fill = () => {
    if (!node.style.minHeight) return;
    node.style.minHeight = "";
    node.append(...make());
  };
  return { node, fill, isFilled: () => !node.style.minHeight };
}

function chunkEnd(pieces, start, stop) {
  const longest = Math.min(stop, start + LONGEST_CHUNK);
  for (let index = start + CHUNK; index < longest; index += 1) {
    if (pieces[index - 1].endsWith("\n")) return index;
  }
  return longest;
}

function tokenSpan(tokens, index, threshold, shade = null) {
  const span = document.createElement("span");
  const name = shade ? classOfShade(tokens, index, shade) : classOfToken(tokens, index, threshold);
  if (name) span.className = name;
  const parts = visibleParts(tokens.piece[index]);
  if (parts.length === 1 && !parts[0].sign) span.textContent = parts[0];
  else span.append(...nodesOfParts(parts));
  return span;
}

function classOfToken({ level, diff, a, b, is_special: isSpecial }, index, threshold) {
  const [over, under] = [surprise(a[index]), surprise(b[index])];
  const isBeyond = Math.abs(diff[index]) > threshold;
  const strength = level[index] === NOT_FINITE ? 9 : level[index];
  const key = ((((strength + 8) * 9 + over) * 9 + under) * 2 + isSpecial[index]) * 2 + Number(isBeyond);
  return (spanClasses[key] ??= [
    strength === 9 ? "rdx-x" : levelClass(strength),
    over ? `rdx-over${over}` : "",
    under ? `rdx-under${under}` : "",
    isSpecial[index] ? "rdx-special" : "",
    isBeyond ? "rdx-u" : "",
  ].filter(Boolean).join(" "));
}

// What else can colour the text: in grey, darker for more; hatched below zero.
const SHADES = {
  diff: ["diff", "difference of the log-probs"],
  probability: ["probability", "darker: less probable for the first score", ({ a, surprise }, at) => 8 * (1 - Math.exp(surprise ? -surprise[at] : a[at]))],
  entropy: ["entropy", "darker: higher, 3 nat and more", ({ entropy }, at) => (8 * entropy[at]) / 3],
  advantage: ["advantage", "darker: larger, within the sample; hatched: below 0", ({ advantage }, at, largest) => (8 * advantage[at]) / largest],
  loss_mask: ["mask", "dark: masked, not in the loss", ({ loss_mask: mask }, at) => 8 * (1 - mask[at])],
  importance_weight: ["weight", "darker: larger; 2 and more are darkest", ({ diff }, at) => 4 * Math.exp(diff[at])],
};

/** The colours that a sample's tokens have values for; the first is none without a pair. */
function shadesOf({ tokens, lacks }) {
  const isThere = { probability: !lacks || tokens.surprise, importance_weight: !lacks };
  return Object.keys(SHADES).filter((name) => isThere[name] ?? (name === "diff" || tokens[name]));
}

function shadeOf(trajectory, name) {
  const { tokens } = trajectory;
  if (name === "diff" || !shadesOf(trajectory).includes(name)) return null;
  const largest = tokens.advantage?.reduce((size, value) => Math.max(size, Math.abs(value)), 0) || 1;
  return (at) => SHADES[name][2](tokens, at, largest);
}

function classOfShade({ is_special: isSpecial }, index, shade) {
  const value = shade(index);
  const level = clamp(Math.round(Math.abs(value)), 0, 8) || 0;
  return `${level ? `rdx-g${level}` : ""} ${value < 0 && level ? "rdx-neg" : ""} ${isSpecial[index] ? "rdx-special" : ""}`.trim();
}

/** The background class of a level: blue for more, orange for less. */
function levelClass(level) {
  return level ? `rdx-${level > 0 ? "p" : "n"}${Math.abs(level)}` : "";
}

// -log-prob, in whole nats up to 8; 0 where it is not known.
function surprise(logProb) {
  return clamp(Math.round(-logProb), 0, 8) || 0;
}

/** The span of a token; what is beside it is filled, too. */
function spanOfToken(rounds, index) {
  const now = rounds.findIndex(({ stop }) => index < stop);
  for (const near of [now - 1, now, now + 1]) rounds[near]?.fill();
  const chunks = rounds[now].chunks;
  const at = chunks.findIndex(({ stop }) => index < stop);
  for (const near of [at - 1, at, at + 1]) chunks[near]?.fill();
  return chunks[at].node.children[index - chunks[at].first];
}

/** The token that contains a node, or -1. */
function tokenOfSpan(node) {
  const span = node.closest("[data-first] > *");
  if (!span) return -1;
  const chunk = span.parentNode;
  return Number(chunk.dataset.first) + Array.prototype.indexOf.call(chunk.children, span);
}
