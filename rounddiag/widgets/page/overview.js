// @ts-check
// The overview: rounds and heatmap. Cells are clicked, or several are dragged over; a
// selection has several boxes where its samples are not adjacent in the order.
function heatCells(view, { onCell, onBox, onRest }) {
  const current = element("div", { class: "rdx-cell-now", hidden: true });
  const box = element("div", { class: "rdx-cell-box", hidden: true });
  const cursor = element("div", { class: "rdx-cell-box rdx-cell-cursor", hidden: true });
  const boxes = element("div", {});
  const inFile = element("div", {}); // of a report, at the left edge of its samples
  const bands = element("div", { class: "rdx-bands", hidden: true }); // what `by` says of rows
  view.body.append(inFile, bands, current, box, boxes, cursor);
  let chosen = { current: null, cells: null };
  let stored = [];
  let [at, anchor] = [null, null]; // row and round of the cursor, and of a box's start
  let isMoved = false; // to a cell that was not drawn yet

  // There may be a sentence instead of cells.
  const onCells = (act) => (...places) => view.meta()?.samples && act(...places);
  const hand = watchPointer(view, {
    onClick: onCells((at) => onCell(samplesOf(row(at), row(at)), Math.round(at.x))),
    onRest: onCells((at) => onRest(samplesOf(row(at), row(at)), Math.round(at.x))),
    onStretch: onCells((from, to) => placeBox(box, [from.across, to.across], [from.down, to.down])),
    onBox: onCells((from, to) => {
      const [top, bottom] = ascending(row(from), row(to));
      const [first, last] = ascending(Math.round(from.x), Math.round(to.x));
      onBox({ samples: samplesOf(top, bottom), rounds: [Math.max(first, 0), last] });
    }),
  });

  const row = ({ y }) => Math.round(y);
  const ascending = (first, other) => [Math.min(first, other), Math.max(first, other)];

  // The y axis counts samples; several samples can share a row.
  const firstOf = (at) => Math.floor(Math.max(at, 0) / view.meta().pool) * view.meta().pool;

  function samplesOf(top, bottom) {
    const { samples, pool } = view.meta();
    return samples.slice(firstOf(top), firstOf(bottom) + pool);
  }

  // The ranges of adjacent rows of some samples: from the first row to past the last.
  function runsOf(samples) {
    const { samples: all, pool } = view.meta();
    const wanted = new Set(samples);
    const places = all.flatMap((sample, at) => (wanted.has(sample) ? [firstOf(at)] : []));
    const rows = [...new Set(places)];
    const ends = rows.filter((at, index) => rows[index + 1] !== at + pool);
    return rows
      .filter((at, index) => rows[index - 1] !== at - pool)
      .map((start, index) => [start, ends[index] + pool]);
  }

  /** @param {any} node
   * @param {number[]} run
   * @param {number[]} rounds */
  function placeCells(node, [start, stop], [first, last]) {
    const [x, y] = [view.axis("xaxis"), view.axis("yaxis")];
    const across = [x.pixel(first - 0.5), x.pixel(last + 0.5)];
    placeBox(node, across, [y.pixel(start - 0.5), y.pixel(stop - 0.5)]);
    return node;
  }

  // Arrows move the cursor, Enter goes to its cell, Shift and arrows select a box.
  view.node.tabIndex = 0;
  view.node.setAttribute("aria-description", "Arrow keys move over cells, Enter goes to one, Shift and arrow keys select several.");
  view.node.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const { samples, pool } = view.meta() ?? {};
    if (!samples || (!step && !(event.key === "Enter" && at))) return;
    event.preventDefault();
    event.stopPropagation();
    if (!step) return void onCell(samplesOf(at.row * pool, at.row * pool), at.round);
    const [low, high] = view.range();
    const { sample, round } = chosen.current ?? { sample: samples[0], round: 0 };
    at ??= { row: Math.floor(Math.max(samples.indexOf(sample), 0) / pool), round };
    anchor = event.shiftKey ? anchor ?? at : null;
    at = {
      row: clamp(at.row + step[0], 0, Math.ceil(samples.length / pool) - 1),
      round: clamp(at.round + step[1], Math.max(Math.ceil(low), 0), Math.floor(high)),
    };
    drawCursor();
    reveal(view.node, cursor);
    if (!anchor) return;
    const [top, bottom] = ascending(anchor.row * pool, at.row * pool);
    onBox({ samples: samplesOf(top, bottom), rounds: ascending(anchor.round, at.round) });
  });
  view.node.addEventListener("blur", () => {
    [at, anchor, cursor.hidden] = [null, null, true];
  });

  function drawCursor() {
    const { pool } = view.meta() ?? {};
    cursor.hidden = !at;
    if (at) placeCells(cursor, [at.row * pool, (at.row + 1) * pool], [at.round, at.round]);
  }

  function redraw() {
    current.hidden = box.hidden = bands.hidden = true;
    fill(boxes);
    fill(inFile);
    if (!view.axis("yaxis") || !view.meta()?.samples) return;
    const { sample, round } = chosen.current ?? {};
    for (const run of runsOf([sample])) placeCells(current, run, [round, round]);
    const { samples = [], rounds } = chosen.cells ?? {};
    fill(boxes, runsOf(samples).map((run) => placeCells(element("div", { class: "rdx-cell-box" }), run, rounds)));
    fill(inFile, runsOf(stored).map((run) => placeEdge(element("div", { class: "rdx-in-file" }), run)));
    drawBands();
    drawCursor();
    if (isMoved && !current.hidden) reveal(view.node, current);
    isMoved &&= current.hidden;
  }

  /** @param {any} node
   * @param {number[]} run */
  function placeEdge(node, [start, stop]) {
    const [x, y] = [view.axis("xaxis"), view.axis("yaxis")];
    placeBox(node, [x.from - 5, x.from - 1], [y.pixel(start - 0.5), y.pixel(stop - 0.5)]);
    return node;
  }

  // One gradient without blends: many rows would be many elements.
  function drawBands() {
    const { samples, pool, bands: colors } = view.meta();
    if (!colors) return;
    const num = Math.ceil(samples.length / pool);
    const stops = Array.from({ length: num }, (_, at) => `${colors[samples[at * pool]] ?? "transparent"} 0 ${(100 * (at + 1)) / num}%`);
    bands.style.backgroundImage = `linear-gradient(${stops.join()})`;
    placeEdge(bands, [0, num * pool]);
  }

  return {
    redraw,
    markFile: (samples = []) => (stored = samples),
    show: (newCurrent, cells) => {
      const { sample, round } = chosen.current ?? {};
      const isOther = sample !== newCurrent.sample || round !== newCurrent.round;
      if (!isOther && cells === chosen.cells) return;
      isMoved ||= isOther;
      chosen = { current: newCurrent, cells };
      redraw();
    },
    close: hand.close,
  };
}

