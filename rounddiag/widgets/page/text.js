// @ts-check
// The text of a sample, its tokens underlined and marked by their diff, and its search.

/** Matches in the text of each round, as tokens from `first` to before `stop`: one may
 * span several. Throws a SyntaxError for an invalid regular expression. */
function hitsOf({ tokens, rounds }, text, isRegex) {
  const source = isRegex ? text : text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const pattern = new RegExp(source, "gi");
  return rounds.flatMap(({ first, num_tokens: size }) => {
    const pieces = tokens.piece.slice(first, first + size);
    const matches = [...pieces.join("").matchAll(pattern)].filter((match) => match[0]);
    return tokensOf(matches, pieces, first);
  });
}

// Matches and tokens are both in order: one pass over both.
function tokensOf(matches, pieces, first) {
  let [token, end] = [0, pieces[0]?.length ?? 0];
  const tokenAt = (place) => {
    while (end <= place) end += pieces[(token += 1)].length;
    return first + token;
  };
  return matches.map(({ index, 0: words }) => ({
    first: tokenAt(index),
    stop: tokenAt(index + words.length - 1) + 1,
  }));
}

/** The matches of a search; `mark` gets the tokens of all of them. */
function hitMarks(mark) {
  let hits = [];

  function search(trajectory, text, isRegex) {
    mark([]);
    hits = [];
    hits = text ? hitsOf(trajectory, text, isRegex) : [];
    mark(hits.flatMap(({ first, stop }) => Array.from({ length: stop - first }, (_, at) => first + at)));
    return hits.length;
  }

  // The first token of the next match, forwards or backwards, wrapping around.
  function next(index, step = 1) {
    const firsts = hits.map(({ first }) => first);
    if (step > 0) return firsts.find((first) => first > index) ?? firsts[0];
    return firsts.findLast((first) => first < index) ?? firsts.at(-1);
  }

  return { search, next, forget: () => (hits = []) };
}

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
  advantage: ["advantage", "darker: larger, within the sample; hatched: below 0", ({ advantage }, at, most) => (8 * advantage[at]) / most],
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
  const most = tokens.advantage?.reduce((sum, one) => Math.max(sum, Math.abs(one)), 0) || 1;
  return (at) => SHADES[name][2](tokens, at, most);
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

// The rounds of a sample as text, with the observations between them.

// As in figures/colored_text.py: |diff| of the first and the last colour level.
const SCALE_ENDS = [0.003, 3];

const ROUND_HEIGHT = 70; // about, without its tokens, in pixels

/** A round as text, with the observations before it. It has chunks once it is filled;
 * `onFilled` gets it then. */
function roundAsText({ gaps, tokens }, round, makeSpan, onObservation, onFilled) {
  const node = element("section", { class: "rdx-round", "data-round": round.round });
  const part = { round, first: round.first, stop: round.first + round.num_tokens, chunks: [] };
  const make = () => {
    part.chunks = roundChunks(tokens, round, makeSpan);
    const text = element("pre", { class: "rdx-tokens" }, ...part.chunks.map((chunk) => chunk.node));
    const before = gaps.filter((gap) => gap.before === round.round).map((gap) => gapNode(gap, onObservation));
    return [...before, roundHead(round), ...roundNotes(round), text].filter(isThere);
  };
  const { fill, isFilled } = filledLater(node, ROUND_HEIGHT + textHeight(round.num_tokens), make);
  return Object.assign(part, {
    node,
    fill: () => {
      if (isFilled()) return;
      fill();
      onFilled(part);
    },
  });
}

/** What is behind the last round. */
function endOfText({ rounds, gaps, end }, onObservation) {
  const last = gaps.filter(({ before }) => before === null).map((gap) => gapNode(gap, onObservation));
  return [...last, rounds.length > 0 && end && episodeEnd(end)];
}

