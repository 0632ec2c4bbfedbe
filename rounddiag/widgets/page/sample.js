// The pane of one sample: its title, the strip of its rounds (a card each: screenshot,
// action, mean |diff|), and token plot, text and screenshot, which follow each other.

/** `onSeen` is called when cards come into sight whose screenshots are missing. */
function roundStrip({ onRound, onSeen = () => {} }) {
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
      const cards = trajectory.rounds.map((round) => element("li", {}, roundCard(round)));
      fill(list, cards.length ? cards : element("li", {}, sentence("This sample has no rounds.")));
      for (const picture of list.querySelectorAll(".rdx-card-picture")) seen.observe(picture);
    }
    if (!thumbnails?.length) return;
    const all = buttons();
    const shots = new Map(thumbnails.map((shot) => [shot.index, shot]));
    trajectory.rounds.forEach((round, at) => {
      const shot = shots.get(round.screenshot);
      if (!shot || pictures.has(at)) return;
      pictures.set(at, pictureOf(shot, round.action, { alt: "", isSmall: true }));
      fill(all[at].querySelector(".rdx-card-picture"), pictures.get(at).node);
    });
  }

  function mark(round) {
    const button = list.querySelector(`[data-round="${round}"]`) ?? list.querySelector("button");
    if (!button || button === marked) return;
    for (const [one, isNow] of [[marked, false], [button, true]]) {
      one?.setAttribute("aria-current", isNow);
      one?.setAttribute("tabindex", isNow ? "0" : "-1");
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

  const roundsInSight = () => shown.rounds.filter(({ round }) => inSight.has(round));
  return { node, show, mark, roundsInSight, close };
}

function roundCard({ round, action, screenshot, mean_abs_diff: mean, num_nonfinite: broken, level }) {
  const bar = element("span", { class: `rdx-bar ${level < 0 ? "rdx-is-less" : "rdx-is-more"}` });
  bar.style.width = `${(Math.abs(level) / 8) * 100}%`;
  const label = visible(action?.label || action?.kind || "");
  const missing = broken ? `, ${brokenTokens(broken)}` : "";
  const title = `round ${round}: ${label}; mean |diff| ${number(mean)} nat${missing}`;
  const line = (...parts) => element("span", { class: "rdx-card-line" }, ...parts);
  return element(
    "button",
    { type: "button", class: "rdx-card", tabindex: -1, "data-round": round, title, "aria-label": title },
    screenshot !== null && element("span", { class: "rdx-card-picture" }),
    line(element("b", {}, String(round)), element("span", { class: "rdx-card-action" }, label)),
    line(element("span", { class: "rdx-card-bar" }, bar), element("span", {}, number(mean) + (broken ? " ✕" : ""))),
  );
}

// One sample: its rounds, token plot, screenshot, text and the current token.
function samplePane({ library, store, onPlace, onPlot, onSeen }) {
  let [trajectory, current] = [null, null];
  let shots = []; // thumbnails
  const goTo = (round, token = null) =>
    onPlace({ sample: trajectory.sample, round, token: token ?? worstToken(trajectory, round) });
  const strip = roundStrip({ onRound: (round) => goTo(round), onSeen });
  const plot = tokenPlot({ library, onToken: goTo, onPlot });
  const text = tokenText({
    onToken: goTo,
    onObservation: (start, stop) => store.observation(trajectory, start, stop),
  });
  const find = searchBox({
    text,
    at: () => indexOf(trajectory, current),
    onHit: (index) => goTo(...placeAt(trajectory, index)),
  });
  const screens = screenViewer({ onWanted: fetchPicture });
  const focus = focusPanel();
  const title = element("h2", { class: "rdx-title" });
  const key = dropdown({ label: "i", name: "Colours and lines of the text", side: "right" }, text.key);
  const reader = element(
    "section",
    { class: "rdx-reader", "aria-label": "Text" },
    element("div", { class: "rdx-reader-head" }, find.node, key.node),
    text.node,
  );
  const missing = element("div", { class: "rdx-empty rdx-missing", role: "status" });
  const head = element("section", { class: "rdx-sample-head", "aria-label": "Sample" }, title, missing, strip.node);
  const node = element(
    "div",
    { class: "rdx-sample" },
    head,
    element("div", { class: "rdx-reading" }, plot.node, reader),
    element("div", { class: "rdx-side" }, screens.node, focus.node),
  );

  async function fetchPicture(index) {
    const of = trajectory;
    const image = await store.image(of, index).catch(ignore);
    if (image && of === trajectory) screens.put(index, image);
  }

  function show(newTrajectory, place, threshold) {
    [trajectory, current] = [newTrajectory, place];
    shots = [];
    node.removeAttribute("data-missing");
    title.textContent = title.title = titleOf(trajectory);
    plot.view.wait();
    text.show(trajectory, threshold);
    strip.show(trajectory, shots);
    find.again();
    mark(place);
  }

  // In place of all panes.
  function showMissing(sample, why) {
    [trajectory, current] = [null, null];
    title.textContent = `Sample ${sample}`;
    fill(missing, ...why.map((line) => element("p", {}, line)));
    node.toggleAttribute("data-missing", true);
  }

  // The screenshots in sight that are not there yet: large ones first.
  function missingShots() {
    const { rounds } = trajectory;
    const now = rounds.findIndex(({ round }) => round === current.round);
    const inSight = [rounds[now], rounds[now - 1], ...strip.roundsInSight()].map((one) => one?.screenshot ?? null);
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
    focus.show(trajectory, index);
  }

  const showScreens = () => screens.show(trajectory, current.round, shots);

  return {
    node,
    show,
    addShots,
    missingShots,
    showFigure: (axes, only, state) => plot.show(trajectory, axes, only, current, state),
    showMissing,
    showScreens,
    mark,
    setThreshold: text.setThreshold,
    setUsual: text.setUsual,
    setMarks: (marks) => {
      text.setMarks(marks);
      plot.setMarks(marks);
    },
    find,
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

function titleOf({ of, partner, sample, sample_id: id, group_id: group, reward, num_tokens: size, rounds }) {
  const facts = [
    of ? `Sample ${sample} of ${visible(of)}` : `Sample ${sample}`,
    id && visible(id),
    group && `group ${visible(group)}`,
    reward !== null && `reward ${number(reward)}`,
    pluralize(rounds.length, "round"),
    pluralize(size, "token"),
    partner && visible(partner),
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
