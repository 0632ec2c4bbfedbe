// The filter: sample, group, reward, rounds, text, role.

function filterRow(onFilter) {
  const names = element("datalist", { id: uniqueName("groups") });
  const line = errorLine();
  const said = (name) => (value) => onFilter({ [name]: value });
  const words = (text) => onFilter({ text, is_regex: isRegex.checked });
  const whole = { type: "number", min: 0, step: 1 };
  const fields = {
    sample: textField("sample", said("sample"), line, whole),
    group: textField("group", said("group"), line, { list: names.id }),
    reward: rangeField("reward", said("reward"), line, { step: "any" }),
    rounds: rangeField("rounds", said("rounds"), line, { min: 0, step: 1 }),
    text: liveField("text", words, line, { type: "search", class: "rdx-words" }),
  };
  const isRegex = element("input", {
    type: "checkbox",
    on: { change: () => words(text.input.value || null) },
  });
  const regex = element(
    "label",
    { class: "rdx-toggle", title: "Regular expression" },
    isRegex,
    element("span", {}, ".*"),
  );
  const role = selectField("role", (value) => onFilter({ role: value }));
  const clear = element(
    "button",
    { type: "button", class: "rdx-button", on: { click: () => onFilter(NO_FILTER) } },
    "Clear filter",
  );
  const { sample, group, reward, rounds, text } = fields;
  const parts = [
    element("div", { class: "rdx-words-row" }, text.node, regex),
    ...[role.node, sample.node, group.node, reward.node, rounds.node, clear, names, line.node],
  ];
  const form = element("div", { class: "rdx-filter", role: "group", "aria-label": "Filter" }, ...parts);
  const menu = dropdown({ label: "+ filter", name: "Filter by text, role, sample, group, reward, rounds", side: "right" }, form);
  const chips = element("span", { class: "rdx-filter-chips" });
  const node = element("div", { class: "rdx-filters" }, chips, menu.node);

  function show(filter, { groups, roles, num_samples: numSamples }) {
    for (const [name, field] of Object.entries(fields)) field.set(filter[name]);
    isRegex.checked = filter.is_regex;
    role.set([[null, "any"], ...roles.map((one) => [one, one])], filter.role);
    group.node.hidden = !groups.length;
    fill(names, ...groups.map((value) => element("option", { value })));
    sample.input.max = numSamples - 1;
    clear.hidden = keepsAll(filter);
    fill(chips, ...activeFilters(filter).map(([name, value]) => filterChip(name, value, said(name))));
  }

  // Show an error of Python at the field it is about; false if it is about none.
  function showError({ message }) {
    const field = fields[message.match(/^`(\w+)`: /)?.[1]];
    field?.wrong(message.replaceAll("`", ""));
    if (field) menu.node.open = true;
    return Boolean(field);
  }

  return { node, show, showError };
}

// `is_regex` alone, without a text, filters nothing.
function activeFilters(filter) {
  return Object.keys(NO_FILTER)
    .filter((name) => name !== "is_regex" && (filter[name] ?? null) !== null)
    .map((name) => [name, filter[name]]);
}

function keepsAll(filter) {
  return !activeFilters(filter).length;
}

function filterChip(name, value, onChange) {
  const text = `${name}: ${visible(Array.isArray(value) ? value.join(" – ") : String(value))}`;
  const on = { click: () => onChange(null) };
  const attributes = { type: "button", class: "rdx-chip", title: `Remove the filter ${text}`, on };
  return element("button", attributes, element("span", {}, text), " ×");
}

const NO_FILTER = {
  sample: null,
  group: null,
  reward: null,
  rounds: null,
  text: null,
  is_regex: false,
  role: null,
};

// The threshold for |diff|: a number, a slider, and the number of tokens beyond it.

const THRESHOLD_ENDS = [-3, 1]; // powers of ten, in nats

