// @ts-check
// The drawer: its lists, of which Python sends some rows at a time. A click on a row goes
// to its token, or to the evidence of its finding or place, by which it filters.

const LISTS = {
  findings: "Findings",
  tokens: "Tokens",
  rounds: "Rounds",
  samples: "Samples",
  common: "In common",
  selection: "Selection",
  hits: "Hits",
  notes: "Notes",
};
const LINE_HEIGHT = 24; // of a row, as in the style
const PAGE_ROWS = 200; // as in lists.py
// Of a column: the least width in pixels, and the most.
const CELL_WIDTHS = { piece: [180, "3fr"], wide: [140, "4fr"], text: [64, "1fr"], part: [96, "140px"], few: [44, "72px"], name: [84, "2fr"] };
const OTHER_WIDTH = [56, "96px"];
const CELL_GAP = 12;
const CELL_TEXTS = {
  number,
  signed: withSign,
  change: withSign,
  count: groupDigits,
  bound: (value) => `≥ ${number(value)}`,
  share: (value) => percent(value).slice(0, -2),
};

/** Closed it is its tabs, and `inBar` beside them. */
function listDrawer({ request, onRow, onToggle = (_list) => {}, inBar = [] }) {
  const caption = element("p", { class: "rdx-list-what" });
  const head = element("div", { class: "rdx-list-head" });
  const body = element("ol", { class: "rdx-list-rows" });
  const scroller = element("div", { class: "rdx-list" }, head, body);
  const note = element("p", { class: "rdx-list-note" });
  const tabs = tabRow(
    "Lists",
    LISTS,
    (name) => toggle(!isOpen() || name !== open, name),
    (name) => isOpen() && toggle(true, name),
  );
  const panel = element("div", { role: "tabpanel", class: "rdx-list-panel" }, caption, scroller, note);
  const scores = element("ul", { class: "rdx-domains", "aria-label": "Mean scores" });
  const bar = element("div", { class: "rdx-drawer-bar" }, tabs.node, scores, ...inBar);
  const node = element("section", { class: "rdx-drawer", "aria-label": "Drawer" }, bar, panel);
  const isOpen = () => "open" in node.dataset;
  const [reached, sorts] = [{}, {}]; // of each list: the row, and the column that orders it
  let [open, pages, known] = ["findings", new Map(), null];

  // Show a list anew that is about something else now.
  function renew(name) {
    delete reached[name];
    if (open === name) [pages, known] = [new Map(), null];
    toggle(true, name);
  }

  // Forget all rows: something changed in Python. Only an open list is requested anew.
  function refresh({ keepsPlace = false } = {}) {
    if (!keepsPlace) for (const name of Object.keys(reached)) delete reached[name];
    [pages, known] = [new Map(), null];
    return isOpen() ? load() : undefined;
  }

  // The rows from a multiple of a page on; the first ones say how many there are.
  function pageOf(start) {
    const [of, name] = [pages, open];
    if (!of.has(start)) {
      const reply = request(name, start, sorts[name]);
      of.set(start, reply);
      reply.catch(() => of.delete(start));
    }
    return of.get(start);
  }

  async function load() {
    const [of, name] = [pages, open];
    const slow = setTimeout(() => fill(body, element("li", {}, sentence("computing…"))), 200);
    const first = await pageOf(0).catch((error) => ({ num_rows: 0, empty: error.message, columns: [], caption: "" }));
    clearTimeout(slow);
    if (of !== pages || name !== open) return;
    known = first;
    caption.textContent = visible(first.caption);
    fill(scores, (first.scores ?? []).map(scoreItem));
    const widths = first.columns.map(({ kind }) => CELL_WIDTHS[kind] ?? OTHER_WIDTH);
    const whole = first.columns.map(({ head: text }, at) => (widths[at][1].endsWith("px") ? `max(${widths[at][1]}, ${text.length}ch)` : widths[at][1])); // of heads
    scroller.style.setProperty("--columns", widths.map(([width], at) => `minmax(${width}px, ${whole[at]})`).join(" "));
    const width = widths.reduce((sum, [size]) => sum + size + CELL_GAP, 0);
    scroller.style.setProperty("--least-width", `${width}px`);
    fill(head, ...first.columns.map(({ head: text, kind }) => headCell(text, kind, first.sorts?.includes(text))));
    body.style.height = `${LINE_HEIGHT * first.num_rows}px`;
    await draw();
  }

  // A column that can be sorted by is a button: texts from A on, numbers from the highest.
  function headCell(text, kind, isSortable) {
    if (!isSortable) return listCell(text, kind);
    const now = sorts[open]?.head === text ? sorts[open] : null;
    const sortBy = () => {
      sorts[open] = { head: text, is_ascending: now ? !now.is_ascending : ["text", "name", "wide"].includes(kind) };
      scroller.scrollTop = 0;
      refresh();
    };
    return pushButton({ class: `rdx-cell rdx-cell-${kind}`, title: `Sort by ${visible(text)}`, "aria-pressed": Boolean(now) }, sortBy, visible(text), now && (now.is_ascending ? " ▲" : " ▼"));
  }

  // The rows in sight, and a few more.
  async function draw() {
    if (!known) return;
    const { num_rows: num } = known;
    if (!num) {
      fill(body, element("li", {}, sentence(visible(known.empty))));
      return mark();
    }
    const from = Math.max(Math.floor(scroller.scrollTop / LINE_HEIGHT) - 4, 0);
    const to = Math.min(from + Math.ceil(scroller.clientHeight / LINE_HEIGHT) + 8, num);
    const of = pages;
    const starts = [...new Set([from, Math.max(to - 1, 0)].map((at) => at - (at % PAGE_ROWS)))];
    const parts = await Promise.all(starts.map(pageOf)).catch(() => null);
    if (!parts || of !== pages) return;
    const inFocus = body.contains(document.activeElement) ? Number(focused().dataset.row) : null;
    const rows = [];
    for (let at = from; at < to; at += 1) rows.push(listRow(parts[starts.indexOf(at - (at % PAGE_ROWS))], at));
    fill(body, ...rows);
    mark();
    if (inFocus !== null) body.querySelector(`[data-row="${inFocus}"]`)?.focus({ preventScroll: true });
  }

  function mark() {
    const now = reached[open] ?? -1;
    for (const button of body.querySelectorAll("button")) {
      button.setAttribute("aria-current", Number(button.dataset.row) === now);
      button.tabIndex = Number(button.dataset.row) === Math.max(now, 0) ? 0 : -1;
    }
    fill(note, ...prose(known?.notes?.[Math.max(now, 0)] ?? ""));
    note.hidden = !note.textContent;
    const rows = known?.num_rows ? body.offsetHeight : body.scrollHeight;
    const height = [caption, head, note].reduce((sum, part) => sum + part.offsetHeight, rows);
    if (known) panel.style.setProperty("--fits", `${height + 6}px`);
  }

  function choose(name) {
    const isSame = name === open && known;
    open = name;
    tabs.mark(name);
    panel.setAttribute("aria-label", `List: ${LISTS[name]}`);
    scroller.className = `rdx-list rdx-list-${name}`;
    if (isSame) return draw();
    [pages, known] = [new Map(), null];
    fill(body);
    fill(head);
    caption.textContent = note.textContent = "";
    scroller.scrollTop = 0;
    return load();
  }

  // Open it at a list, or close it.
  function show(name) {
    node.toggleAttribute("data-open", Boolean(name));
    if (name) choose(name);
  }

  function toggle(isShown, name = open) {
    show(isShown ? name : null);
    onToggle(isShown ? name : null);
  }

  // Go to a row, and keep it in sight.
  async function jump(at) {
    const page = await pageOf(at - (at % PAGE_ROWS)).catch(() => null);
    if (!page || at >= page.num_rows) return;
    if (!known?.num_rows) known = page;
    reached[open] = at;
    const top = at * LINE_HEIGHT;
    const room = scroller.clientHeight - head.offsetHeight - LINE_HEIGHT;
    if (top < scroller.scrollTop || top > scroller.scrollTop + room) scroller.scrollTop = Math.max(top - room / 2, 0);
    await draw();
    const own = at % PAGE_ROWS;
    onRow({ place: page.places?.[own], condition: page.conditions?.[own], finding: page.findings?.[own], at });
  }

  // The next row of the list; the first one after the last.
  const next = async () => {
    const { num_rows: num } = await pageOf(0).catch(() => ({ num_rows: 0 }));
    if (num) await jump(((reached[open] ?? -1) + 1) % num);
  };

  // The lists that there are, in order; a closed drawer opens at the first one.
  function offer(names) {
    if (!isOpen() && (!known || !names.includes(open))) open = names[0];
    tabs.offer(names);
    tabs.mark(open);
  }

  tabs.mark(open);
  body.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (button) jump(Number(button.dataset.row));
  });
  body.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || !known) return;
    event.preventDefault();
    event.stopPropagation();
    const at = clamp(Number(focused().dataset.row) + step, 0, known.num_rows - 1);
    jump(at).then(() => body.querySelector(`[data-row="${at}"]`)?.focus({ preventScroll: true }));
  });
  scroller.addEventListener("scroll", draw, { passive: true });
  const follow = new ResizeObserver(draw);
  follow.observe(scroller);
  return {
    node,
    refresh,
    renew,
    next,
    show,
    toggle,
    offer,
    isOpen,
    open: () => (isOpen() ? open : null),
    reach: (name, at) => {
      reached[name] = at;
      if (name === open) mark();
    },
    close: () => follow.disconnect(),
  };
}

