// The right side: one sample, its rounds, its tokens, its screenshots.
function samplePane({ library, store, onPlace }) {
  let [found, current, shots] = [null, null, null];
  const goTo = (round, token = null) =>
    onPlace({ sample: found.sample, round, token: token ?? worstToken(found, round) });
  const strip = roundStrip({ onRound: (round) => goTo(round) });
  const plot = tokenPlot({ library, onToken: goTo });
  const text = tokenText({
    onToken: (round, token) => goTo(round, token),
    onObservation: (start, stop) => store.observation(found, start, stop),
  });
  const find = searchBox({
    text,
    at: () => indexOf(found, current),
    onHit: (index) => goTo(...placeAt(found, index)),
  });
  const screens = screenViewer({ onLarge: () => {}, onWanted: fetchPicture });
  const focus = focusPanel();
  const title = element("h2", { class: "rdx-title" });
  const node = element(
    "div",
    { class: "rdx-sample" },
    title,
    strip.node,
    plot.node,
    element(
      "div",
      { class: "rdx-reading" },
      element("div", { class: "rdx-beside" }, screens.node, focus.node),
      element("div", { class: "rdx-reader" }, find.node, text.node),
    ),
  );

  async function fetchPicture(index) {
    const of = found;
    const image = await store.image(of, index).catch(ignored);
    if (image && of === found) screens.put(index, image);
  }

  function show(trajectory, place, threshold) {
    [found, current, shots] = [trajectory, place, null];
    title.textContent = titleOf(trajectory);
    plot.view.wait();
    text.show(trajectory, threshold);
    strip.show(trajectory, null);
    find.again();
    mark(place);
  }

  function showShots(newShots) {
    shots = newShots;
    strip.show(found, shots);
    strip.mark(current.round);
    screens.show(found, current.round, shots);
  }

  function mark(place) {
    current = place;
    const index = indexOf(found, place);
    text.mark(place.round, place.token);
    strip.mark(place.round);
    plot.mark(place);
    focus.show(found, index);
    screens.show(found, place.round, shots);
  }

  return {
    node,
    show,
    showShots,
    showFigure: (figure) => plot.show(found, figure, current),
    mark,
    setThreshold: text.setThreshold,
    find,
    screens,
    figure: plot.view,
    trajectory: () => found,
    title: () => title.textContent,
    close: () => {
      plot.close();
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
    counted(rounds.length, "round"),
    counted(size, "token"),
    partner && visible(partner),
  ];
  return facts.filter(Boolean).join(" · ");
}

function indexOf(trajectory, { round, token }) {
  const place = trajectory.rounds.find((one) => one.round === round);
  return place ? place.first + token : -1;
}

function placeAt(trajectory, index) {
  const round = trajectory.tokens.round[index];
  const { first } = trajectory.rounds.find((one) => one.round === round);
  return [round, index - first];
}

// The token of a round with the largest |diff|.
function worstToken({ rounds, tokens }, round) {
  const { first, num_tokens: size } = rounds.find((one) => one.round === round) ?? {};
  if (first === undefined) return 0;
  const ranks = tokens.rank_in_round.subarray(first, first + size);
  return Math.max(ranks.indexOf(1), 0);
}
