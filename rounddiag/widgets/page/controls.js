// What stands over the figures: the batch, and what is chosen of it.

const CONTROL_WORDS = {
  order: [
    ["sample", "number"],
    ["worst", "worst first"],
    ["rounds", "most rounds"],
    ["reward", "highest reward"],
    ["group", "group"],
  ],
  axis: [
    ["round", "round", "means per round"],
    ["images", "images seen", "means by the number of images seen before"],
    ["context", "context", "means by the number of tokens before"],
  ],
  layers: [
    ["mean", "mean", "mean of each round"],
    ["ci", "interval", "its confidence interval"],
    ["quantiles", "quantiles", "median, 90 %, 99 % and largest of the tokens"],
    ["survivors", "survivors", "those who reach each round, measured at round 0"],
    ["counts", "counts", "samples and tokens"],
  ],
  layersOfTwo: [
    ["ci", "intervals", "confidence intervals of the means"],
    ["difference", "difference", "how much more there is than in the first batch"],
    ["strip", "colours", "the same means as colours of one range"],
  ],
};

function controlBar({ onSet, onThreshold = () => {} }) {
  const set = (name) => (value) => onSet({ [name]: value });
  const head = headBlock();
  const looked = batchSwitch(onSet);
  const metric = radioRow("Metric", set("metric"));
  const axis = radioRow("Axis of the figure", set("axis"));
  let drawn = {};
  const layers = checkRow("Layers of the figure", (name, isOn) =>
    onSet({ layers: { ...drawn, [name]: isOn } }),
  );
  const lists = Object.fromEntries(
    [
      ["order", "order"],
      ["a", "compare"],
      ["b", "with", { "aria-label": "compare with" }],
      ["by", "by"],
    ].map(([name, label, more]) => [name, selectField(label, set(name), more)]),
  );
  const threshold = thresholdField(set("threshold"), onThreshold);
  const filter = filterRow(set("filter"));
  const row = (name, ...parts) => element("div", { class: `rdx-row ${name}` }, ...parts);
  const pair = element(
    "span",
    { class: "rdx-pair", title: "diff = log-prob by the first - log-prob by the second" },
    lists.a.node,
    lists.b.node,
  );
  const node = element(
    "section",
    { class: "rdx-controls", "aria-label": "Batch and what is shown of it" },
    head.node,
    looked.node,
    row("rdx-choices", metric.node, threshold.node, lists.order.node, pair),
    row("rdx-filters", filter.node),
    row("rdx-drawing", axis.node, lists.by.node, layers.node),
  );

  function show(facts, options, state, counts, compared = null) {
    head.show(facts);
    looked.show(compared, state);
    metric.set(options.metric, state.metric);
    axis.set(wordsFor("axis", options.axis), state.axis);
    axis.node.hidden = options.axis.length < 2;
    drawn = state.layers;
    const known = CONTROL_WORDS[compared ? "layersOfTwo" : "layers"];
    layers.set(
      known.filter(([name]) => name in options.layers),
      { ...options.layers, ...drawn },
    );
    layers.node.hidden = state.axis !== "round";
    threshold.show(state.threshold, counts);
    lists.order.set(wordsFor("order", options.order), state.order);
    for (const [name, other] of [["a", state.b], ["b", state.a]]) {
      const scores = options.scores.filter((one) => one !== other);
      lists[name].set(scores.map((one) => [one, visible(one)]), state[name]);
    }
    lists.by.set([[null, "nothing"], ...options.by.map((one) => [one, visible(one)])], state.by);
    filter.show(state.filter, { ...options, num_samples: facts.num_samples });
  }

  return { node, show, wrong: filter.wrong };
}

// Words for what can be chosen; what has none stands for itself.
function wordsFor(kind, values) {
  return values.map(
    (value) => CONTROL_WORDS[kind].find(([name]) => name === value) ?? [value, value],
  );
}
