// @ts-check
// The pane of one sample: its title, the strip of its rounds (a card each: screenshot,
// action, mean |diff|), and token plot, text and screenshot, which follow each other.

/** `onSeen` is called when cards come into sight whose screenshots are missing. */
function roundStrip({ onRound, onSeen = () => {}, frame = () => null }) {
  const list = element("ol", { class: "rdx-strip-list" });
  const node = element("nav", { class: "rdx-strip", "aria-label": "Rounds of the sample" }, list);
  const buttons = () => [...list.querySelectorAll("button")];
  const pictures = new Map();
  const inSight = new Set(); // rounds of cards
  let [shown, marked] = [null, null];
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        const round = Number(target.closest("button").dataset.round);
        if (isIntersecting) inSight.add(round);
        else inSight.delete(round);
      }
      if (inSight.size) onSeen();
    },
    { root: list, rootMargin: "0px 200px" },
  );

  // Thumbnails arrive a few at a time after the rounds; existing ones are kept.
  function show(trajectory, thumbnails) {
    if (trajectory !== shown) {
      free();
      [shown, marked] = [trajectory, null];
      const cards = trajectory.rounds.map((round) => element("li", {}, roundCard(round, errorOf(trajectory, round))));
      fill(list, cards.length ? cards : element("li", {}, sentence("This sample has no rounds.")));
      for (const picture of list.querySelectorAll(".rdx-card-picture")) seen.observe(picture);
    }
    if (!thumbnails?.length) return;
    const all = buttons();
    const shots = new Map(thumbnails.map((shot) => [shot.index, shot]));
    trajectory.rounds.forEach((round, at) => {
      const shot = shots.get(round.screenshot);
      if (!shot || pictures.has(at)) return;
      pictures.set(at, pictureOf(shot, readAction(round.action, frame()), { alt: "", isSmall: true }));
      fill(all[at].querySelector(".rdx-card-picture"), pictures.get(at).node);
    });
  }

  function mark(round) {
    const button = list.querySelector(`[data-round="${round}"]`) ?? list.querySelector("button");
    if (!button || button === marked) return;
    for (const [card, isNow] of [[marked, false], [button, true]]) {
      card?.setAttribute("aria-current", isNow);
      card?.setAttribute("tabindex", isNow ? "0" : "-1");
    }
    marked = button;
    reveal(list, button, 60);
    fade();
  }

  function free() {
    seen.disconnect();
    inSight.clear();
    pictures.forEach((picture) => picture.free());
    pictures.clear();
  }

  // Fade the edges beyond which there is more.
  function fade() {
    const rest = list.scrollWidth - list.clientWidth - list.scrollLeft;
    list.classList.toggle("rdx-more-before", list.scrollLeft > 1);
    list.classList.toggle("rdx-more-after", rest > 1);
  }

  const follow = new ResizeObserver(() => {
    if (marked) reveal(list, marked, 60);
    fade();
  });
  follow.observe(list);
  list.addEventListener("scroll", fade, { passive: true });
  const choose = (button) => onRound(Number(button.dataset.round));
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(button);
  });
  walkWithArrows(list, buttons, choose);
  function close() {
    follow.disconnect();
    free();
  }

  // The means of what the filter keeps; cards of rounds of which it keeps nothing are dim.
  function setKept(flags) {
    buttons().forEach((button, at) => {
      const { size, mean, broken } = keptMean(shown, shown.rounds[at], flags);
      button.classList.toggle("rdx-dropped", !size);
      if (shown.lacks) return;
      button.querySelector(".rdx-card-value").textContent = size ? cardValue(mean, broken) : "none kept";
      button.title = cardTitle({ ...shown.rounds[at], error: errorOf(shown, shown.rounds[at]) }, mean, broken, Boolean(flags));
    });
  }

  // Another frame of coordinates.
  function redraw(thumbnails) {
    pictures.forEach((picture) => picture.free());
    pictures.clear();
    show(shown, thumbnails);
  }

  const roundsInSight = () => shown.rounds.filter(({ round }) => inSight.has(round));
  return { node, show, redraw, mark, setKept, roundsInSight, close };
}

function roundCard(round, error) {
  const title = cardTitle({ ...round, error }, round.mean_abs_diff, round.num_nonfinite, false);
  const attributes = { type: "button", class: "rdx-card", tabindex: -1, "data-round": round.round, title };
  return element("button", attributes, ...cardParts({ ...round, error }));
}