/** Where the action of a round begins: at its end where the text has none. */
function actionStart({ role }, { first, num_tokens: size, action }) {
  if (!role || action?.kind === "unknown") return first + size;
  const at = role.slice(first, first + size).findIndex((one) => one !== "thought" && one !== "special");
  return at < 0 ? first + size : first + at;
}

/** The thought and the action of a round, each in chunks of its own. */
function roundChunks(tokens, round, makeSpan) {
  const [first, stop] = [round.first, round.first + round.num_tokens];
  const start = actionStart(tokens, round);
  if (start === first || start === stop) return tokenChunks(tokens, first, stop, makeSpan);
  const parts = [tokenChunks(tokens, first, start, makeSpan), tokenChunks(tokens, start, stop, makeSpan)];
  for (const [at, name] of ["rdx-thought", "rdx-action"].entries()) for (const { node } of parts[at]) node.classList.add(name);
  return parts.flat();
}

function roundHead({ round, action, num_tokens: size, num_nonfinite: broken, mean_abs_diff: mean }) {
  const line = visible(action?.line ?? action?.label ?? "");
  return element(
    "h4",
    { class: "rdx-round-head" },
    element("b", {}, `round ${round}`),
    element("span", { class: "rdx-round-action", title: line }, line),
    element("span", { class: "rdx-facts", title: "Generated tokens, and their mean |diff| in nats" }, ...headFacts(size, mean, broken)),
    pushButton({ class: "rdx-fold", title: "Fold the thought (T: all)", "aria-label": "Thought", "aria-expanded": "true" }, foldThought, "▾"),
  );
}

function headFacts(size, mean, broken, all = size) {
  const count = all === size ? pluralize(size, "token") : `${groupDigits(size)} of ${groupDigits(all)} kept`;
  const facts = [(Number.isFinite(mean) || broken > 0) && number(mean), broken && brokenTokens(broken)].filter(Boolean).join(" · ");
  return [count, facts && " · ", facts && element("span", {}, "mean |diff| "), facts];
}

function foldThought({ currentTarget: button }) {
  setFold(button.closest(".rdx-round"), button.getAttribute("aria-expanded") === "true");
}

function setFold(section, isFolded) {
  section.toggleAttribute("data-folded", isFolded);
  section.querySelector(".rdx-fold").setAttribute("aria-expanded", !isFolded);
}

/** Under the head of a round: what the file recorded of it, and why a text is no action. */
function roundNotes({ action, facts = [] }) {
  const text = ({ name, text: value }) => `${visible(name)} ${visible(value)}`;
  const main = facts.filter((one) => one.is_main && !one.is_error);
  const line = main.length > 0 && element("p", { class: "rdx-round-facts", title: facts.map(text).join("\n") }, main.map((one) => element("span", {}, text(one))));
  const errors = facts.filter((one) => one.is_error).map((one) => element("p", { class: "rdx-failed" }, text(one)));
  const why = action?.why && element("p", { class: "rdx-failed" }, "no action: ", prose(action.why), action.written && element("q", {}, visible(action.written)));
  return [line, ...errors, why];
}

/** How the episode ended, as far as the file says. */
function episodeEnd({ facts, last }) {
  const lines = facts.map(({ name, text, is_error: isError }) => element("p", { class: isError ? "rdx-failed" : null }, element("b", {}, `${visible(name)} `), ...visibleNodes(text)));
  const none = element("p", {}, "The file does not say how the episode ended.");
  return element("section", { class: "rdx-end", "aria-label": "End of the episode" }, element("h4", {}, "end"), lines.length ? lines : none, last && element("p", {}, `last action: ${visible(last)}`));
}

