// @ts-check
// The text of a sample: its tokens underlined and marked by their diff, its key and notes.

// As in figures/colored_text.py: |diff| of the first and the last colour level.
const SCALE_ENDS = [0.003, 3];

/** The text of a sample: a span for each token, coloured by its diff. */
function tokenText({ onToken, onObservation, onContext }) {
  const key = element("p", { class: "rdx-key" });
  const notes = element("div", { class: "rdx-text-notes" });
  const scroller = element("div", { class: "rdx-scroller", tabindex: 0, role: "group", "aria-label": "Text of the sample" });
  const tip = pointerTip(scroller, tokenOfSpan, (index) => tokenTip(shown, index));
  const node = element("section", { class: "rdx-text" }, notes, tip.node);
  scroller.addEventListener("click", (event) => {
    const index = tokenOfSpan(event.target);
    if (index >= 0 && getSelection().isCollapsed) onToken(...placeAt(shown, index), index);
  });

  const near = fillNear(scroller);
  const chosen = chosenPlace(scroller);
  const filledChunks = () => rounds.flatMap(({ chunks }) => chunks.filter(({ isFilled }) => isFilled()));
  const marks = tokenMarks(scroller, filledChunks);
  const hits = hitMarks((tokens) => marks.set("rdx-hit", tokens));
  let [shown, rounds, threshold] = [null, [], Infinity];
  let [color, shade] = ["diff", null]; // what colours the text; how, if it is not the diff
  let [isKept, roundNotesShown, isFolded] = [null, [], false]; // what new rounds are shown with

  function show(trajectory, newThreshold) {
    [shown, threshold, shade] = [trajectory, newThreshold, shadeOf(trajectory, color)];
    [isKept, roundNotesShown, isFolded] = [null, [], false];
    for (const part of [chosen, hits, marks, near]) part.forget();
    tip.hide();
    scroller.scrollTop = 0; // of the old text, which is laid out
    rounds = trajectory.rounds.map((round) => roundAsText(trajectory, round, makeSpan, { onObservation, onContext }, completeRound));
    if (trajectory.num_tokens <= MANY_SPANS) for (const part of rounds) part.fill();
    rounds.forEach(near.watch);
    showKey();
    fill(notes, ...notesOnText(trajectory));
    fill(scroller, rounds.map((part) => part.node), endOfText(trajectory, onObservation));
  }

  // What was said of all rounds while this one was not filled yet.
  function completeRound(part) {
    const isShort = shown.num_tokens <= MANY_SPANS;
    for (const chunk of part.chunks) isShort ? chunk.fill() : near.watch(chunk);
    if (isKept) showKept(part);
    showNotes(part);
    if (isFolded && part.node.querySelector(".rdx-thought")) setFold(part.node, true);
  }

  function makeSpan(index) {
    const span = tokenSpan(shown.tokens, index, threshold, shade);
    marks.addTo(span, index);
    return span;
  }

  function showKey() {
    fill(key, ...textKey(shown, threshold, shade ? color : "diff"));
  }

  function mark(round, token = null) {
    const part = rounds.find((other) => other.round.round === round);
    part?.fill();
    const span = (part && token !== null && spanOfToken(rounds, part.first + token)) || null;
    chosen.choose({ head: part?.node.querySelector(".rdx-round-head") ?? null, span });
  }

  function setThreshold(newThreshold) {
    const [low, high] = [threshold, newThreshold].sort((a, b) => a - b);
    threshold = newThreshold;
    if (!shown || shade) return;
    showKey();
    for (const [index, span] of spansOf(filledChunks())) {
      const size = Math.abs(shown.tokens.diff[index]);
      if (size > low && size <= high) span.classList.toggle("rdx-u", size > threshold);
    }
  }

  // Colour by another number; the spans of what is filled are made anew.
  function setColor(newColor) {
    if (newColor === color) return;
    color = newColor;
    if (!shown) return;
    shade = shadeOf(shown, color);
    showKey();
    for (const { first, stop, node: chunk } of filledChunks()) {
      const at = chosen.indexIn(chunk);
      fill(chunk, Array.from({ length: stop - first }, (_, place) => makeSpan(first + place)));
      if (at >= 0) chosen.moveTo(chunk.children[at]);
    }
  }

  // |diff| up to the healthy level of the batch's kind is not tinted.
  function setUsual(usual) {
    const [low, high] = SCALE_ENDS;
    const level = Math.floor((8 * Math.log(usual / low)) / Math.log(high / low));
    scroller.dataset.calm = clamp(level, 0, 8) || 0;
  }

  // Mark the tokens of a finding.
  function setMarks({ round, token }) {
    const firsts = new Map(shown.rounds.map((part) => [part.round, part.first]));
    marks.set("rdx-found", Array.from(round, (number, at) => firsts.get(number) + token[at]));
  }

  // A mark at each token with a note, and the words at the head of a round.
  function setNotes(newNotes) {
    const scoped = (scope) => newNotes.filter((note) => noteScope(note) === scope);
    marks.set("rdx-noted", scoped("token").map((note) => indexOf(shown, note)));
    for (const old of scroller.querySelectorAll(".rdx-round-head > .rdx-note-mark")) old.remove();
    roundNotesShown = scoped("round");
    rounds.forEach(showNotes);
  }

  function showNotes({ node: section, round: { round } }) {
    for (const { text } of roundNotesShown.filter((note) => note.round === round)) {
      const words = element("span", { class: "rdx-note-mark", title: visible(text) }, `✎ ${visible(text)}`);
      section.querySelector(".rdx-round-head > .rdx-facts")?.before(words);
    }
  }

  // Dim what the filter drops; null keeps all.
  function setKept(newIsKept) {
    isKept = newIsKept;
    marks.set("rdx-dropped", isKept ? indicesOf(isKept, 0) : []);
    rounds.forEach(showKept);
  }

  function showKept({ node: section, round }) {
    const facts = section.querySelector(".rdx-round-head > .rdx-facts");
    if (!facts) return;
    const { size, mean, broken } = keptMean(shown, round, isKept);
    fill(facts, ...headFacts(size, shown.noun, mean, broken, round.num_tokens));
  }

  // The thoughts of all rounds.
  function foldAll() {
    const sections = [...scroller.querySelectorAll(".rdx-round:has(.rdx-thought)")];
    isFolded = sections.some((section) => !section.hasAttribute("data-folded"));
    for (const section of sections) setFold(section, isFolded);
  }

  // What a correction does to each token; null without one.
  function setFates(fates) {
    for (const [fate, name] of Object.entries(FATES)) marks.set(name, fates ? indicesOf(fates, Number(fate)) : []);
  }

  const search = (text, isRegex) => (shown ? hits.search(shown, text, isRegex) : 0);
  const close = () => [chosen, near].forEach((part) => part.close());
  return { node, key, show, mark, setThreshold, setUsual, setMarks, setKept, setFates, setNotes, setColor, foldAll, search, nextHit: hits.next, close };
}

