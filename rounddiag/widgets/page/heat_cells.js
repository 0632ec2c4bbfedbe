// The cells of the heatmap: click one, draw a box over many, see which are chosen.
function heatCells(view, { onCell, onBox }) {
  const current = element("div", { class: "rdx-cell-now", hidden: true });
  const box = element("div", { class: "rdx-cell-box", hidden: true });
  view.node.append(current, box);
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

  function placeCells(node, samples, [first, last]) {
    const { samples: all, pool } = view.meta();
    const rows = samples.map((one) => all.indexOf(one)).filter((at) => at >= 0);
    node.hidden = !rows.length;
    if (node.hidden) return;
    const [x, y] = [view.axis("xaxis"), view.axis("yaxis")];
    const [top, bottom] = [firstOf(Math.min(...rows)), firstOf(Math.max(...rows))];
    placeBox(
      node,
      [x.pixel(first - 0.5), x.pixel(last + 0.5)],
      [y.pixel(top - 0.5), y.pixel(bottom + pool - 0.5)],
    );
  }

  function redraw() {
    current.hidden = box.hidden = true;
    if (!view.axis("yaxis") || !view.meta()) return;
    const { sample, round } = chosen.current ?? {};
    placeCells(current, sample === undefined ? [] : [sample], [round, round]);
    placeCells(box, chosen.cells?.samples ?? [], chosen.cells?.rounds ?? []);
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