/** An observation: its messages, and a button for its tokens one by one. */
function gapNode(gap, onObservation) {
  const { start, stop, turns = [], rest = [], num_tokens: size } = gap;
  const inside = element("span", { class: "rdx-inside" });
  const button = pushButton({ class: "rdx-chip", "aria-expanded": "false", title: "Its tokens one by one" }, () => open(), (start < 0 ? "prompt: " : "") + gapLabel(gap));
  let asked = null;

  async function open() {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    inside.hidden = isOpen;
    if (asked) return;
    asked = onObservation(start, stop);
    const failed = (error) => [sentence(`This observation cannot be shown. ${error.message}`)];
    fill(inside, ...(await asked.then(observedNodes, failed)));
  }

  const cut = rest.length > 0 && element("p", { class: "rdx-cut" }, `… more of ${pluralize(size, "token")} …`);
  const what = start < 0 ? "prompt" : "observation";
  return element("div", { class: "rdx-gap", role: "group", "aria-label": what }, button, turns.map(turnNode), cut, rest.map(turnNode), inside);
}

const LONG_TURN = [6, 480]; // lines and characters that are shown before a click
const FAILURE = /^\s*(Traceback \(most recent call last\)|[\w.]*(Error|Exception)\b|error\b)/im;

/** A message of an observation: who says it, and its words. */
function turnNode({ role, text, num_images: num }) {
  const [lines, most] = LONG_TURN;
  const isLong = text.length > most || text.split("\n").length > lines;
  const words = element("span", { class: "rdx-words-of-turn" }, ...visibleNodes(text));
  const unfold = pushButton({ class: "rdx-unfold", "aria-expanded": "false" }, () => unfold.setAttribute("aria-expanded", node.toggleAttribute("data-whole")), "whole text");
  const images = num > 0 && element("span", { class: "rdx-images" }, pluralize(num, "picture"));
  const name = `rdx-turn${isLong ? " rdx-long" : ""}${FAILURE.test(text) ? " rdx-failed" : ""}`;
  const node = element("div", { class: name }, role && element("b", {}, `${visible(role)} `), text && words, images, isLong && unfold);
  return node;
}

// Of the whole observation.
function gapLabel({ num_tokens: size, num_image_tokens: numImage }) {
  if (!numImage) return pluralize(size, "observed token");
  const others = size > numImage ? `, ${pluralize(size - numImage, "other")}` : "";
  return pluralize(numImage, "image token") + others;
}

// A run of image tokens is shown as a count.
function observedNodes({ pieces, is_image: isImage }) {
  const nodes = [];
  for (let start = 0, stop = 0; start < pieces.length; start = stop) {
    stop = start + 1;
    while (isImage[start] && isImage[stop]) stop += 1;
    const images = isImage[start] && element("span", { class: "rdx-images" }, pluralize(stop - start, "image token"));
    nodes.push(images || element("span", { class: "rdx-piece" }, ...visibleNodes(pieces[start])));
  }
  return nodes;
}

/** The key of colours and lines, with the ends of the scale. */
function textKey({ name_a, name_b, lacks }, threshold, color) {
  if (lacks && color === "diff") return [element("span", {}, lacks)];
  if (color !== "diff") return [element("span", {}, SHADES[color][1])];
  const [a, b] = [name_a, name_b].map(visible);
  const named = (name, text) => element("span", { class: name }, text);
  const levels = [1, 2, 3, 4, 5, 6, 7, 8];
  const ramp = (sign) => named("rdx-ramp", levels.map((level) => named(levelClass(sign * level))));
  const [low, high] = SCALE_ENDS;
  return [
    [ramp(1), `more likely under ${a}, ${low} to ${high} nat`],
    [ramp(-1), "less likely"],
    [named("rdx-u", "underlined"), ` beyond ${number(threshold)} nat`],
    [named("rdx-key-lines", "lines"), ` darker = less probable: over for ${a}, under for ${b}`],
  ].map((line) => element("span", {}, line));
}

