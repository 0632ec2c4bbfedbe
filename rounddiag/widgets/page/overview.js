// The left side: means per round, and under them every sample in every round.
function overviewPane({ library, onCell, onBox, onRounds, onSet }) {
  let state = null;
  const rounds = figureView({
    library,
    label: "Mismatch per round",
    onZoom: (range) => state.axis === "round" && onRounds(range && wholeRounds(range)),
    onDrawn: () => markRounds(),
  });
  const kept = element("div", { class: "rdx-rounds-kept", hidden: true });
  rounds.node.append(kept);
  const heatmap = figureView({
    library,
    label: "Mismatch per sample and round",
    onDrawn: () => cells.redraw(),
  });
  const cells = heatCells(heatmap, { onCell, onBox });
  const hand = pointing(rounds, {
    onClick: ({ x }) => state.axis === "round" && onRounds([Math.round(x), Math.round(x)]),
  });
  const note = element("p", { class: "rdx-note" });
  const heatmapOf = heatmapSwitch(onSet);
  const parts = [rounds.node, note, heatmapOf.node, heatmap.node];
  const node = element("div", { class: "rdx-overview" }, ...parts);

  async function show(found) {
    state = found.state;
    note.textContent = found.note;
    heatmapOf.show(found.compared, state);
    await Promise.all([
      rounds.draw(found.figures.rounds),
      heatmap.draw(found.figures.heatmap, { dragmode: false }),
    ]);
    mark(state);
  }

  function mark(newState) {
    state = newState;
    cells.show(state.current, state.cells);
    markRounds();
  }

  // Which rounds the filter keeps, of those that the means are of.
  function markRounds() {
    const [x, y] = [rounds.axis("xaxis"), rounds.axis("yaxis")];
    const range = state?.axis === "round" ? state.filter.rounds : null;
    kept.hidden = !range || !x || !y;
    if (kept.hidden) return;
    const across = [range[0] - 0.5, range[1] + 0.5].map(x.pixel);
    placeBox(kept, across.map((at) => Math.min(Math.max(at, x.from), x.to)), [y.from, y.to]);
  }

  // The samples in the order of the heatmap.
  const samples = () => heatmap.meta()?.samples ?? [];

  return {
    node,
    show,
    mark,
    samples,
    figures: [rounds, heatmap],
    close: () => [hand, cells, rounds, heatmap].forEach((part) => part.close()),
  };
}

// The rounds that a stretch of the axis holds, or the one that it is in.
function wholeRounds([low, high]) {
  const [first, last] = [Math.max(Math.ceil(low), 0), Math.floor(high)];
  return first <= last ? [first, last] : [Math.round(low), Math.round(low)];
}
