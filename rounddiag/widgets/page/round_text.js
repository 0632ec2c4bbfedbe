// @ts-check
// The rounds of a sample as text, with the observations between them.

const ROUND_HEIGHT = 70; // about, without its tokens, in pixels

/** A round as text, with the observations before it. It has chunks once it is filled;
 * `onFilled` gets it then. */
function roundAsText({ gaps, tokens, noun }, round, makeSpan, { onObservation, onContext }, onFilled) {
  const node = element("section", { class: "rdx-round", "data-round": round.round });
  const part = { round, first: round.first, stop: round.first + round.num_tokens, chunks: [] };
  const make = () => {
    part.chunks = roundChunks(tokens, round, makeSpan);
    const text = element("pre", { class: "rdx-tokens" }, ...part.chunks.map((chunk) => chunk.node));
    const before = gaps.filter((gap) => gap.before === round.round).map((gap) => gapNode(gap, noun, onObservation));
    return [...before, contextChip(round, onContext), roundHead(round, noun), ...roundNotes(round), text].filter(isThere);
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
function endOfText({ rounds, gaps, end, noun }, onObservation) {
  const last = gaps.filter(({ before }) => before === null).map((gap) => gapNode(gap, noun, onObservation));
  return [...last, rounds.length > 0 && end && episodeEnd(end)];
}

/** Where the action of a round begins: at its end where the text has none. */
function actionStart({ role }, { first, num_tokens: size, action }) {
  if (!role || action?.kind === "unknown") return first + size;
  const at = role.slice(first, first + size).findIndex((name) => name !== "thought" && name !== "special");
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

function roundHead({ round, action, num_tokens: size, num_nonfinite: broken, mean_abs_diff: mean, costs }, noun) {
  const line = visible(action?.line ?? action?.label ?? "");
  return element(
    "h4",
    { class: "rdx-round-head" },
    element("b", {}, `round ${round}`),
    element("span", { class: "rdx-round-action", title: line }, line),
    costs && element("span", { class: "rdx-costs" }, costs),
    element("span", { class: "rdx-facts", title: `Generated ${noun}s, and their mean |diff| in nats` }, ...headFacts(size, noun, mean, broken)),
    pushButton({ class: "rdx-fold", title: "Fold the thought (T: all)", "aria-label": "Thought", "aria-expanded": "true" }, foldThought, "▾"),
  );
}

/** What the model read before a round: how much, and what left; opens all of it. */
function contextChip({ round, context }, onContext) {
  if (!context) return null;
  const words = context.text + (context.is_rewritten ? " ↻\u00a0rewritten" : "");
  const attributes = { class: "rdx-chip rdx-context-chip", title: "What the model saw before this round (c)" };
  return element("div", { class: "rdx-context-line" }, pushButton(attributes, () => onContext(round), words));
}

function headFacts(size, noun, mean, broken, all = size) {
  const count = all === size ? pluralize(size, noun) : `${groupDigits(size)} of ${groupDigits(all)} kept`;
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
  const main = facts.filter((fact) => fact.is_main && !fact.is_error);
  const line = main.length > 0 && element("p", { class: "rdx-round-facts", title: facts.map(text).join("\n") }, main.map((fact) => element("span", {}, text(fact))));
  const errors = new Map(facts.filter((fact) => fact.is_error).map((fact) => [fact.text, element("p", { class: "rdx-failed" }, text(fact))]));
  const why = action?.why && element("p", { class: "rdx-failed" }, "no action: ", prose(action.why), action.written && element("q", {}, visible(action.written)));
  return [line, ...errors.values(), why]; // two columns can have one error
}

/** How the episode ended, as far as the file says. */
function episodeEnd({ facts, last, outcome }) {
  const lines = facts.map(({ name, text, is_error: isError }) => element("p", { class: isError ? "rdx-failed" : null }, element("b", {}, `${visible(name)} `), ...visibleNodes(text)));
  const none = element("p", {}, OUTCOMES[outcome?.word] ?? (outcome?.word || "The file does not say how the episode ended."));
  return element("section", { class: "rdx-end", "aria-label": "End of the episode" }, element("h4", {}, "end"), lines.length ? lines : none, last && element("p", {}, `last action: ${visible(last)}`));
}

/** An observation: its messages, and a button for its tokens one by one. */
function gapNode(gap, noun, onObservation) {
  const { start, stop, turns = [], rest = [], num_tokens: size } = gap;
  const inside = element("span", { class: "rdx-inside" });
  const button = pushButton({ class: "rdx-chip", "aria-expanded": "false", title: `Its ${noun}s one by one` }, () => open(), (start < 0 ? "prompt: " : "") + gapLabel(gap, noun));
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

  const cut = rest.length > 0 && element("p", { class: "rdx-cut" }, `… more of ${pluralize(size, noun)} …`);
  const label = start < 0 ? "prompt" : "observation";
  const isShort = noun === "word" && size < 2; // all of it is in sight
  if (isShort && !turns.some(({ text, num_images: num }) => text || num)) return null;
  return element("div", { class: "rdx-gap", role: "group", "aria-label": label }, !isShort && button, turns.map(turnNode), cut, rest.map(turnNode), inside);
}

const LONG_TURN = [6, 480]; // lines and characters that are shown before a click

/** A message of an observation: who says it, and its words. */
function turnNode({ role, text, num_images: num, error }) {
  const [lines, length] = LONG_TURN;
  const isLong = text.length > length || text.split("\n").length > lines;
  const words = element("span", { class: "rdx-words-of-turn" }, ...visibleNodes(text));
  const unfold = pushButton({ class: "rdx-unfold", "aria-expanded": "false" }, () => unfold.setAttribute("aria-expanded", node.toggleAttribute("data-whole")), "whole text");
  const images = num > 0 && element("span", { class: "rdx-images" }, pluralize(num, "picture"));
  const name = `rdx-turn${isLong ? " rdx-long" : ""}${error ? " rdx-failed" : ""}`;
  const node = element("div", { class: name }, role && element("b", {}, `${visible(role)} `), text && words, images, isLong && unfold);
  return node;
}

// Of the whole observation.
function gapLabel({ num_tokens: size, num_image_tokens: numImage }, noun) {
  if (!numImage) return pluralize(size, `observed ${noun}`);
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