/** What is missing from a text, in sentences. */
function notesOnText({ tokens, rounds, text_note: note }) {
  if (!rounds.length) return [sentence("No generated tokens: the response mask is 0 everywhere.")];
  const ids = tokens.token_id;
  const isNumbered = ids && tokens.piece.every((piece, i) => piece === `⟨${ids[i]}⟩`);
  return [
    !ids && tokens.piece[0] === "□" && sentence("The file was saved without text: each square is a token."),
    isNumbered && sentence("No tokenizer: token ids replace the text, and no action can be read. ", ...prose(whereToPass(note))),
    tokens.level.every((level) => level === NOT_FINITE) && sentence("No diff of this sample is finite."),
  ];
}

/** `inner` with a tooltip beside it: `linesOf` gets what `indexOf` returns for a node, unless -1. */
function pointerTip(inner, indexOf, linesOf) {
  const { node: tip, hide, show } = tooltip();
  const node = element("div", { class: "rdx-text-body" }, inner, tip);

  inner.addEventListener("pointerover", ({ target }) => {
    const index = indexOf(target);
    const at = index < 0 ? null : target.getClientRects()[0];
    if (!at) return void hide();
    show(linesOf(index), inner, at);
  });
  inner.addEventListener("pointerleave", hide);
  inner.addEventListener("scroll", hide, { passive: true });
  return { node, hide };
}

// `open_run` where there is a line of steps.
function whereToPass(note) {
  const why = note?.includes("tokenizer") ? `${note.replace(/^.*?: /, "").replace(/;[^;]*$/, "")}. ` : "";
  const isRun = document.querySelector(".rdx-steps:not([hidden])");
  return `${why[0]?.toUpperCase() ?? ""}${why.slice(1)}Pass its path: \`${isRun ? "rd.open_run(folder" : "rd.load(path"}, tokenizer=…)\``;
}

// The text of a sample: a span for each token, coloured by its diff.

