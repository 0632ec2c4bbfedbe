// @ts-check
// The two lines at the top: batch and verdict; metric, threshold and filter.

const THRESHOLD_ENDS = [-3, 1]; // powers of ten, in nats

/** `onSet` gets a new threshold. */
function thresholdField(onSet) {
  const [min, max] = THRESHOLD_ENDS;
  const slider = element("input", { type: "range", min, max, step: 0.01, "aria-label": "Threshold, logarithmic" });
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
  slider.addEventListener("input", () => {
    exact.input.value = chosen();
  });
  slider.addEventListener("change", () => onSet(chosen()));

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

  function show(value, counts) {
    now = value;
    exact.set(Number(value.toPrecision(3)));
    slider.value = Math.log10(value);
    slider.setAttribute("aria-valuetext", `${number(value)} nat`);
    beyond.textContent = beyond.title = counts ? beyondText(counts) : "";
  }

  return { node, show };
}

function beyondText({ num_tokens: all, num_tokens_beyond: beyond, num_samples_beyond: samples, empty_reason: why }) {
  if (!all) return why;
  return `${groupDigits(beyond)} beyond · ${percent(beyond / all)} · ${pluralize(samples, "sample")} · of ${pluralize(all, "token")}`;
}

// The head line: name and size of the batch, its verdict, facts, and failed checks.

function headLine(buttons, onFindings) {
  const name = element("div", { class: "rdx-name" });
  const verdict = dropdown({ label: "", name: "Verdict" });
  verdict.node.classList.add("rdx-verdict");
  const failed = dropdown({ label: "", name: "Failed checks", side: "right" });
  failed.summary.classList.add("rdx-warn");
  const facts = element("ul", { class: "rdx-chips", "aria-label": "About the batch" });
  const about = dropdown({ label: "i", name: "About the batch", side: "right" }, facts);
  const evidence = pushButton({ class: "rdx-button", hidden: true }, () => goThere(), "Go to the evidence");
  const test = pushButton({ class: "rdx-button", hidden: true }, copyTest, "Copy the test");
  const node = element("header", { class: "rdx-head" }, name, verdict.node, test, evidence, failed.node, about.node, ...buttons);
  let goThere;
  let overall = {};

  function show(head) {
    const [title, sizes] = [visible(head.name), headSizes(head)];
    fill(
      name,
      element("h3", { title }, title),
      head.step !== null && element("span", {}, `step ${head.step}`),
      element("span", { class: "rdx-sizes", title: sizes }, sizes),
    );
    overall = head.verdict ?? {};
    failed.node.hidden = !head.failed.length;
    failed.label(`✗ ${pluralize(head.failed.length, "check")} failed`);
    fill(failed.node.lastChild, element("ul", { class: "rdx-failed" }, head.failed.map((text) => element("li", {}, visible(text)))));
    fill(facts, ...head.chips.map(factChip));
    about.summary.classList.toggle("rdx-warn", head.chips.some(({ tone }) => tone === "warn"));
  }

  /** The diagnosis comes after the figures; until then, and if it fails, the mean.
   * @param {Record<string, any>} [found] */
  function diagnose({ verdict: word, is_update: isUpdate, text, first, others, num_findings: num, families = [], prove = "" } = {}, why = "") {
    const line = text ?? [overall.value, why].filter(Boolean).join(" · ");
    const isBad = word ? isUpdate || BAD_VERDICTS.includes(word) : overall.tone === "warn";
    const all = () => {
      closeDropdowns(node);
      onFindings();
    };
    const label = num > 0 && pushButton({ class: "rdx-button" }, all, num === 1 ? "Finding" : `${num} findings`);
    const lines = linesOf(line);
    // The popup has all of it. In the head line the first sentence is whole; what else
    // fails and what to do have a line each, and the families have their names alone.
    const next = families.length && !isUpdate ? `Cause not known; possible: ${families.join(", ")}` : lines[1];
    const span = (part) => element("span", {}, ...prose(part));
    fill(
      verdict.summary,
      element("p", {}, word && element("b", {}, word.replace("_", " ")), span(first ?? lines[0])),
      others && element("div", { class: "rdx-others" }, span(others)),
      next && element("div", {}, span(next)),
    );
    [test.hidden, test.title, test.textContent] = [!prove, visible(prove), "Copy the test"];
    verdict.summary.title = lines.map(visible).join("\n");
    verdict.node.toggleAttribute("data-bad", isBad);
    fill(verdict.node.lastChild, lines.map((line) => element("p", {}, ...prose(line))), word && word !== "not_measurable" && element("p", { class: "rdx-note" }, overall.value), label);
  }

  async function copyTest() {
    await copyText(test.title);
    test.textContent = "Copied";
  }

  /** Offer to go to the evidence; null takes the offer back. */
  function offer(go) {
    [goThere, evidence.hidden] = [go, !go];
  }

  return { node, show, diagnose, offer };
}

// What differs and where; and the cause, or what is possible and what tests it.
function linesOf(text) {
  const end = text.indexOf("\n");
  return end < 0 ? [text] : [text.slice(0, end), text.slice(end + 1)];
}