/** `onSet` gets a new threshold, `onDrag` every value while the slider moves. */
function thresholdField(onSet, onDrag) {
  const [min, max] = THRESHOLD_ENDS;
  const slider = element("input", {
    type: "range",
    min,
    max,
    step: 0.01,
    "aria-label": "Threshold, logarithmic",
  });
  const line = errorLine();
  const exact = textField("threshold", setExact, line, { type: "number", step: "any" });
  let now = 1;
  const beyond = element("span", { class: "rdx-beyond", "aria-live": "polite" });
  const node = element(
    "div",
    { class: "rdx-threshold", title: "Tokens with a larger |diff| are underlined and counted" },
    exact.node,
    element("span", {}, "nat"),
    slider,
    beyond,
    line.node,
  );
  const chosen = () => Number((10 ** Number(slider.value)).toPrecision(3));

  function setExact(value) {
    if (value > 0) onSet(value);
    else exact.wrong(`threshold: must be above 0; unchanged at ${number(now)} nat`);
  }

  // The error stays until there is another one.
  exact.input.addEventListener("blur", () => {
    if (exact.input.getAttribute("aria-invalid") !== "true") return;
    exact.input.value = Number(now.toPrecision(3));
    exact.input.setAttribute("aria-invalid", "false");
  });
  slider.addEventListener("input", () => {
    exact.input.value = chosen();
    describe(chosen());
    onDrag(chosen());
  });
  slider.addEventListener("change", () => onSet(chosen()));

  function describe(value) {
    slider.setAttribute("aria-valuetext", `${number(value)} nat`);
  }

  function show(value, counts) {
    now = value;
    exact.set(Number(value.toPrecision(3)));
    slider.value = Math.log10(value);
    describe(value);
    beyond.textContent = beyond.title = counts ? beyondText(counts) : "";
  }

  return { node, show };
}

function beyondText({ num_tokens: all, num_tokens_beyond: beyond, num_samples_beyond: samples, empty_reason: why }) {
  if (!all) return why;
  const share = number((100 * beyond) / all);
  return `${beyond.toLocaleString("en-US")} of ${counted(all, "token")} beyond (${share} %), in ${counted(samples, "sample")}`;
}

// The head line: name and size of the batch, its facts, and failed checks.

function headLine(buttons) {
  const name = element("div", { class: "rdx-name" });
  const verdict = element("span", { class: "rdx-verdict" });
  const failed = dropdown({ label: "", name: "Failed checks" });
  failed.summary.classList.add("rdx-warn");
  const facts = element("ul", { class: "rdx-chips", "aria-label": "About the batch" });
  const about = dropdown({ label: "i", name: "About the batch", side: "right" }, facts);
  const node = element("header", { class: "rdx-head" }, name, verdict, failed.node, about.node, ...buttons);

  function show(head) {
    const title = visible(head.name);
    fill(
      name,
      element("h3", { title }, title),
      head.step !== null && element("span", {}, `step ${head.step}`),
      element("span", { class: "rdx-sizes" }, headSizes(head)),
    );
    verdict.textContent = verdict.title = head.verdict?.value ?? "";
    verdict.classList.toggle("rdx-warn", head.verdict?.tone === "warn");
    failed.node.hidden = !head.failed.length;
    failed.label(`✗ ${head.failed.length === 1 ? "1 check" : `${head.failed.length} checks`} failed`);
    fill(failed.node.lastChild, ...failedChecks(head.failed));
    fill(facts, ...head.chips.map(factChip));
    about.summary.classList.toggle("rdx-warn", head.chips.some(({ tone }) => tone === "warn"));
  }

  return { node, show };
}

function headSizes({ num_samples: samples, num_rounds: rounds, num_tokens: tokens }) {
  return [counted(samples, "sample"), counted(rounds, "round"), counted(tokens, "token")].join(
    " · ",
  );
}

function factChip({ label, value, tone }) {
  const text = visible(String(value));
  return element(
    "li",
    {
      class: tone === "warn" ? "rdx-chip rdx-warn" : "rdx-chip",
      title: label ? `${label}: ${text}` : text,
    },
    label && element("span", {}, `${label} `),
    element("b", {}, text),
  );
}

function failedChecks(failed) {
  return [element("ul", { class: "rdx-failed" }, ...failed.map((text) => element("li", {}, visible(text))))];
}

// Two batches: the active one, and what the heatmap shows.