// The indices of a value; that of `false` is 0.
function indicesOf(values, wanted) {
  return Array.from(values.keys()).filter((at) => Number(values[at]) === wanted);
}

/** Each token of some filled chunks with its span. */
function* spansOf(chunks) {
  for (const { first, node } of chunks) for (const [at, span] of [...node.children].entries()) yield [first + at, span];
}

/** Fills parts of a text when they come near what is in sight. */
function fillNear(scroller) {
  const fills = new WeakMap(); // by node
  const fillShown = (entries) => {
    for (const { isIntersecting, target } of entries) {
      target.classList.toggle("rdx-near", isIntersecting);
      if (isIntersecting) fills.get(target)();
    }
  };
  const observer = new IntersectionObserver(fillShown, { root: scroller, rootMargin: "800px 0px" });

  function watch({ node, fill: fillNow }) {
    fills.set(node, fillNow);
    observer.observe(node);
  }

  const stop = () => observer.disconnect();
  return { watch, forget: stop, close: stop };
}

/** Classes of tokens, which spans have as soon as they are filled. */
function tokenMarks(scroller, filledChunks) {
  const marked = new Map(); // the tokens of each class

  // Set a class of these tokens, and of no others.
  function set(name, tokens) {
    for (const span of scroller.querySelectorAll(`.${name}`)) span.classList.remove(name);
    const chosen = new Set(tokens);
    marked.set(name, chosen);
    if (!chosen.size) return;
    for (const [index, span] of spansOf(filledChunks())) if (chosen.has(index)) span.classList.add(name);
  }

  function addTo(span, index) {
    for (const [name, tokens] of marked) if (tokens.has(index)) span.classList.add(name);
  }

  return { set, addTo, forget: () => marked.clear() };
}

/** The chosen token, and the head of its round. They stay in sight when the drawer opens,
 * and when text before them gets its height, until somebody scrolls. */
function chosenPlace(scroller) {
  const NOTHING = { span: null, head: null };
  let [chosen, isFollowed, frame] = [NOTHING, true, 0];

  function choose(place) {
    const before = chosen;
    [chosen, isFollowed] = [place, true];
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

  const resized = new ResizeObserver(revealChosen);
  resized.observe(scroller);
  scroller.addEventListener("contentvisibilityautostatechange", () => {
    cancelAnimationFrame(frame); // many parts at once
    frame = requestAnimationFrame(() => isFollowed && revealChosen());
  });
  for (const kind of ["wheel", "pointerdown", "keydown"]) scroller.addEventListener(kind, () => (isFollowed = false), { passive: true });

  return {
    choose,
    indexIn: (chunk) => [...chunk.children].indexOf(chosen.span),
    // The same token, whose span was made anew.
    moveTo: (span) => {
      chosen = { ...chosen, span };
      span.classList.add("rdx-now");
    },
    forget: () => (chosen = NOTHING),
    close: () => resized.disconnect(),
  };
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