function cardTitle({ round, action, context, costs, error }, mean, broken, isFiltered) {
  const size = Number.isFinite(mean) && `mean |diff| ${number(mean)} nat${isFiltered ? " of what the filter keeps" : ""}`;
  const parts = [visible(action?.line || action?.label || action?.kind || ""), size, broken && brokenTokens(broken), context?.is_rewritten && "the context was rewritten", costs, error && visible(error)];
  return `round ${round}: ${parts.filter(Boolean).join("; ")}`;
}

const cardValue = (mean, broken) => (Number.isFinite(mean) || broken ? number(mean) : "") + (broken ? " ✕" : "");

/** What a card shows of a round: screenshot, action, mean |diff|. */
function cardParts({ round, action, screenshot, mean_abs_diff: mean, num_nonfinite: broken, level, value, context, costs, error }) {
  const bar = element("span", { class: `rdx-bar ${level < 0 ? "rdx-is-less" : "rdx-is-more"}` });
  bar.style.width = `${(Math.abs(level) / 8) * 100}%`;
  const label = visible(action?.label || action?.kind || "");
  const line = (...parts) => element("span", { class: "rdx-card-line" }, ...parts);
  return [
    screenshot !== null && element("span", { class: "rdx-card-picture" }),
    line(element("b", {}, String(round)), context?.is_rewritten && element("span", { class: "rdx-rewritten", "aria-hidden": "true" }, "↻"), error && element("span", { class: "rdx-error-mark", "aria-hidden": "true" }, "!"), element("span", { class: "rdx-card-action" }, label)),
    value ? line(element("span", { class: "rdx-facts" }, [value, costs].filter(Boolean).join(" · "))) : line(element("span", { class: "rdx-card-bar" }, bar), element("span", { class: "rdx-card-value" }, cardValue(mean, broken))),
  ];
}

/** How many tokens of a round a filter keeps, and the mean of their finite |diff|. */
function keptMean({ tokens }, { first, num_tokens: all, mean_abs_diff: mean, num_nonfinite: broken }, flags) {
  if (!flags) return { size: all, mean, broken };
  const own = Array.from(tokens.diff.slice(first, first + all)).filter((_, at) => flags[first + at]);
  const sizes = own.filter(Number.isFinite).map(Math.abs);
  return { size: own.length, mean: sizes.reduce((sum, size) => sum + size, 0) / sizes.length, broken: own.length - sizes.length };
}