function tokenText({ onToken, onObservation }) {
  const key = element("p", { class: "rdx-key" });
  const scroller = element("div", { class: "rdx-scroller", tabindex: 0, role: "group", "aria-label": "Text of the sample" });
  const tip = pointerTip(scroller, tokenOfSpan, (index) => tokenTip(shown, index));
  const notes = element("div", { class: "rdx-text-notes" });
  const node = element("section", { class: "rdx-text" }, notes, tip.node);
  const marks = { "rdx-hit": new Set(), "rdx-found": new Set(), "rdx-dropped": new Set(), "rdx-noted": new Set(), "rdx-capped": new Set(), "rdx-struck": new Set() };
  let color = "diff";
  const hits = hitMarks((tokens) => setClass("rdx-hit", tokens));
  let chosen = { span: null, head: null };
  let [shown, rounds, threshold, isFollowed, frame, shade] = [null, [], Infinity, true, 0, null];
  let [kept, notesOf, isFolded] = [null, [], false];
  const fills = new WeakMap(); // by node
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        target.classList.toggle("rdx-near", isIntersecting);
        if (isIntersecting) fills.get(target)();
      }
    },
    { root: scroller, rootMargin: "800px 0px" },
  );
  const filledChunks = () => rounds.flatMap(({ chunks }) => chunks.filter(({ isFilled }) => isFilled()));

  function observe({ node, fill: fillNow }) {
    fills.set(node, fillNow);
    near.observe(node);
  }

  // What was said of all rounds while this one was not there yet.
  function onFilled(part) {
    const isShort = shown.num_tokens <= MANY_SPANS;
    for (const chunk of part.chunks) isShort ? chunk.fill() : observe(chunk);
    if (kept) showKept(part);
    showNotes(part);
    if (isFolded && part.node.querySelector(".rdx-thought")) setFold(part.node, true);
  }

  function makeSpan(index) {
    const span = tokenSpan(shown.tokens, index, threshold, shade);
    for (const [name, tokens] of Object.entries(marks)) if (tokens.has(index)) span.classList.add(name);
    return span;
  }

  // Set a class of these tokens, and of no others.
  function setClass(name, tokens) {
    for (const span of scroller.querySelectorAll(`.${name}`)) span.classList.remove(name);
    marks[name] = new Set(tokens);
    if (!tokens.length) return;
    for (const { first, stop, node: chunk } of filledChunks()) {
      for (let index = first; index < stop; index += 1) {
        if (marks[name].has(index)) chunk.children[index - first].classList.add(name);
      }
    }
  }

  function show(trajectory, newThreshold) {
    [shown, threshold, shade] = [trajectory, newThreshold, shadeOf(trajectory, color)];
    [chosen, kept, notesOf, isFolded] = [{ span: null, head: null }, null, [], false];
    hits.forget();
    tip.hide();
    near.disconnect();
    scroller.scrollTop = 0; // of the old text, which is laid out
    for (const name of Object.keys(marks)) marks[name] = new Set();
    rounds = trajectory.rounds.map((round) => roundAsText(trajectory, round, makeSpan, onObservation, onFilled));
    if (trajectory.num_tokens <= MANY_SPANS) for (const part of rounds) part.fill();
    rounds.forEach(observe);
    fill(key, ...textKey(trajectory, threshold, shade ? color : "diff"));
    fill(notes, ...notesOnText(trajectory));
    fill(scroller, rounds.map((part) => part.node), endOfText(trajectory, onObservation));
  }

  function setThreshold(newThreshold) {
    const [low, high] = [threshold, newThreshold].sort((a, b) => a - b);
    threshold = newThreshold;
    if (!shown || shade) return;
    fill(key, ...textKey(shown, threshold, shade ? color : "diff"));
    for (const { first, stop, node: chunk } of filledChunks()) {
      for (let index = first; index < stop; index += 1) {
        const size = Math.abs(shown.tokens.diff[index]);
        if (size > low && size <= high) chunk.children[index - first].classList.toggle("rdx-u", size > threshold);
      }
    }
  }

  // Colour by another number; the spans of what is filled are made anew.
  function setColor(newColor) {
    if (newColor === color) return;
    color = newColor;
    if (!shown) return;
    shade = shadeOf(shown, color);
    fill(key, ...textKey(shown, threshold, shade ? color : "diff"));
    for (const { first, stop, node: chunk } of filledChunks()) {
      const now = [...chunk.children].indexOf(chosen.span);
      fill(chunk, Array.from({ length: stop - first }, (_, at) => makeSpan(first + at)));
      if (now >= 0) (chosen.span = chunk.children[now]).classList.add("rdx-now");
    }
  }

  function mark(round, token = null) {
    const part = rounds.find((one) => one.round.round === round);
    const before = chosen;
    part?.fill();
    chosen = {
      head: part?.node.querySelector(".rdx-round-head") ?? null,
      span: (part && token !== null && spanOfToken(rounds, part.first + token)) || null,
    };
    isFollowed = true;
    const folded = chosen.span?.closest("[data-folded] .rdx-thought");
    if (folded) setFold(folded.closest(".rdx-round"), false);
    revealChosen(); // before the classes change, which would be laid out first
    for (const name of ["head", "span"]) {
      before[name]?.classList.remove("rdx-now");
      chosen[name]?.classList.add("rdx-now");
    }
  }

  function revealChosen() {
    const target = chosen.span ?? chosen.head;
    if (!target) return;
    reveal(scroller, target, chosen.span ? Infinity : 8);
    uncoverHead(scroller);
  }

  // The current token stays in sight when the drawer opens, and when text before it gets
  // its height, which it has as soon as it is near, unless somebody has scrolled.
  const follow = new ResizeObserver(revealChosen);
  follow.observe(scroller);
  scroller.addEventListener("contentvisibilityautostatechange", () => {
    cancelAnimationFrame(frame); // many parts at once
    frame = requestAnimationFrame(() => isFollowed && revealChosen());
  });
  for (const kind of ["wheel", "pointerdown", "keydown"]) scroller.addEventListener(kind, () => (isFollowed = false), { passive: true });

  scroller.addEventListener("click", (event) => {
    const index = tokenOfSpan(event.target);
    if (index < 0 || !getSelection().isCollapsed) return;
    onToken(...placeAt(shown, index), index);
  });

  // |diff| up to the healthy level of the batch's kind is not tinted.
  function setUsual(usual) {
    const [low, high] = SCALE_ENDS;
    const level = Math.floor((8 * Math.log(usual / low)) / Math.log(high / low));
    scroller.dataset.calm = clamp(level, 0, 8) || 0;
  }

  // Mark the tokens of a finding.
  function setMarks({ round, token }) {
    const firsts = new Map(shown.rounds.map((one) => [one.round, one.first]));
    setClass("rdx-found", Array.from(round, (one, at) => firsts.get(one) + token[at]));
  }

  // A mark at each token with a note, and the words at the head of a round.
  function setNotes(notes) {
    setClass("rdx-noted", notes.filter((note) => noteScope(note) === "token").map((note) => indexOf(shown, note)));
    for (const mark of scroller.querySelectorAll(".rdx-round-head > .rdx-note-mark")) mark.remove();
    notesOf = notes.filter((note) => noteScope(note) === "round");
    rounds.forEach(showNotes);
  }

  function showNotes({ node: section, round: { round } }) {
    for (const { text } of notesOf.filter((note) => note.round === round)) {
      const mark = element("span", { class: "rdx-note-mark", title: visible(text) }, `✎ ${visible(text)}`);
      section.querySelector(".rdx-round-head > .rdx-facts")?.before(mark);
    }
  }

  // Dim what the filter drops; null keeps all.
  function setKept(newKept) {
    kept = newKept;
    setClass("rdx-dropped", kept ? Array.from(kept.keys()).filter((at) => !kept[at]) : []);
    rounds.forEach(showKept);
  }

  function showKept({ node: section, round }) {
    const facts = section.querySelector(".rdx-round-head > .rdx-facts");
    if (!facts) return;
    const { size, mean, broken } = keptMean(shown, round, kept);
    fill(facts, ...headFacts(size, mean, broken, round.num_tokens));
  }

  // The thoughts of all rounds.
  function foldAll() {
    const sections = [...scroller.querySelectorAll(".rdx-round:has(.rdx-thought)")];
    isFolded = sections.some((one) => !one.hasAttribute("data-folded"));
    for (const one of sections) setFold(one, isFolded);
  }

  // What a correction does to each token; null without one.
  function setFates(fates) {
    for (const [fate, name] of Object.entries(FATES)) setClass(name, fates ? Array.from(fates.keys()).filter((at) => fates[at] === Number(fate)) : []);
  }

  const search = (text, isRegex) => (shown ? hits.search(shown, text, isRegex) : 0);
  return { node, key, show, mark, setThreshold, setUsual, setMarks, setKept, setFates, setNotes, setColor, foldAll, search, nextHit: hits.next, close: () => [follow, near].forEach((one) => one.disconnect()) };
}

