// The figure of a sample's tokens: Python draws the axes, with a single token, and the
// page, which has all tokens, puts them in.
const MOST_DRAWN = 4000; // of more tokens, the extremes of each stretch are drawn
const STRETCHES = 1300;
const GAP_SHARE = [0.012, 0.5]; // of an observation, and of all, of the tokens
const STEM = 0.6; // tokens wide, within shares of the width of the plot
const STEM_SHARES = [1 / 400, 6 / 400];
const TICKS_OF_ROUND = { tickmode: "auto", tickvals: null, ticktext: null, nticks: 6 };
const TICK_SHARE = 0.05; // of the width, between the labels of two rounds

/** `axes` is changed; `only` is the round to draw, or null for all. */
function tokenFigure({ data, layout }, trajectory, only) {
  const { tokens } = trajectory;
  if (!trajectory.num_tokens) return { data: [], layout: withoutTokens(layout) };
  const rounds = trajectory.rounds.filter(({ round }) => only === null || round === only);
  const { starts, indices, places } = tokenPlaces(rounds);
  const drawn = thinned(tokens, rounds, indices);
  const [index, x] = [indices, places].map((all) => drawn.map((at) => all[at]));
  const [more, less, undefinedOnes, ...others] = data;
  const isFinite = index.map((at) => Number.isFinite(tokens.diff[at]));
  const pick = (keeps) => index.flatMap((at, place) => (keeps(tokens.diff[at], place) ? [place] : []));
  const [low, high] = [places[0] ?? 0, places.at(-1) ?? 0];
  const [narrow, wide] = STEM_SHARES.map((share) => share * (high - low + 2));
  const half = clamp(STEM, narrow, wide) / 2;
  // One area with no height between stems: plotly makes an element of each separate line.
  for (const [trace, sign] of [[more, 1], [less, -1]]) {
    const own = pick((diff, place) => isFinite[place] && diff * sign > 0);
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
  const first = new Map(rounds.map((one) => [one.round, one.first]));
  hover.customdata = index.map((at) => {
    const round = tokens.round[at];
    return [tokens.diff[at], tokens.a[at], tokens.b[at], round, at - first.get(round), tokens.position[at]];
  });
  Object.assign(layout.xaxis, { range: [low - 1, high + 1] }, only === null ? roundTicks(rounds, starts, high - low + 2) : TICKS_OF_ROUND);
  layout.shapes = starts.map((start, at) => ({ ...layout.shapes[0], x0: start - 0.5, x1: start + rounds[at].num_tokens - 0.5 }));
  const title = `Sample ${trajectory.sample}, token by token`;
  layout.meta = { ...layout.meta, title, rounds: rounds.map(({ round }) => round), starts };
  if (x.length < places.length) {
    const note = `drawn: ${grouped(x.length)} of ${counted(places.length, "token")}, extremes of diff kept; one round has them all`;
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
function thinned({ diff }, rounds, indices) {
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
  return [...chosen].sort((one, other) => one - other);
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
