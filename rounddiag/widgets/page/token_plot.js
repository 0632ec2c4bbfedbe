// The tokens of a sample as a figure, with a line at the current one.

function tokenPlot({ library, onToken, onPlot }) {
  const line = element("div", { class: "rdx-here", hidden: true });
  const view = figureView({
    library,
    label: "Tokens",
    onDrawn: redraw,
  });
  const found = shape("path", { class: "rdx-found-marks" });
  view.body.append(line, shape("svg", { class: "rdx-overlay", "aria-hidden": "true" }, found));
  const scope = radioRow("Tokens of", (value) => onPlot({ scope: value }));
  const logProbs = checkRow("Panels", (_, isOn) => onPlot({ log_probs: isOn }));
  view.node.prepend(element("div", { class: "rdx-plot-choices" }, scope.node, logProbs.node));
  const hand = pointing(view, { onClick: ({ x }) => nearest(x) });
  let [trajectory, current, marks] = [null, null, { round: [], token: [] }];

  // The x value of a token.
  const placeOf = ({ round, token }) => {
    const { rounds, starts } = view.meta();
    return starts[rounds.indexOf(round)] + token;
  };

  function nearest(x) {
    const { rounds, starts } = view.meta();
    if (!rounds.length) return;
    const after = starts.findIndex((start) => start - 0.5 > x);
    const index = Math.max((after < 0 ? starts.length : after) - 1, 0);
    const { num_tokens: size } = roundOf(trajectory, rounds[index]);
    onToken(rounds[index], clamp(Math.round(x - starts[index]), 0, size - 1));
  }

  // A stroke above each token of the finding.
  function drawMarks(x) {
    const top = view.axis("yaxis")?.from;
    const isThere = x && view.meta()?.rounds;
    const pixels = isThere ? Array.from(marks.round, (round, at) => x.pixel(placeOf({ round, token: marks.token[at] }))) : [];
    const wide = isThere ? Math.max(x.pixel(1) - x.pixel(0), 1.5) : 0;
    const inside = pixels.filter((at) => at >= x.from && at <= x.to);
    found.setAttribute("d", inside.map((at) => `M${(at - wide / 2).toFixed(1)} ${top + 1.5}h${wide.toFixed(1)}`).join(""));
  }

  function redraw() {
    drawMarks(view.axis("xaxis"));
    placeLine();
  }

  function placeLine() {
    const x = view.axis("xaxis");
    const place = current && view.meta()?.rounds && x ? placeOf(current) : NaN;
    line.hidden = Number.isNaN(place) || x.pixel(place) < x.from || x.pixel(place) > x.to;
    if (line.hidden) return;
    const [top, bottom] = [view.axis("yaxis").from, view.axis("yaxis").to];
    // Moved without a new layout.
    Object.assign(line.style, { transform: `translate(${x.pixel(place)}px, ${top}px)`, height: `${bottom - top}px` });
  }

  return {
    node: view.node,
    view,
    show: async (newTrajectory, axes, only, place, state) => {
      [trajectory, current] = [newTrajectory, place];
      scope.set(SCOPES, plotsRound(trajectory, state) ? "round" : "sample");
      logProbs.set([["log_probs", "log-probs", "both log-probs under their difference"]], { log_probs: state.log_probs });
      await view.draw(tokenFigure(axes, trajectory, only));
    },
    setMarks: (newMarks) => {
      marks = newMarks;
      redraw();
    },
    mark: (place) => {
      current = place;
      placeLine();
    },
    close: () => {
      hand.close();
      view.close();
    },
  };
}

const SCOPES = [
  ["round", "one round", "the tokens of the current round"],
  ["sample", "all", "the tokens of all rounds"],
];
const MANY_TOKENS = 1000; // more are plotted round by round

function plotsRound({ num_tokens: size }, { scope }) {
  return scope === "auto" ? size > MANY_TOKENS : scope === "round";
}
