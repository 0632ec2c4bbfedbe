// The cells of the heatmap: click one, draw a box over many, see which are chosen. What
// is chosen are several boxes where the samples are no neighbours in the order.
function heatCells(view, { onCell, onBox }) {
  const current = element("div", { class: "rdx-cell-now", hidden: true });
  const box = element("div", { class: "rdx-cell-box", hidden: true });
  const boxes = element("div", {});
  view.node.append(current, box, boxes);
  let chosen = { current: null, cells: null };

  const hand = pointing(view, {
    onClick: (at) => view.meta() && onCell(samplesOf(row(at), row(at)), Math.round(at.x)),
    onStretch: (from, to) => view.meta() && placeBox(box, [from.across, to.across], [from.down, to.down]),
    onBox: (from, to) => {
      if (!view.meta()) return; // a sentence instead of cells
      const [top, bottom] = ascending(row(from), row(to));
      const [first, last] = ascending(Math.round(from.x), Math.round(to.x));
      onBox({ samples: samplesOf(top, bottom), rounds: [Math.max(first, 0), last] });
    },
  });

  const row = ({ y }) => Math.round(y);
  const ascending = (one, other) => [Math.min(one, other), Math.max(one, other)];

  // The y axis counts samples; those of a pool share a row.
  const firstOf = (at) => Math.floor(Math.max(at, 0) / view.meta().pool) * view.meta().pool;

  function samplesOf(top, bottom) {
    const { samples, pool } = view.meta();
    return samples.slice(firstOf(top), firstOf(bottom) + pool);
  }

  // Where rows of samples stand: neighbours together, from the first up to the next one.
  function runsOf(samples) {
    const { samples: all, pool } = view.meta();
    const wanted = new Set(samples);
    const places = all.flatMap((one, at) => (wanted.has(one) ? [firstOf(at)] : []));
    const rows = [...new Set(places)];
    const ends = rows.filter((at, index) => rows[index + 1] !== at + pool);
    return rows
      .filter((at, index) => rows[index - 1] !== at - pool)
      .map((start, index) => [start, ends[index] + pool]);
  }

  function placeCells(node, [start, stop], [first, last]) {
    const [x, y] = [view.axis("xaxis"), view.axis("yaxis")];
    const across = [x.pixel(first - 0.5), x.pixel(last + 0.5)];
    placeBox(node, across, [y.pixel(start - 0.5), y.pixel(stop - 0.5)]);
    return node;
  }

  function redraw() {
    current.hidden = box.hidden = true;
    fill(boxes);
    if (!view.axis("yaxis") || !view.meta()) return;
    const { sample, round } = chosen.current ?? {};
    for (const run of runsOf([sample])) placeCells(current, run, [round, round]);
    const { samples = [], rounds } = chosen.cells ?? {};
    const made = () => element("div", { class: "rdx-cell-box" });
    fill(boxes, ...runsOf(samples).map((run) => placeCells(made(), run, rounds)));
  }

  return {
    redraw,
    show: (current, cells) => {
      chosen = { current, cells };
      redraw();
    },
    close: hand.close,
  };
}

// Pixels of the box around, in any order.
function placeBox(node, [left, right], [top, bottom]) {
  Object.assign(node.style, {
    left: `${Math.min(left, right)}px`,
    top: `${Math.min(top, bottom)}px`,
    width: `${Math.abs(right - left)}px`,
    height: `${Math.abs(bottom - top)}px`,
  });
  node.hidden = false;
}