const BAD_VERDICTS = ["broken", "suspicious", "stale"];

function headSizes({ num_samples: samples, num_tokens: tokens, noun }) {
  const few = tokens < 10_000 ? pluralize(tokens, noun) : `${number(Number((tokens / 1000).toPrecision(3)))}k ${noun}s`;
  return `${pluralize(samples, "sample")} · ${few}`;
}

function factChip({ label, value, tone }) {
  const text = visible(String(value));
  const attributes = { class: `rdx-chip ${tone === "warn" ? "rdx-warn" : ""}`, title: `${label}: ${text}` };
  return element("li", attributes, element("span", {}, `${label} `), element("b", {}, text));
}

// All controls: head line, switches, threshold, filter.

const CONTROL_LABELS = {
  order: [
    ["sample", "number"],
    ["worst", "worst first"],
    ["rounds", "most rounds"],
    ["reward", "highest reward"],
    ["group", "group"],
  ],
  colors: [
    ["fixed", "same colours", "a colour means the same in every batch: 0.003 to 3 nat"],
    ["fitted", "fitted", "the range of colours fits this batch"],
  ],
};

function controlBar({ onSet, onFindings = () => {}, askValues = undefined, buttons = [] }) {
  const set = (name) => (value) => onSet({ [name]: value });
  const head = headLine(buttons, onFindings);
  const metric = radioRow("Metric", set("metric"));
  const colors = radioRow("Range of colours", set("colors"));
  const lists = {
    order: selectField("order", set("order")),
    a: selectField("compare", set("a")),
    b: selectField("with", set("b"), { "aria-label": "compare with" }),
    by: selectField("by", set("by")),
  };
  const threshold = thresholdField(set("threshold"));
  const correction = correctionLine(onSet);
  const filter = filterRow(set("filter"), askValues);
  const pair = element(
    "span",
    { class: "rdx-pair", title: "diff = log-prob by the first - log-prob by the second" },
    lists.a.node,
    lists.b.node,
  );
  const fixed = sentence();
  const view = dropdown(
    { label: "⚙", name: "Order, correction, colours and scores", side: "right" },
    element(
      "div",
      { class: "rdx-view" },
      fixed,
      lists.order.node,
      correction.menu,
      withLegend("colours", colors.node),
      pair,
    ),
  );
  const node = element(
    "section",
    { class: "rdx-controls", "aria-label": "Controls" },
    head.node,
    element("div", { class: "rdx-choices" }, metric.node, threshold.node, filter.node, lists.by.node, view.node),
    correction.node,
  );

  /** A report has no Python: what is not stored in it cannot be chosen.
   * @param {Record<string, any>} limits
   * @param {any} state */
  function limit({ why, canShow }, state) {
    fixed.hidden = !why;
    if (!why) return;
    fixed.textContent = `${why}.`;
    const parts = [lists.order, lists.a, lists.b, colors];
    const disable = (field, isFixed) => {
      field.disabled = isFixed;
      (field.closest("label") ?? field).title = isFixed ? why : field.closest("label")?.title ?? "";
    };
    for (const field of parts.flatMap(({ node: part }) => [...part.querySelectorAll("input, select")])) disable(field, true);
    for (const input of metric.node.querySelectorAll("input")) disable(input, !canShow(input.value, state.by));
    const groups = [...lists.by.node.querySelectorAll("option")];
    for (const option of groups) option.disabled = !canShow(state.metric, option.value || null);
    disable(lists.by.node.querySelector("select"), groups.every((option) => option.disabled || !option.value));
    for (const field of [correction.menu, correction.node].flatMap((part) => [...part.querySelectorAll("input, select, button")])) field.disabled = true;
    filter.disable(why);
  }

  function show(facts, options, state, counts, limits = undefined, corrected = null) {
    head.show(facts);
    metric.set(options.metric, state.metric);
    metric.node.hidden = options.metric.length < 2;
    colors.set(CONTROL_LABELS.colors, state.colors);
    colors.node.parentNode.hidden = Boolean(facts.lacks); // without a pair no range is the same
    threshold.show(state.threshold, counts);
    threshold.node.hidden = Boolean(facts.lacks);
    lists.order.set(labelsFor("order", options.order), state.order);
    for (const [name, other] of [["a", state.b], ["b", state.a]]) {
      const scores = options.scores.filter((score) => score !== other);
      lists[name].set(scores.map((score) => [score, visible(score)]), state[name]);
    }
    lists.by.set([[null, "nothing"], ...options.by.map((column) => [column, visible(column)])], state.by);
    correction.show(options.correction, state, corrected);
    filter.show(state.filter, options.columns);
    limit(limits ?? {}, state);
  }

  return { node, show, showError: filter.showError, diagnose: head.diagnose, offer: head.offer };
}

// What a group of choices is about, above it.
function withLegend(text, node) {
  return element("div", { class: "rdx-legend" }, element("span", {}, text), node);
}

// Labels of the options; an option without a label is its own label.
function labelsFor(kind, values) {
  return values.map((value) => CONTROL_LABELS[kind].find(([name]) => name === value) ?? [value, visible(value)]);
}
