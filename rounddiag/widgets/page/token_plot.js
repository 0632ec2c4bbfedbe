// @ts-check
// The token plot. Python draws its axes, with a single token; the page, which has all
// tokens of the sample, puts them in. A line is at the current token.
const MOST_DRAWN = 4000; // of more tokens, the extremes of each stretch are drawn
const STRETCHES = 1300;
const GAP_SHARE = [0.012, 0.5]; // of an observation, and of all, of the tokens
const STEM = 0.6; // tokens wide, within shares of the width of the plot
const STEM_SHARES = [1 / 400, 6 / 400];
const TICKS_OF_ROUND = { tickmode: "auto", tickvals: null, ticktext: null, nticks: 6 };
const TICK_SHARE = 0.05; // of the width, between the labels of two rounds

function tokenPlot({ library, onToken, onPlot }) {
  const line = element("div", { class: "rdx-here", hidden: true });
  const view = figureView({
    library,
    label: "Tokens",
    onDrawn: redraw,
  });
  const strokesOfFinding = shape("path", { class: "rdx-found-marks" });
  view.body.append(line, shape("svg", { class: "rdx-overlay", "aria-hidden": "true" }, strokesOfFinding));
  const scope = radioRow("Tokens of", (value) => onPlot({ scope: value }));
  const logProbs = checkRow("Panels", (_, isOn) => onPlot({ log_probs: isOn }));
  view.node.prepend(element("div", { class: "rdx-plot-choices" }, scope.node, logProbs.node));
  const hand = watchPointer(view, { onClick: ({ x }) => nearest(x) });
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
    strokesOfFinding.setAttribute("d", inside.map((at) => `M${(at - wide / 2).toFixed(1)} ${top + 1.5}h${wide.toFixed(1)}`).join(""));
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
    show: async (newTrajectory, axes, only, place, state, kept) => {
      [trajectory, current] = [newTrajectory, place];
      scope.set(SCOPES, plotsRound(trajectory, state) ? "round" : "sample");
      logProbs.node.hidden = Boolean(trajectory.lacks);
      logProbs.set([["log_probs", "log-probs", "both log-probs under their difference"]], { log_probs: state.log_probs });
      await view.draw(tokenFigure(axes, trajectory, only, kept, kept && getComputedStyle(view.node).getPropertyValue("--grid")));
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

/** `axes` is changed; `only` is the round to draw, or null for all. Stems of tokens that
 * the filter drops, if there is one, are `dim`. */
function tokenFigure({ data, layout }, trajectory, only, kept = null, dim = "") {
  const { surprise } = trajectory.tokens; // of one engine, where two cannot be compared
  const tokens = surprise ? { ...trajectory.tokens, diff: surprise } : trajectory.tokens;
  if (!trajectory.num_tokens) return { data: [], layout: withoutTokens(layout) };
  const rounds = trajectory.rounds.filter(({ round }) => only === null || round === only);
  const { starts, indices, places } = tokenPlaces(rounds);
  const drawn = keepExtremes(tokens, rounds, indices);
  const [index, x] = [indices, places].map((all) => drawn.map((at) => all[at]));
  const [more, less, undefinedOnes, ...others] = data;
  const isFinite = index.map((at) => Number.isFinite(tokens.diff[at]));
  const pick = (keeps) => index.flatMap((at, place) => (keeps(tokens.diff[at], place) ? [place] : []));
  const [low, high] = [places[0] ?? 0, places.at(-1) ?? 0];
  const [narrow, wide] = STEM_SHARES.map((share) => share * (high - low + 2));
  const half = clamp(STEM, narrow, wide) / 2;
  // One area with no height between stems: plotly makes an element of each separate line.
  const dropped = { ...more, line: { color: dim } };
  const isKept = (place) => !kept || kept[index[place]];
  for (const [trace, keeps] of [
    [more, (diff, place) => isKept(place) && diff > 0],
    [less, (diff, place) => isKept(place) && diff < 0],
    [dropped, (_, place) => !isKept(place)],
  ]) {
    const own = pick((diff, place) => isFinite[place] && keeps(diff, place));
    trace.x = own.flatMap((at) => [x[at] - half, x[at] - half, x[at] + half, x[at] + half]);
    trace.y = own.flatMap((at) => [0, tokens.diff[index[at]], tokens.diff[index[at]], 0]);
    Object.assign(trace, { fill: "tozeroy", fillcolor: trace.line.color, line: { width: 0, simplify: false } });
  }
  undefinedOnes.x = pick((_, place) => !isFinite[place]).map((at) => x[at]);
  undefinedOnes.y = undefinedOnes.x.map(() => 0);
  const hover = others.pop();
  others.forEach((trace, at) => Object.assign(trace, strokes(x, index, tokens, at ? tokens.a : tokens.b)));
  hover.x = x;
  hover.y = index.map((at) => (Number.isFinite(tokens.diff[at]) ? tokens.diff[at] : 0));
  hover.text = index.map((at) => plainInPlotly(visible(tokens.piece[at])));
  const first = new Map(rounds.map((round) => [round.round, round.first]));
  hover.customdata = index.map((at) => {
    const round = tokens.round[at];
    return [tokens.diff[at], tokens.a[at], tokens.b[at], round, at - first.get(round), tokens.position[at]];
  });
  Object.assign(layout.xaxis, { range: [low - 1, high + 1] }, only === null ? roundTicks(rounds, starts, high - low + 2) : TICKS_OF_ROUND);
  layout.shapes = starts.map((start, at) => ({ ...layout.shapes[0], x0: start - 0.5, x1: start + rounds[at].num_tokens - 0.5 }));
  if (kept) data.unshift(dropped);
  for (const note of layout.annotations ?? []) if (note.text === "round" && only !== null) note.text = "token";
  const title = `Sample ${trajectory.sample}, token by token`;
  layout.meta = { ...layout.meta, title, rounds: rounds.map(({ round }) => round), starts };
  if (x.length < places.length) {
    const note = `drawn: ${groupDigits(x.length)} of ${pluralize(places.length, "token")}, extremes of diff kept; one round has them all`;
    layout.meta.notes = [...layout.meta.notes, note];
  }
  return { data, layout };
}

function withoutTokens(layout) {
  const note = { text: "no generated tokens: the response mask is 0", showarrow: false };
  const axes = { xaxis: { visible: false }, yaxis: { visible: false }, yaxis2: { visible: false } };
  return { ...layout, ...axes, meta: { ...layout.meta, rounds: [], starts: [] }, shapes: [], annotations: [note] };
}

// Tokens side by side, with a gap between rounds; a single round begins at 0.
function tokenPlaces(rounds) {
  const size = rounds.reduce((sum, one) => sum + one.num_tokens, 0);
  const [each, all] = GAP_SHARE;
  const gap = Math.max(1, Math.round(Math.min(each, all / rounds.length) * size));
  const [starts, indices, places] = [[], [], []];
  for (const { first, num_tokens: num } of rounds) {
    starts.push((places.at(-1) ?? -1) + 1 + (places.length ? gap : 0));
    for (let token = 0; token < num; token += 1) {
      indices.push(first + token);
      places.push(starts.at(-1) + token);
    }
  }
  return { starts, indices, places };
}

// Which of many tokens are drawn: the highest, the lowest and the first that is not
// finite of each stretch, and both ends of each round.
function keepExtremes({ diff }, rounds, indices) {
  const num = indices.length;
  if (num <= MOST_DRAWN) return indices.map((_, at) => at);
  const chosen = new Set();
  for (let stretch = 0; stretch < STRETCHES; stretch += 1) {
    const [from, to] = [stretch, stretch + 1].map((at) => Math.floor((at * num) / STRETCHES));
    let [high, low, broken] = [-1, -1, -1];
    for (let at = from; at < to; at += 1) {
      const value = diff[indices[at]];
      if (!Number.isFinite(value)) broken = broken < 0 ? at : broken;
      else {
        if (high < 0 || value > diff[indices[high]]) high = at;
        if (low < 0 || value < diff[indices[low]]) low = at;
      }
    }
    for (const at of [high, low, broken]) if (at >= 0) chosen.add(at);
  }
  let before = 0;
  for (const { num_tokens: size } of rounds) {
    chosen.add(before).add(before + size - 1);
    before += size;
  }
  return [...chosen].sort((first, second) => first - second);
}

// Lines that end where a round ends, or at a value that is not finite; they reach beyond
// their ends, so that a lone token shows.
function strokes(x, index, { round }, values) {
  const line = { x: [], y: [] };
  const add = (at, value) => {
    line.x.push(at);
    line.y.push(value);
  };
  const isEnd = (at) => !(at in index) || !Number.isFinite(values[index[at]]);
  index.forEach((token, at) => {
    if (isEnd(at)) return;
    if (isEnd(at - 1) || round[index[at - 1]] !== round[token]) add(x[at] - 0.4, values[token]);
    add(x[at], values[token]);
    if (!isEnd(at + 1) && round[index[at + 1]] === round[token]) return;
    add(x[at] + 0.4, values[token]);
    add(null, null);
  });
  return line;
}

// As many rounds as have room for their number.
function roundTicks(rounds, starts, width) {
  const chosen = [];
  starts.forEach((start, at) => {
    if (!chosen.length || start - starts[chosen.at(-1)] >= TICK_SHARE * width) chosen.push(at);
  });
  return {
    tickmode: "array",
    tickvals: chosen.map((at) => starts[at]),
    ticktext: chosen.map((at) => `<b>${rounds[at].round}</b>`),
  };
}

// Text of a file within plotly's pseudo HTML.
function plainInPlotly(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