// The mean score of a domain on a bar from 0 to 1, and its interval.
function scoreItem({ name, mean, low, high, num }) {
  const [bar, reach] = ["rdx-bar", "rdx-bar-reach"].map((look) => element("span", { class: look }));
  bar.style.width = `${100 * mean}%`;
  reach.style.cssText = `left: ${100 * low}%; width: ${100 * (high - low)}%`;
  const title = `${visible(name)}: mean score ${number(mean)} of ${num}, 95 % interval ${number(low)} to ${number(high)} (Wilson)`;
  return element("li", { title }, element("b", {}, visible(name)), element("span", { class: "rdx-mean-bar" }, bar, reach), `${mean.toFixed(2)} `, element("span", { class: "rdx-note" }, element("span", { class: "rdx-score-reach" }, `${low.toFixed(2)} to ${high.toFixed(2)} `), `of ${num}`));
}

function noteRows(notes, known) {
  const column = (head, kind, values) => ({ head, kind, values });
  return {
    num_rows: notes.length,
    caption: notes.length ? "kept in the state: explorer.state[\"notes\"] in Python" : "",
    empty: "No note yet: write one (N) on a token, a round or a sample.",
    columns: [column("note", "wide", notes.map(({ text }) => text)), column("place", "text", notes.map((note) => addressOf(note, known)))],
    places: notes.map(({ text: _, ...place }) => place),
  };
}

