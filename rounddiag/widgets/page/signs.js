// Signs for what cannot be seen in text that was written by models and web pages.

const PICTURE_PARTS =
  /(?<=\p{Extended_Pictographic}\ufe0f?)(?:\u200d(?=\p{Extended_Pictographic})|\ufe0f)/u;
// Line ends and tabs; spaces that stand alone, in rows or last; what has no shape; and
// marks that stand on nothing, or in heaps.
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

/** Divide text into parts: strings, and signs as `{sign, code, text}`. */
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

// Joiners stay where they make one picture of two.
function joinsPicture(text, at) {
  const pattern = new RegExp(PICTURE_PARTS, "uy");
  pattern.lastIndex = at;
  return pattern.test(text);
}

function signOf(unseen) {
  if (unseen[0] === " ") return { sign: "·".repeat(unseen.length), text: unseen };
  if (unseen in SIGNS) return { sign: SIGNS[unseen], text: unseen };
  const codes = [...unseen].map((one) => one.codePointAt(0).toString(16).toUpperCase());
  const sign = codes.map((code) => `⟨U+${code.padStart(4, "0")}⟩`).join("");
  return { sign, isCode: true, text: unseen };
}

/** Text on one line, with signs for what cannot be seen. */
function visible(text) {
  return visibleParts(text)
    .map((part) => part.sign ?? part)
    .join("");
}

/** Nodes that show text; line ends break the line behind their sign. */
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