// Scroll on until no sticky head is cut by the next one, or by the end of its round.
function uncoverHead(scroller) {
  const { top } = scroller.getBoundingClientRect();
  const height = scroller.querySelector(".rdx-round-head")?.offsetHeight;
  for (const part of scroller.querySelectorAll(".rdx-round-head, .rdx-tokens")) {
    const around = part.getBoundingClientRect();
    const at = (part.matches("pre") ? around.bottom : around.top) - top;
    if (at > 0 && at < height) scroller.scrollBy({ top: at });
  }
}

function tokenTip({ tokens, name_a: a, name_b: b, lacks }, index) {
  const { diff, a: ofA, b: ofB, round, rank_in_round: rank, surprise, role } = tokens;
  if (lacks) return [surprise ? `surprise ${number(surprise[index])} nat` : role?.[index] ?? "", `round ${round[index]}`];
  return [
    `diff ${withSign(diff[index])}`,
    `${visible(a)} ${number(ofA[index])}, ${visible(b)} ${number(ofB[index])}`,
    `round ${round[index]}, ${rank[index] ? `${ordinal(rank[index])} largest in it` : "not finite"}`,
  ];
}

// The one box: it searches this text or all samples, and goes to places.

/** The place that a text names: an address, `88 r17 t40`, an id, or a round; else null. */
function placeNamed(text, { ids, numSamples, current }) {
  const words = text.trim().replace(/^step \d+ \/ /, "");
  const [, name, rest] = words.match(/^(.*?)((?: \/ [rt]\d+)*)$/s);
  const at = ids.indexOf(ids.includes(words) ? words : name);
  const plain = ids.includes(words) ? String(at) : at >= 0 ? `${at}${rest}` : words;
  const [, sample, round, token] = plain.match(/^(?:sample )?(\d+)?[\s/]*(?:r(\d+))?[\s/]*(?:t(\d+))?$/i) ?? [];
  if ((sample ?? round ?? token) === undefined || Number(sample) >= numSamples) return null;
  const place = { sample: Number(sample ?? current.sample) };
  if (round !== undefined) place.round = Number(round);
  if (token !== undefined) Object.assign(place, { round: place.round ?? current.round, token: Number(token) });
  return place;
}

