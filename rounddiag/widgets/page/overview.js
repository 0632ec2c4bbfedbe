// The left side: means per round, and under them every sample in every round.
function overviewPane({ library, onCell, onBox, onRounds, onSet }) {
  let state = null;
  const rounds = figureView({
    library,
    label: "Mismatch per round",
    onZoom: (range) => state.axis === "round" && onRounds(range && whole(range)),
  });
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

  const whole = ([low, high]) => [Math.max(Math.ceil(low), 0), Math.floor(high)];

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
