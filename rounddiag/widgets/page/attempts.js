// @ts-check
// Two attempts at one task, round by round: what GRPO compares. In a dialog, since it
// needs all of the width.

/** `onPlace` gets the round that was clicked. */
function attemptsView({ store, state, trajectory, onPlace }) {
  const { mates, sample, noun } = trajectory;
  const known = new Map(mates.map((mate) => [mate.sample, mate]));
  const own = known.get(sample)?.reward;
  const other = mates.find((mate) => mate.sample !== sample && mate.reward !== own) ?? mates.find((mate) => mate.sample !== sample);
  const shown = [sample, other.sample];
  const heads = shown.map((_, at) => selectField(`attempt ${at + 1}`, (name) => show(at, Number(name))));
  const body = element("div", { class: "rdx-attempts-rounds" });
  const others = mates.slice(0, MOST_ATTEMPTS).map((mate) => pushButton({ class: "rdx-chip", title: `Show ${attemptName(mate, noun)} at the right` }, () => show(1, mate.sample), rewardOf(mate)));
  const rest = mates.length - others.length;
  const all = element("p", { class: "rdx-all-attempts" }, "reward of each sample", others, rest > 0 && `and ${groupDigits(rest)} more`);
  const node = element("div", { class: "rdx-attempts" }, all, ...heads.map((head) => head.node), body);
  let [live, isClosed] = [[], false];

  function show(at, name) {
    shown[at] = name;
    return draw();
  }

  async function draw() {
    const wanted = [...shown];
    heads.forEach((head, at) => head.set(mates.map((mate) => [String(mate.sample), attemptName(mate, noun)]), String(shown[at])));
    const trajectories = await Promise.all(wanted.map((name) => store.trajectory(name, state).catch((error) => ({ missing: [error.message] }))));
    if (isClosed || wanted.some((name, at) => name !== shown[at])) return;
    live.forEach((picture) => picture.free());
    live = [];
    const num = 1 + Math.max(...trajectories.map(({ rounds }) => rounds?.length ?? 0)); // and the end
    const cells = Array.from({ length: num }, (_, at) => trajectories.map((attempt) => attemptRound(attempt, at, onPlace)));
    fill(body, cells.flat());
    await Promise.all(trajectories.map((attempt, side) => fillPictures(attempt, cells.map((row) => row[side]), wanted)));
  }

  async function fillPictures(attempt, cells, wanted) {
    for (const group of shotGroups((attempt.rounds ?? []).map(({ screenshot }) => screenshot).filter((at) => at !== null))) {
      const { shots } = await store.thumbnails(attempt, group).catch(() => ({ shots: [] }));
      if (isClosed || wanted.some((name, at) => name !== shown[at])) return;
      for (const shot of shots) {
        attempt.rounds.forEach((round, at) => {
          if (round.screenshot !== shot.index) return;
          live.push(pictureOf(shot, readAction(round.action, state.coordinates), { alt: "", isSmall: true }));
          fill(cells[at].querySelector(".rdx-card-picture"), live.at(-1).node);
        });
      }
    }
  }

  draw();
  return {
    node,
    close: () => {
      isClosed = true;
      live.forEach((picture) => picture.free());
    },
  };
}

const MOST_ATTEMPTS = 8; // as buttons; the menus have all

const rewardOf = ({ sample, reward }) => `${sample}: ${reward === undefined ? "not recorded" : number(reward)}`;

function attemptName({ sample, reward, num_rounds: rounds, num_tokens: size }, noun) {
  const facts = [reward !== undefined && `reward ${number(reward)}`, pluralize(rounds, "round"), pluralize(size, noun)];
  return [`sample ${sample}`, ...facts.filter(Boolean)].join(", ");
}

// A round of one attempt: its action, and its thought folded; its end after the last.
function attemptRound(attempt, at, onPlace) {
  const { missing, rounds, tokens, sample, end } = attempt;
  if (missing) return element("div", {}, at === 0 && missing.map((line) => element("p", {}, line)));
  const round = rounds[at];
  if (!round) return element("div", {}, at === rounds.length && episodeEnd(end));
  const start = actionStart(tokens, round); // the action itself is in words
  const spans = (first, stop) => Array.from({ length: stop - first }, (_, token) => tokenSpan(tokens, first + token, Infinity));
  const thought = start > round.first && element("pre", { class: "rdx-tokens rdx-chunk rdx-thought" }, ...spans(round.first, start));
  const unfold = thought && pushButton({ class: "rdx-unfold", "aria-expanded": "false" }, () => unfold.setAttribute("aria-expanded", thought.toggleAttribute("data-whole")), "whole thought");
  return element(
    "article",
    { class: "rdx-attempt", "aria-label": `sample ${sample}, round ${round.round}` },
    pushButton({ class: "rdx-card", title: "Go to this round" }, () => onPlace({ sample, round: round.round }), ...cardParts({ ...round, action: null })),
    element(
      "div",
      {},
      element("p", { class: "rdx-round-action" }, visible(round.action.line)),
      ...roundNotes(round),
      thought,
      unfold,
    ),
  );
}