/** Switch between the batches; hidden for a single one. */
function batchSwitch(onSet) {
  const active = radioRow("Active batch", (value) => onSet({ batch: Number(value) }));
  const pairing = element("span", { class: "rdx-pairs" });
  const node = element("div", { class: "rdx-row rdx-compared", hidden: true }, "active batch", active.node, pairing);

  function show(pair, state) {
    node.hidden = !pair;
    if (!pair) return;
    active.set(batchChoices(pair), String(state.batch));
    pairing.textContent = visible(pair.description);
  }

  return { node, show };
}

/** Switch the heatmap between either batch, which becomes active, and the difference. */
function heatmapSwitch(onSet) {
  const choose = (value) =>
    onSet(
      value === "difference"
        ? { heatmap: value }
        : { heatmap: "batch", batch: Number(value) },
    );
  const shown = radioRow("Heatmap of", choose);
  const node = element("div", { class: "rdx-row rdx-compared", hidden: true }, "heatmap of", shown.node);

  function show(pair, state) {
    node.hidden = !pair;
    if (!pair) return;
    const [first, second] = pair.names.map(visible);
    const difference = ["difference", "difference", `${second} minus ${first}`];
    const chosen = state.heatmap === "difference" ? "difference" : String(state.batch);
    shown.set([...batchChoices(pair), difference], chosen);
  }

  return { node, show };
}

function batchChoices({ names }) {
  return names.map((name, index) => [String(index), visible(name), visible(name)]);
}

// All controls: head line, switches, threshold, filter, layers.

const CONTROL_LABELS = {
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
    ["survivors", "survivors", "the samples that reach each round, measured at round 0"],
    ["counts", "counts", "samples and tokens"],
  ],
  layersOfTwo: [
    ["ci", "intervals", "confidence intervals of the means"],
    ["difference", "difference", "difference from the first batch"],
    ["strip", "colours", "the same means as colours, in one range"],
  ],
};

function controlBar({ onSet, onThreshold = () => {}, buttons = [] }) {
  const set = (name) => (value) => onSet({ [name]: value });
  const head = headLine(buttons);
  const batch = batchSwitch(onSet);
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
  const pair = element(
    "span",
    { class: "rdx-pair", title: "diff = log-prob by the first - log-prob by the second" },
    lists.a.node,
    lists.b.node,
  );
  const view = dropdown(
    { label: "⚙", name: "Order, scores, axis and layers", side: "right" },
    element("div", { class: "rdx-view" }, lists.order.node, pair, axis.node, layers.node),
  );
  const node = element(
    "section",
    { class: "rdx-controls", "aria-label": "Controls" },
    head.node,
    batch.node,
    element(
      "div",
      { class: "rdx-choices" },
      ...[metric.node, threshold.node, filter.node, lists.by.node, view.node],
    ),
  );

  function show(facts, options, state, counts, pair = null) {
    head.show(facts);
    batch.show(pair, state);
    metric.set(options.metric, state.metric);
    axis.set(labelsFor("axis", options.axis), state.axis);
    axis.node.hidden = options.axis.length < 2;
    drawn = state.layers;
    const known = CONTROL_LABELS[pair ? "layersOfTwo" : "layers"];
    layers.set(
      known.filter(([name]) => name in options.layers),
      { ...options.layers, ...drawn },
    );
    layers.node.hidden = state.axis !== "round";
    threshold.show(state.threshold, counts);
    lists.order.set(labelsFor("order", options.order), state.order);
    for (const [name, other] of [["a", state.b], ["b", state.a]]) {
      const scores = options.scores.filter((one) => one !== other);
      lists[name].set(scores.map((one) => [one, visible(one)]), state[name]);
    }
    lists.by.set([[null, "nothing"], ...options.by.map((one) => [one, visible(one)])], state.by);
    filter.show(state.filter, { ...options, num_samples: facts.num_samples });
  }

  return { node, show, showError: filter.showError };
}

// Labels of the options; an option without a label is its own label.
function labelsFor(kind, values) {
  return values.map(
    (value) => CONTROL_LABELS[kind].find(([name]) => name === value) ?? [value, value],
  );
}
