// Two batches: which one is looked at, and what the heatmap shows of them.

/** Choose the batch that tokens and screenshots are of; hidden where there is one. */
function batchSwitch(onSet) {
  const looked = radioRow("Batch that is looked at", (value) => onSet({ batch: Number(value) }));
  const words = element("span", { class: "rdx-pairs" });
  const node = element("div", { class: "rdx-row rdx-compared", hidden: true }, "look at", looked.node, words);

  function show(compared, state) {
    node.hidden = !compared;
    if (!compared) return;
    looked.set(batchChoices(compared), String(state.batch));
    words.textContent = visible(compared.words);
  }

  return { node, show };
}

/** Choose the heatmap of either batch, which is then looked at, or their difference. */
function heatmapSwitch(onSet) {
  const choose = (value) =>
    onSet(
      value === "difference"
        ? { heatmap: value }
        : { heatmap: "batch", batch: Number(value) },
    );
  const shown = radioRow("Heatmap of", choose);
  const node = element("div", { class: "rdx-row rdx-compared", hidden: true }, "heatmap of", shown.node);

  function show(compared, state) {
    node.hidden = !compared;
    if (!compared) return;
    const [first, second] = compared.names.map(visible);
    const difference = ["difference", "difference", `how much more in ${second} than in ${first}`];
    const chosen = state.heatmap === "difference" ? "difference" : String(state.batch);
    shown.set([...batchChoices(compared), difference], chosen);
  }

  return { node, show };
}

function batchChoices({ names }) {
  return names.map((name, index) => [String(index), visible(name), visible(name)]);
}