/** What `placeNamed` reads: `step 40 / task-08/1 / r3 / t17`. */
function addressOf({ sample, round, token }, { ids, step }) {
  const name = ids[sample];
  const isOwn = name !== undefined && ids.indexOf(name) === ids.lastIndexOf(name);
  const parts = [step !== null && `step ${step}`, isOwn ? name : `sample ${sample}`];
  const inside = [round !== undefined && `r${round}`, token !== undefined && `t${token}`];
  return [...parts, ...inside].filter(Boolean).join(" / ");
}

/** `known` returns what `placeNamed` needs; `onAll` gets a text to find in all samples. */
function searchBox({ text, at, onHit, known, onPlace, onAll, canSearchAll }) {
  const title = "A text, 88 for a sample, 88 r17 t40 for a token, an id or an address; in quotes it is a text. Enter goes on.";
  const input = element("input", { type: "search", placeholder: "Search or go to  /", "aria-label": "Search the text", title });
  const regex = regexToggle("Regular expression in the text", again);
  const all = element("input", { type: "checkbox", on: { change: again } });
  const allToggle = element("label", { class: "rdx-toggle rdx-all", title: "List the hits in all samples" }, all, element("span", {}, "all"));
  const count = element("output", { class: "rdx-count" });
  const node = element("div", { class: "rdx-search", role: "search" }, input, regex.node, canSearchAll && allToggle, count);
  const words = () => input.value.match(/^"(.*)"$/)?.[1] ?? input.value;
  const place = () => (regex.input.checked || all.checked ? null : placeNamed(input.value, known()));
  let timer = 0;

  /** @param {{ target?: any }} [event] */
  function again({ target } = {}) {
    const wanted = place();
    try {
      const num = text.search(words(), regex.input.checked);
      const where = wanted && Object.entries(wanted).map(([name, one]) => `${name} ${one}`).join(", ");
      count.textContent = input.value && (where ? `Enter: ${where}` : pluralize(num, "hit"));
    } catch (error) {
      count.textContent = /** @type {Error} */ (error).message; // half an expression, while it is typed
    }
    clearTimeout(timer);
    if (target && all.checked) timer = setTimeout(onAll, REST, false);
  }

  input.addEventListener("input", again);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return undefined;
    if (all.checked) return onAll(true);
    const wanted = place();
    if (wanted) return onPlace(wanted);
    const hit = text.nextHit(at(), event.shiftKey ? -1 : 1);
    return hit === undefined ? undefined : onHit(hit);
  });
  return { node, again, focus: () => input.focus(), query: () => ({ text: words(), is_regex: regex.input.checked }) };
}
