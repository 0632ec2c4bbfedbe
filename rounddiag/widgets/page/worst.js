// The worst tokens, rounds and samples; a click on a row goes there.

const WORST = {
  tokens: {
    label: "Tokens",
    what: () => "by |diff| (nats)",
    heads: ["text", "sample", "round", "token", "diff"],
    none: "No token has a finite diff.",
    cells: ({ piece, diff, sample, round, token }) => [
      visible(piece || "‥"),
      ...[sample, round, token].map(String),
      signed(diff),
    ],
    title: ({ sample, round, token }) => `sample ${sample}, round ${round}, token ${token}`,
    sign: ({ diff }) => diff,
  },
  rounds: {
    label: "Rounds",
    what: (of) => `rounds with at least 20 tokens, by the lower confidence bound of ${of} (nats)`,
    none: "No round has 20 tokens with a finite diff.",
    cells: (one) => [
      `sample ${one.sample}, round ${one.round}`,
      counted(one.num_tokens, "token"),
      ...meanAndBound(one),
    ],
    title: ({ sample, round }) => `sample ${sample}, round ${round}`,
  },
  samples: {
    label: "Samples",
    what: (of) => `by the lower confidence bound of ${of} (nats)`,
    none: "No sample has enough tokens with a finite diff.",
    cells: (one) => [sampleName(one), counted(one.num_rounds, "round"), ...meanAndBound(one)],
    title: ({ sample, num_tokens: size }) => `sample ${sample}, ${counted(size, "token")}`,
  },
};

const NO_DIFFERENCE = "The paired samples do not differ.";

// The mean or the difference of means, and its lower confidence bound.
function meanAndBound({ mean_abs_diff: mean, difference, low }) {
  const bound = `≥ ${number(low)}`;
  return difference === undefined ? [number(mean), bound] : [signed(difference), bound];
}

function sampleName({ sample, sample_id: id }) {
  return `sample ${sample}${id === null || id === undefined ? "" : `, ${visible(String(id))}`}`;
}

/** The drawer: closed it is its tabs, and `inBar` beside them. */
function worstList({ onJump, inBar = [] }) {
  const caption = element("p", { class: "rdx-worst-what" });
  const list = element("ol", { class: "rdx-worst-rows" });
  const tabs = Object.entries(WORST).map(([name, { label }]) =>
    element("button", { type: "button", role: "tab", "data-name": name }, label),
  );
  const row = element(
    "div",
    { class: "rdx-tabs", role: "tablist", "aria-label": "Worst" },
    ...tabs,
  );
  const panel = element("div", { role: "tabpanel", class: "rdx-worst-panel" }, caption, list);
  const bar = element("div", { class: "rdx-drawer-bar" }, row, ...inBar);
  const node = element("section", { class: "rdx-worst", "aria-label": "Drawer" }, bar, panel);
  const isOpen = () => "open" in node.dataset;
  const toggle = (isShown) => node.toggleAttribute("data-open", isShown);
  const rows = () => [...list.querySelectorAll("button")];
  let [found, open, reached] = [{}, "tokens", { tokens: -1, rounds: -1, samples: -1 }];
  let emptyReason = "";

  // Without tokens, the reason why there are none.
  function show(worst, why = "") {
    [found, emptyReason] = [worst ?? {}, why];
    for (const tab of tabs) tab.hidden = Boolean(worst) && !(tab.dataset.name in worst);
    if (tabs.find((tab) => tab.dataset.name === open).hidden) open = "rounds";
    reached = { tokens: -1, rounds: -1, samples: -1 };
    choose(open);
  }

  function choose(name) {
    open = name;
    const { none, what, heads = [] } = WORST[name];
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab.dataset.name === name));
      tab.tabIndex = tab.dataset.name === name ? 0 : -1;
    }
    panel.setAttribute("aria-label", `Worst ${name}`);
    list.className = `rdx-worst-rows rdx-worst-${name}`;
    const entries = found[name] ?? [];
    const isDifference = !("tokens" in found);
    caption.textContent = entries.length ? what(isDifference ? "difference of mean |diff|" : "mean |diff|") : "";
    const head = heads.map((text) => element("span", { class: "rdx-cell" }, text));
    const rowOf = (...parts) => element("li", {}, ...parts);
    fill(
      list,
      heads.length > 0 && rowOf(element("div", { class: "rdx-worst-head" }, ...head)),
      ...entries.map((entry) => rowOf(worstRow(name, entry))),
    );
    if (!entries.length) fill(list, element("li", {}, sentence(emptyReason || (isDifference ? NO_DIFFERENCE : none))));
    markReached();
  }

  function markReached() {
    rows().forEach((button, index) => {
      button.setAttribute("aria-current", String(index === reached[open]));
      button.tabIndex = index === Math.max(0, reached[open]) ? 0 : -1;
    });
    const now = rows()[reached[open]];
    if (now) reveal(list, now);
  }

  function jump(index) {
    const entry = found[open]?.[index];
    if (!entry) return;
    reached[open] = index;
    markReached();
    const { sample, round, token } = entry;
    onJump({ sample, round, token });
  }

  // The next row of the open list; the first one after the last.
  const next = () => jump((reached[open] + 1) % (found[open]?.length || 1));

  const indexOf = (button) => rows().indexOf(button);
  row.addEventListener(
    "click",
    ({ target: { dataset } }) => {
      if (!dataset.name) return;
      toggle(!isOpen() || dataset.name !== open);
      choose(dataset.name);
    },
  );
  walkWithArrows(
    row,
    () => tabs.filter(({ hidden }) => !hidden),
    (tab) => choose(tab.dataset.name),
  );
  list.addEventListener("click", (event) => jump(indexOf(event.target.closest("button"))));
  walkWithArrows(list, rows, (button) => jump(indexOf(button)));
  return { node, show, next, toggle };
}

function worstRow(name, entry) {
  const { cells, title, sign } = WORST[name];
  const side = { 1: " rdx-more-text", "-1": " rdx-less-text" }[Math.sign(sign?.(entry))] ?? "";
  const texts = cells(entry);
  const spans = texts.map((text, index) =>
    element("span", { class: index === texts.length - 1 ? `rdx-cell${side}` : "rdx-cell" }, text),
  );
  return element("button", { type: "button", title: title(entry) }, ...spans);
}
