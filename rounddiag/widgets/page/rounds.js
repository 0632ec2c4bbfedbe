// The rounds of a sample one under the other, with what was observed between them.

// As in figures/coloring.py: from where a background has the first colour, to the last.
const SCALE_ENDS = [0.001, 1];

/** Rounds as text, and the chunks of their tokens in order. */
function roundsAsText({ rounds, gaps, tokens }, threshold, onObservation) {
  const fragment = document.createDocumentFragment();
  const chunks = [];
  const addGap = (before) =>
    fragment.append(
      ...gaps.filter((gap) => gap.before === before).map((gap) => gapNode(gap, onObservation)),
    );
  for (const round of rounds) {
    const made = tokenChunks(tokens, round.first, round.first + round.num_tokens, threshold);
    chunks.push(...made);
    addGap(round.round);
    fragment.append(
      roundHead(round),
      element("pre", { class: "rdx-tokens" }, ...made.map(({ node }) => node)),
    );
  }
  addGap(null);
  return { fragment, chunks };
}

function roundHead({
  round,
  action,
  num_tokens: size,
  num_nonfinite: broken,
  mean_abs_diff: mean,
}) {
  const facts = [counted(size, "token"), `mean |diff| ${number(mean)}`];
  if (broken) facts.push(`${counted(broken, "token")} not finite`);
  return element(
    "h4",
    { class: "rdx-round-head", "data-round": round },
    element("b", {}, `round ${round}`),
    element("span", { class: "rdx-round-action" }, visible(action?.label ?? "")),
    element("span", { class: "rdx-facts" }, facts.join(" · ")),
  );
}

/** What was observed: its first and last tokens, and the rest behind a button. */
function gapNode(gap, onObservation) {
  const hidden = gap.num_tokens - gap.head.length - gap.tail.length;
  const inside = element("span", { class: "rdx-inside" });
  const button =
    hidden > 0 &&
    element(
      "button",
      { class: "rdx-chip", type: "button", "aria-expanded": "false", on: { click: () => open() } },
      (gap.start < 0 ? "prompt: " : "") + gapLabel(gap),
    );
  const [start, stop] = [gap.start + gap.head.length, gap.stop - gap.tail.length];
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

  const onOneLine = (piece) => element("span", { class: "rdx-piece" }, visible(piece));
  const ends = [gap.head, gap.tail].map((pieces) => pieces.map(onOneLine));
  const what = gap.start < 0 ? "prompt" : "observation";
  return element(
    "div",
    { class: "rdx-gap", role: "group", "aria-label": what },
    ...ends[0],
    button,
    inside,
    ...ends[1],
  );
}

// Of all of it, its ends included.
function gapLabel({ num_tokens: size, num_image_tokens: numImage }) {
  if (!numImage) return counted(size, "observed token");
  const others = size > numImage ? `, ${counted(size - numImage, "other")}` : "";
  return counted(numImage, "image token") + others;
}

function observedPiece(piece) {
  return element("span", { class: "rdx-piece" }, ...visibleNodes(piece));
}

// Image tokens all look alike: a run of them is counted.
function observedNodes({ pieces, is_image: isImage }) {
  const nodes = [];
  for (let start = 0, stop = 0; start < pieces.length; start = stop) {
    stop = start + 1;
    while (isImage[start] && isImage[stop]) stop += 1;
    const images = () =>
      element("span", { class: "rdx-images" }, counted(stop - start, "image token"));
    nodes.push(isImage[start] ? images() : observedPiece(pieces[start]));
  }
  return nodes;
}

/** What colours and lines say, with the ends of the scale. */
function textKey({ name_a, name_b }, threshold) {
  const [a, b] = [name_a, name_b].map(visible);
  const levels = [1, 2, 3, 4, 5, 6, 7, 8];
  const ramp = (sign) =>
    element(
      "span",
      { class: "rdx-ramp", "aria-hidden": "true" },
      ...levels.map((level) => element("span", { class: levelClass(sign * level) })),
    );
  const [low, high] = SCALE_ENDS;
  return [
    element("span", {}, ramp(1), `${a} likes it more, ${low} to ${high} nat`),
    element("span", {}, ramp(-1), "less"),
    element(
      "span",
      {},
      element("span", { class: "rdx-u" }, "underlined"),
      ` beyond ${number(threshold)} nat`,
    ),
    element(
      "span",
      {},
      element("span", { class: "rdx-key-lines" }, "lines"),
      ` how unlikely: over by ${a}, under by ${b}`,
    ),
  ];
}

/** What is missing from a text, in sentences. */
function notesOnText({ tokens, rounds }) {
  if (!rounds.length) return [sentence("No generated tokens: the response mask is 0 everywhere.")];
  const ids = tokens.token_id;
  const isNumbered = ids && tokens.piece.every((piece, i) => piece === `⟨${ids[i]}⟩`);
  return [
    !ids && sentence("The text was left out when the file was saved: each square is a token."),
    isNumbered && sentence("No tokenizer: token ids stand for the text."),
    tokens.level.every((level) => level === NOT_FINITE) &&
      sentence("No diff of this sample is finite."),
  ];
}