// One sample: its rounds, token plot, screenshot, text and the current token.
function samplePane({ library, store, onPlace, onPlot, onSeen, onFact, onMates, onContext, onFilm, onNote, search }) {
  let [trajectory, current, shadeName, notes, frame] = [null, null, "diff", [], null];
  let [shots, beyond] = [[], -1]; // thumbnails, and the threshold
  const goTo = (round, token = null) =>
    onPlace({ sample: trajectory.sample, round, token: token ?? worstToken(trajectory, round) });
  const strip = roundStrip({ onRound: (round) => goTo(round), onSeen, frame: () => frame });
  const plot = tokenPlot({ library, onToken: goTo, onPlot });
  const text = tokenText({
    onToken: goTo,
    onObservation: (start, stop) => store.observation(trajectory, start, stop),
    onContext,
  });
  const find = searchBox({
    text,
    at: () => indexOf(trajectory, current),
    onHit: (index) => goTo(...placeAt(trajectory, index)),
    onPlace,
    ...search,
  });
  const color = selectField("colour", (name) => onPlot({ text_color: name ?? "diff" }));
  const screens = screenViewer({ onWanted: fetchPicture, onFrame: (name) => onPlot({ coordinates: name }), onSight: (isOn) => onPlot({ sight: isOn }), onSample: (sample) => onPlace({ sample }) });
  const focus = focusPanel(onNote, (place) => addressOf(place, { ...search.known(), step: null }));
  const title = element("h2", { class: "rdx-title" });
  const noted = element("span", { class: "rdx-note-mark", hidden: true });
  const key = dropdown({ label: "i", name: "Colours and lines of the text", side: "right" }, text.key);
  const reader = element(
    "section",
    { class: "rdx-reader", "aria-label": "Text" },
    element("div", { class: "rdx-reader-head" }, find.node, color.node, key.node),
    text.node,
  );
  const side = element("div", { class: "rdx-side" }, screens.node, focus.node);
  screens.fitInto(side, focus.node);
  const facts = element("div", { class: "rdx-sample-facts" });
  const film = pushButton({ class: "rdx-button rdx-film", title: "Play the rounds (space)", "aria-label": "Play the rounds", "aria-pressed": "false" }, onFilm, "▶");
  const task = element("p", { class: "rdx-task" });
  const outcome = element("b", { class: "rdx-outcome" });
  const errors = element("p", { class: "rdx-errors", "aria-label": "Errors", on: { click: ({ target }) => target.dataset.round && goTo(Number(target.dataset.round)) } });
  const missing = element("div", { class: "rdx-empty rdx-missing", role: "status" });
  const head = element("section", { class: "rdx-sample-head", "aria-label": "Sample" }, element("div", { class: "rdx-sample-line" }, title, outcome, noted, facts, film), task, missing, errors, strip.node);
  const node = element(
    "div",
    { class: "rdx-sample" },
    head,
    element("div", { class: "rdx-reading" }, plot.node, reader),
    side,
  );

  async function fetchPicture(index) {
    const of = trajectory;
    const image = await store.image(of, index).catch(({ message }) => ({ error: message }));
    if (of === trajectory) screens.put(index, image);
  }

  function show(newTrajectory, place, threshold) {
    [trajectory, current] = [newTrajectory, place];
    shots = [];
    text.show(trajectory, threshold);
    node.removeAttribute("data-missing");
    title.textContent = title.title = titleOf(trajectory);
    showOutcome();
    fill(facts, ...factChips(trajectory, onFact, onMates));
    fill(task, trajectory.task && [element("b", {}, "task "), visible(trajectory.task)]);
    task.title = visible(trajectory.task ?? "");
    showColors();
    plot.node.hidden = Boolean(trajectory.lacks) && !trajectory.tokens.surprise;
    node.toggleAttribute("data-bare", plot.node.hidden); // no token has a number
    plot.view.wait();
    strip.show(trajectory, shots);
    find.again();
    mark(place);
  }

  function showOutcome() {
    const { word, why } = trajectory.end?.outcome ?? {};
    outcome.textContent = OUTCOMES[word] ?? word;
    outcome.hidden = !word;
    [outcome.title, outcome.dataset.outcome] = [visible(why ?? ""), word];
    const failed = trajectory.rounds.filter((round) => errorOf(trajectory, round));
    const buttons = failed.map((round) => pushButton({ class: "rdx-unfold", "data-round": round.round, title: visible(errorOf(trajectory, round)) }, () => {}, `round ${round.round}: ${visible(errorOf(trajectory, round)).slice(0, ERROR_LENGTH)}`));
    fill(errors, failed.length > 0 && element("b", {}, pluralize(failed.length, "error")), buttons);
  }

  // A colour that this sample has no values for is that of its diff.
  function showColors() {
    const known = shadesOf(trajectory);
    color.set(known.map((name) => [name, name === "diff" && trajectory.lacks ? "nothing" : SHADES[name][0]]), known.includes(shadeName) ? shadeName : "diff");
  }

  // In place of all panes.
  function showMissing(sample, why) {
    [trajectory, current] = [null, null];
    title.textContent = `Sample ${sample}`;
    fill(facts);
    fill(missing, ...why.map((line) => element("p", {}, line)));
    node.toggleAttribute("data-missing", true);
  }

  // The screenshots in sight that are not there yet: large ones first.
  function missingShots() {
    const { rounds } = trajectory;
    const now = rounds.findIndex(({ round }) => round === current.round);
    const inSight = [rounds[now], ...strip.roundsInSight()].map((round) => round?.screenshot ?? null).concat(rounds[now]?.after ?? null);
    return inSight.filter((at) => at !== null && shots.every(({ index }) => index !== at));
  }

  function addShots(newShots) {
    shots = [...shots, ...newShots];
    strip.show(trajectory, shots);
    showScreens();
  }

  function mark(place) {
    current = place;
    const index = indexOf(trajectory, place);
    text.mark(place.round, place.token);
    strip.mark(place.round);
    plot.mark(place);
    focus.show(trajectory, index, beyond);
    focus.note.show({ place, notes, noun: trajectory.noun });
  }

  // What the filter keeps of the sample; null for all.
  function setKept(flags) {
    text.setKept(flags);
    strip.setKept(flags);
  }

  // What the state says of the pane.
  function setState({ text_color: name, notes: all, filter, coordinates, sight }) {
    [shadeName, notes] = [name, all];
    text.setColor(name);
    screens.setSight(sight);
    if (frame !== coordinates) {
      frame = coordinates;
      screens.setFrame(frame);
      if (trajectory) strip.redraw(shots);
    }
    for (const chip of facts.querySelectorAll("button[data-name]")) chip.setAttribute("aria-pressed", chip.dataset.name in filter);
    if (!trajectory) return;
    showColors();
    const own = notes.filter(({ sample }) => sample === trajectory.sample);
    text.setNotes(own);
    const whole = own.find((note) => noteScope(note) === "sample");
    noted.hidden = !whole;
    noted.textContent = noted.title = whole ? `✎ ${visible(whole.text)}` : "";
    if (current) focus.note.show({ place: current, notes });
  }

  const showScreens = () => screens.show(trajectory, current.round, shots);

  return {
    node,
    show,
    addShots,
    missingShots,
    showFigure: (axes, only, state, kept) => plot.show(trajectory, axes, only, current, state, kept),
    setKept,
    setFates: text.setFates,
    note: focus.note,
    setState,
    setFilm: (isOn) => film.setAttribute("aria-pressed", isOn),
    showMissing,
    showScreens,
    mark,
    setThreshold: (threshold) => {
      beyond = threshold;
      text.setThreshold(threshold);
      if (trajectory && current) focus.show(trajectory, indexOf(trajectory, current), beyond);
    },
    setUsual: text.setUsual,
    setMarks: (marks) => {
      text.setMarks(marks);
      plot.setMarks(marks);
    },
    find,
    foldAll: text.foldAll,
    screens,
    figure: plot.view,
    trajectory: () => trajectory,
    current: () => current,
    title: () => title.textContent,
    close: () => {
      plot.close();
      text.close();
      strip.close();
      screens.free();
    },
  };
}