function listRow({ columns }, at) {
  const own = at % PAGE_ROWS;
  const cells = columns.map((column) => listCell(column.values[own], column.kind, textsOf(column)?.[own]));
  const button = element("button", { type: "button", "data-row": at }, ...cells);
  const node = element("li", {}, button);
  node.style.top = `${at * LINE_HEIGHT}px`;
  return node;
}

// Of all rows of a reply, which are numbers.
function textsOf(column) {
  const format = CELL_TEXTS[column.kind];
  column.texts ??= format ? alignDecimals(Array.from(column.values, format)) : null;
  return column.texts;
}

function listCell(value, kind, text = String(value)) {
  const name = `rdx-cell rdx-cell-${kind}`;
  if (kind === "piece" && Array.isArray(value)) {
    const [before, piece, after] = value.map(visible);
    return element("span", { class: name, title: before + piece + after }, before, element("b", {}, piece || "‥"), after);
  }
  if (typeof value === "string") return element("span", { class: name, title: visible(value) }, visible(value));
  const side = kind === "change" && value > 0 ? " rdx-worse" : kind === "signed" ? { 1: " rdx-more-text", "-1": " rdx-less-text" }[Math.sign(value)] ?? "" : "";
  return element("span", { class: name + side }, kind === "share" ? `${text} %` : text);
}
