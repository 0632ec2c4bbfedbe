// @ts-check
// Keys, which work while the explorer has the focus.
const KEYS = [
  ["j", "k", "next and previous sample, in heatmap order"],
  ["n", "p", "next and previous round"],
  ["→", "←", "next and previous token"],
  ["]", "[", "next and previous step of a run"],
  ["w", null, "next row of the open list"],
  ["↑", "↓", "in the heatmap, with ← →: cells; Enter goes there, Shift selects"],
  ["g", "G", "first and last sample"],
  ["b", "B", "next and previous token beyond the threshold, also in other samples"],
  ["/", null, "search the text, or go to a sample, a round, a token or an id"],
  ["c", null, "what the model saw before the round"],
  ["m", null, "two attempts at one task, side by side"],
  ["N", null, "write a note on the token, its round or the sample"],
  ["space", null, "play the rounds; arrows step"],
  ["f", null, "large screenshot"],
  ["a", null, "screenshot before the action, and after it"],
  [",", ".", "the pictures that the model saw before the round: previous and next"],
  ["v", null, "where the model looked, on the screenshot"],
  ["T", null, "fold the thoughts, or unfold them"],
  ["F", null, "full window"],
  ["t", null, "list of the selection"],
  ["?", null, "these keys"],
  ["Esc", null, "close the open dialog, else clear the selection"],
];

function keyHelp() {
  const key = (name) => element("kbd", {}, name);
  const rows = KEYS.map(([first, other, action]) =>
    element("tr", {}, element("td", {}, key(first), other && [" ", key(other)]), element("td", {}, action)),
  );
  return element("table", { class: "rdx-keys" }, ...rows);
}

// Fields that take letters, and the keys that other controls need for themselves.
const TAKES_LETTERS = "textarea, input:not([type=radio], [type=checkbox], [type=range], [type=button])";
const KEYS_OF_CONTROLS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", " ", "Enter"];

// Keys must not reach the notebook, which has shortcuts of its own. Notebook 7 hears them
// first, and asks only the element that has the focus.
function listenToKeys(node, actionOf) {
  node.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  // A menu keeps letters for itself: once something is chosen, keys are the explorer's,
  // but where it belongs to a note that is being written.
  node.addEventListener("change", ({ target }) => {
    if (target.matches("select") && !target.closest(".rdx-note-field")) node.focus({ preventScroll: true });
  });
  node.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const isTyping = event.target.matches(TAKES_LETTERS);
    const leaves = event.key === "Escape" || event.key === "Enter";
    if (isTyping && leaves && event.target.closest(".rdx-note-field")) return void leaveField(event);
    const isModified = event.ctrlKey || event.metaKey || event.altKey;
    if (isModified || (isTyping && event.key !== "Escape")) return;
    if (isTyping && event.target.matches("[type=search]")) return void leaveField(event);
    if (event.target.matches("input, select") && KEYS_OF_CONTROLS.includes(event.key)) return;
    const action = actionOf(event.key);
    if (!action || (event.key === " " && event.target.closest("button, summary, label, a"))) return;
    event.preventDefault();
    action();
  });
}

function fullWindowIcon() {
  const corners = shape("path", { d: "M1 5V1h4M9 1h4v4M13 9v4H9M5 13H1V9", fill: "none", stroke: "currentColor", "stroke-width": 1.5 });
  return shape("svg", { width: 12, height: 12, viewBox: "0 0 14 14", "aria-hidden": "true" }, corners);
}

// Esc leaves a field, with its text, and closes the panel that it is in; Enter that of a note.
function leaveField(event) {
  event.preventDefault();
  closeDropdowns(event.currentTarget);
  event.currentTarget.focus({ preventScroll: true });
}