/** Place a box, given by two corners in any order.
 * @param {any} node
 * @param {number[]} across
 * @param {number[]} down */
function placeBox(node, [left, right], [top, bottom]) {
  Object.assign(node.style, {
    left: `${Math.min(left, right)}px`,
    top: `${Math.min(top, bottom)}px`,
    width: `${Math.abs(right - left)}px`,
    height: `${Math.abs(bottom - top)}px`,
  });
  node.hidden = false;
}

const AROUND_ROWS = 60; // pixels: colour bar and axis
const HIGHEST_ROW = 64; // pixels: a few samples are rows, not areas
const MOST_ROWS = 80; // pixels of all rows at least: the axis below them stays in sight

// Which value: the mean of each value of `by`, the largest first; a click filters by it,
// where there is a Python that can.
function groupBars(onValue) {
  const list = element("ol", {});
  const title = element("p", { class: "rdx-note" });
  const node = element("section", { class: "rdx-groups", "aria-label": "Means by value", hidden: true }, title, list);
  walkWithArrows(list, () => [...list.querySelectorAll("button")], () => {});

  function show(groups, { by, metric, filter }) {
    node.hidden = !groups?.rows.length;
    if (node.hidden) return;
    const scale = barScale(groups.rows);
    const now = JSON.stringify(filter[by]);
    const rest = groups.num_rows - groups.rows.length;
    const values = `${pluralize(groups.num_rows, "value")}, the largest first`;
    title.textContent = `mean ${{ abs_diff: "|diff|", action: "round_length" }[metric] ?? metric} by ${visible(by)}, logarithmic: ${values}${rest ? `; ${rest} smaller ones are not shown` : ""}${onValue ? "; a click filters" : ""}`;
    const means = alignDecimals(groups.rows.map(({ mean }) => number(mean)));
    fill(list, groups.rows.map((row, at) => {
      const isNow = JSON.stringify(row.condition) === now;
      const parts = [element("span", {}, visible(row.text)), meanBar(row, scale), element("span", {}, means[at])];
      const look = { class: "rdx-group", title: valueTitle(row) };
      if (!onValue) return element("li", {}, element("div", look, ...parts));
      const attributes = { ...look, "aria-pressed": String(isNow) };
      return element("li", {}, pushButton(attributes, () => onValue(by, isNow ? null : row.condition), ...parts));
    }));
  }

  return { node, show };
}

