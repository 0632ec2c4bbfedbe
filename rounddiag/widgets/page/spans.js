// Tokens as spans, in chunks that are laid out only when they are seen.

const NOT_FINITE = 127; // the level of a diff that is not
const CHUNK = 200; // tokens; a chunk ends with a line where it can
const LONGEST_CHUNK = 800;
const spanClasses = [];

/** The spans of some tokens. */
function tokenChunks(tokens, first, stop, threshold) {
  const chunks = [];
  for (let start = first; start < stop; start = chunks.at(-1).stop) {
    const end = chunkEnd(tokens.piece, start, stop);
    const spans = document.createDocumentFragment();
    for (let index = start; index < end; index += 1)
      spans.append(tokenSpan(tokens, index, threshold));
    const node = element("div", { class: "rdx-chunk", "data-first": start }, spans);
    node.style.containIntrinsicBlockSize = `auto ${22 * Math.ceil((end - start) / 12)}px`;
    chunks.push({ first: start, stop: end, node });
  }
  return chunks;
}

function chunkEnd(pieces, start, stop) {
  const longest = Math.min(stop, start + LONGEST_CHUNK);
  for (let index = start + CHUNK; index < longest; index += 1) {
    if (pieces[index - 1].endsWith("\n")) return index;
  }
  return longest;
}

function tokenSpan(tokens, index, threshold) {
  const span = document.createElement("span");
  const name = classOfToken(tokens, index, threshold);
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
  const key = ((((strength + 8) * 9 + over) * 9 + under) * 2 + isSpecial[index]) * 2 + isBeyond;
  return (spanClasses[key] ??= [
    strength === 9 ? "rdx-x" : levelClass(strength),
    over ? `rdx-over${over}` : "",
    under ? `rdx-under${under}` : "",
    isSpecial[index] ? "rdx-special" : "",
    isBeyond ? "rdx-u" : "",
  ]
    .filter(Boolean)
    .join(" "));
}

/** The background of a level: blue for more, orange for less. */
function levelClass(level) {
  return level ? `rdx-${level > 0 ? "p" : "n"}${Math.abs(level)}` : "";
}

// How unlikely a token was, in whole nats up to 8; 0 where it is not known.
function surprise(logProb) {
  return Math.min(8, Math.max(0, Math.round(-logProb))) || 0;
}

/** The span of a token. */
function spanOfToken(chunks, index) {
  const after = chunks.findIndex(({ first }) => first > index);
  const chunk = chunks.at(after < 0 ? -1 : after - 1);
  return chunk?.node.children[index - chunk.first];
}

function spansOfTokens(chunks, first, stop) {
  return Array.from({ length: stop - first }, (_, i) => spanOfToken(chunks, first + i));
}

/** The token that a node is in, or -1. */
function tokenOfSpan(node) {
  const span = node.closest("[data-first] > *");
  if (!span) return -1;
  const chunk = span.parentNode;
  return Number(chunk.dataset.first) + Array.prototype.indexOf.call(chunk.children, span);
}