// The action of each key.
function keyActions(page) {
  const trajectory = () => page.sample.trajectory();
  const current = () => page.state.current;

  function step(samples) {
    const at = samples.indexOf(current().sample);
    return (by) => goToSample(samples[clamp(at + by, 0, samples.length - 1)]);
  }

  function goToSample(sample) {
    if (sample !== undefined) page.goTo({ sample, round: current().round });
  }

  function goToRound(by) {
    const { rounds } = trajectory() ?? { rounds: [] };
    const at = rounds.findIndex((round) => round.round === current().round) + by;
    if (rounds[at]) page.goTo({ sample: current().sample, round: rounds[at].round });
    return Boolean(rounds[at]);
  }

  function goToToken(by) {
    if (!trajectory()?.num_tokens) return;
    const index = indexOf(trajectory(), current()) + by;
    if (index < 0 || index >= trajectory().num_tokens) return;
    const [round, token] = placeAt(trajectory(), index);
    page.goTo({ sample: current().sample, round, token });
  }

  // In this sample, else in the next one that has any, in heatmap order.
  async function goBeyond(by) {
    const { threshold } = page.state;
    const isBeyond = ({ tokens }, at) => Math.abs(tokens.diff[at]) > threshold;
    const from = trajectory() ? indexOf(trajectory(), current()) : -1;
    for (let at = from + by; trajectory() && at >= 0 && at < trajectory().num_tokens; at += by) {
      if (isBeyond(trajectory(), at) && page.isKept(at)) return goToIndex(trajectory(), at);
    }
    const { samples } = await page.store.beyond(page.state).catch(() => ({ samples: [] }));
    const all = page.samples();
    const start = all.indexOf(current().sample);
    const wanted = new Set(samples);
    const others = all.map((_, step) => all[(start + by * (step + 1) + all.length * 2) % all.length]);
    const next = others.find((sample) => wanted.has(sample));
    const reached = next !== undefined && (await page.store.trajectory(next, page.state).catch(() => null));
    if (!reached?.tokens) return undefined;
    const flags = (await page.store.kept(reached, page.state))?.is_kept;
    const places = Array.from(reached.tokens.diff.keys()).filter((at) => isBeyond(reached, at) && (!flags || flags[at]));
    return goToIndex(reached, places.at(by > 0 ? 0 : -1));
  }

  function goToIndex(trajectory, index) {
    const [round, token] = placeAt(trajectory, index);
    return page.goTo({ sample: trajectory.sample, round, token });
  }

  function leave() {
    const { screens } = page.sample;
    page.film.stop();
    if (screens.isLarge()) return void screens.large(false);
    if (page.sheet.hide() || closeDropdowns(page.node)) return;
    if (page.isFull) return void page.fillWindow(false);
    page.banner.hide();
    if (page.state.filter.round) page.setFilter({ round: null });
    if (page.state.cells) page.select({ cells: null });
  }

  page.film = trajectoryFilm({ step: () => goToRound(1), onChange: page.sample.setFilm });
  return {
    j: () => step(page.samples())(1),
    k: () => step(page.samples())(-1),
    n: () => goToRound(1),
    p: () => goToRound(-1),
    ArrowRight: () => (page.film.isOn() ? goToRound(1) : goToToken(1)),
    ArrowLeft: () => (page.film.isOn() ? goToRound(-1) : goToToken(-1)),
    b: () => goBeyond(1),
    B: () => goBeyond(-1),
    c: () => page.showContext(current().round),
    m: () => page.showMates(),
    N: () => page.sample.note.focus(),
    " ": () => page.film.toggle(),
    "]": () => page.steps.move(1),
    "[": () => page.steps.move(-1),
    w: () => page.drawer.next(),
    g: () => goToSample(page.samples()[0]),
    G: () => goToSample(page.samples().at(-1)),
    "/": () => page.sample.find.focus(),
    f: () => page.sample.screens.large(true),
    a: () => page.sample.screens.swap(),
    ",": () => page.sample.screens.step(-1),
    ".": () => page.sample.screens.step(1),
    v: () => (page.sample.trajectory()?.answer ? page.select({ sight: !page.state.sight }) : page.say("no model was asked: explore(batch, answer=rd.ask(batch, model))")),
    T: () => page.sample.foldAll(),
    F: () => page.fillWindow(),
    t: () => page.drawer.toggle(page.drawer.open() !== "selection", "selection"),
    "?": () => page.sheet.show("Keys", keyHelp()),
    Escape: leave,
  };
}

const FILM_STEP = 1000;

/** Plays the rounds of a sample, one a second, until the last one. */
function trajectoryFilm({ step, onChange }) {
  let timer = 0;
  function stop() {
    clearInterval(timer);
    timer = 0;
    onChange(false);
  }

  function toggle() {
    if (timer) return stop();
    timer = setInterval(() => step() || stop(), FILM_STEP);
    return onChange(true);
  }

  return { toggle, stop, isOn: () => timer > 0 };
}