// The overview: means per round, and under them the heatmap of samples and rounds.
function overviewPane({ library, onCell, onBox, onRest, onRounds, onValue }) {
  let state = null;
  const rounds = figureView({
    library,
    label: "Rounds",
    onZoom: (range) => onRounds(wholeRounds(range)),
    onDrawn: () => markRounds(),
  });
  const band = element("div", { class: "rdx-rounds-kept", hidden: true });
  rounds.body.append(band);
  const heatmap = figureView({
    library,
    label: "Samples",
    minHeight: ({ meta }) => (meta?.samples ? Math.min(meta.samples.length / meta.pool, MOST_ROWS) + AROUND_ROWS : 0),
    maxHeight: ({ meta }) => (meta?.samples ? (1 + meta.samples.length) * HIGHEST_ROW + AROUND_ROWS : Infinity),
    onDrawn: () => cells.redraw(),
  });
  const cells = heatCells(heatmap, { onCell, onBox, onRest });
  const hand = watchPointer(rounds, {
    onClick: ({ x }) => onRounds([Math.round(x), Math.round(x)]),
    onDouble: () => onRounds(null),
  });
  const note = element("p", { class: "rdx-note" });
  const groups = groupBars(onValue);
  const parts = [groups.node, rounds.node, note, heatmap.node];
  const node = element("div", { class: "rdx-overview" }, ...parts);

  async function show(answer) {
    state = answer.state;
    note.textContent = answer.note;
    groups.show(answer.groups, state);
    await Promise.all([
      rounds.draw(parseJson(answer.figures.rounds)),
      heatmap.draw(parseJson(answer.figures.heatmap), { dragmode: false }),
    ]);
    mark(state);
  }

  function mark(newState) {
    state = newState;
    cells.show(state.current, state.cells);
  }

  // Mark the rounds that the filter keeps.
  function markRounds() {
    const [x, y] = [rounds.axis("xaxis"), rounds.axis("yaxis")];
    const range = state?.filter.round;
    band.hidden = !range || !x || !y;
    if (band.hidden) return;
    const { from, to } = Array.isArray(range) ? { from: Math.min(...range), to: Math.max(...range) } : range;
    const across = [(from ?? -1e6) - 0.5, (to ?? 1e6) + 0.5].map(x.pixel);
    placeBox(band, across.map((at) => clamp(at, x.from, x.to)), [y.from, y.to]);
  }

  // All samples, in heatmap order.
  const samples = () => heatmap.meta()?.samples ?? [];

  return {
    node,
    show,
    showRounds: (figure) => rounds.draw(parseJson(figure)),
    mark,
    samples,
    markFile: cells.markFile,
    figures: [rounds, heatmap],
    close: () => [hand, cells, rounds, heatmap].forEach((part) => part.close()),
  };
}

// The rounds within a range of the axis, or the nearest one.
function wholeRounds([low, high]) {
  const [first, last] = [Math.max(Math.ceil(low), 0), Math.floor(high)];
  return first <= last ? [first, last] : [Math.round(low), Math.round(low)];
}