const OUTCOMES = { solved: "✓ solved", failed: "✗ failed", truncated: "… truncated", error: "! error", "given up": "∅ given up", finished: "finished" };
const ERROR_LENGTH = 80; // characters of an error above the cards

/** What failed in a round: as the file recorded it, or as the observation after it says. */
function errorOf({ rounds, gaps }, round) {
  const recorded = round.facts?.find((fact) => fact.is_error)?.text;
  if (recorded) return recorded;
  const next = rounds[rounds.indexOf(round) + 1]?.round ?? null;
  const turns = gaps.filter(({ before }) => before === next).flatMap(({ turns: own = [], rest = [] }) => [...own, ...rest]);
  return turns.map(({ error }) => error).find(Boolean);
}

const FIRST_FACTS = ["reward", "status", "rank"]; // as in columns.py

// What is known of the sample, each a button that filters by it; its group opens the
// attempts at the same task.
function factChips({ facts = [], mates = [], sample, group_id: group, task }, onFact, onMates) {
  const others = mates.filter((mate) => mate.sample !== sample);
  const solved = others.filter(({ success }) => success).length;
  const rewards = others.some(({ success }) => success !== null) ? `: ${solved} solved` : rewardRange(others);
  const chips = facts.filter(({ text }) => text !== task).map(({ name, text, condition }) => {
    const words = `${visible(name)} ${visible(text)}`;
    const attributes = { class: "rdx-chip", "data-name": name, title: onFact ? `Filter by ${words}` : words };
    return onFact ? pushButton(attributes, () => onFact(name, condition), words) : element("span", attributes, words);
  });
  const first = facts.filter(({ name }) => FIRST_FACTS.includes(name)).length;
  if (!others.length) return chips;
  const title = "Two attempts at this task side by side (m)";
  const about = pushButton({ class: "rdx-chip rdx-mates", title }, onMates, `${pluralize(others.length, "other")} of ${visible(String(group))}${rewards}`);
  return [...chips.slice(0, first), about, ...chips.slice(first)];
}

// Rewards that are no success, from the lowest to the highest.
function rewardRange(mates) {
  const rewards = mates.map(({ reward }) => reward).filter(Number.isFinite);
  const ends = [...new Set([Math.min(...rewards), Math.max(...rewards)])];
  return rewards.length ? `: reward ${ends.map(number).join(" to ")}` : "";
}

function titleOf({ sample, sample_id: id, num_tokens: size, noun, rounds }) {
  const facts = [
    `Sample ${sample}`,
    id && visible(id),
    pluralize(rounds.length, "round"),
    pluralize(size, noun),
  ];
  return facts.filter(Boolean).join(" · ");
}

function roundOf({ rounds }, number) {
  return rounds.find(({ round }) => round === number);
}

function indexOf(trajectory, { round, token }) {
  const place = roundOf(trajectory, round);
  return place ? place.first + token : -1;
}

function placeAt(trajectory, index) {
  const round = trajectory.tokens.round[index];
  return [round, index - roundOf(trajectory, round).first];
}

// The token with the largest |diff| of a round.
function worstToken(trajectory, round) {
  const { first, num_tokens: size } = roundOf(trajectory, round) ?? {};
  if (first === undefined) return 0;
  const ranks = trajectory.tokens.rank_in_round.subarray(first, first + size);
  return Math.max(ranks.indexOf(1), 0);
}
