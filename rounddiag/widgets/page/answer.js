// @ts-check
// What a model answered when it was asked about a sample: the tokens that it would have
// written, as bars, and where it looked, as tiles on the screenshot.

/** What the answer has of a token; without an answer, the call that makes one. */
function alternativesPanel({ answer, can_ask: canAsk }, place, address) {
  if (canAsk) return [askLine(address)];
  const own = answer?.places.filter(({ round, token }) => round === place.round && token === place.token) ?? [];
  return own.map(likelyTokens);
}

function askLine(address) {
  const call = `rd.ask(batch, model, at=${JSON.stringify(visible(address))})`;
  const title = `What a model would have written here: explore(batch, answer=${call})`;
  return element("p", { class: "rdx-ask", title }, "ask ", element("code", {}, call));
}

/** The likely tokens at a place under one hypothesis, the likeliest first. */
function likelyTokens({ hypothesis, mass, text, rank, prob, is_sampled: isSampled }) {
  const listed = rank.filter((place) => place > 0 && place <= text.length).length;
  const name = hypothesis ? visible(hypothesis) : "the model";
  const head = element("h4", {}, element("span", {}, `${name} would write`), element("span", {}, `${listed} hold ${percent(mass)}`));
  const rows = text.map((piece, at) => {
    const bar = element("span", { class: "rdx-bar" });
    bar.style.width = `${100 * prob[at]}%`;
    const where = rank[at] > text.length && element("span", {}, ordinal(rank[at]));
    const shown = element("span", { class: "rdx-likely-piece", title: visible(piece) }, piece ? visibleNodes(piece) : "‥");
    const mark = element("span", isSampled[at] ? { role: "img", "aria-label": "written", title: "the token that was written" } : {}, isSampled[at] && "▸");
    return element("li", { class: isSampled[at] && "rdx-sampled" }, mark, shown, element("span", {}, percent(prob[at])), element("span", { class: "rdx-bar-room" }, bar, where));
  });
  return element("section", { class: "rdx-likely", "aria-label": `${name} would write` }, head, element("ol", {}, ...rows));
}

// As in `rounddiag.figures.sight`: the opacity of the largest drop, and the share of it
// from which on a tile has its number.
const [COVER, LEGIBLE] = [0.8, 0.1];

/** The tiles of a picture that the model saw last before a round; null without a map. */
function sightOf({ answer }, round, picture) {
  const map = answer?.maps.find((other) => other.round === round && other.picture === picture);
  return map ? { tiles: map.tiles, most: answer.most } : null;
}

/** Tiles over a picture, each as strong as its drop; one that is divided is a frame. */
function sightLayer({ tiles, most }, { width, height }) {
  const parts = tiles.map(({ x0, y0, x1, y1, drop, is_divided: isDivided }) => {
    const strength = most ? Math.abs(drop) / most : 0;
    const isLarge = strength >= LEGIBLE;
    const [left, top] = [x0 / width, y0 / height];
    const size = { width: share((x1 - x0) / width), height: share((y1 - y0) / height) };
    const tone = drop < 0 ? "rdx-tile-gain" : "rdx-tile-loss";
    const name = [tone, isLarge && "rdx-tile-large", isDivided && "rdx-tile-divided"].filter(Boolean).join(" ");
    const box = shape("rect", { x: share(left), y: share(top), ...size, class: name, "fill-opacity": isDivided ? 0 : COVER * strength });
    if (!isLarge) return { box };
    const at = { x: share((x0 + x1) / 2 / width), y: share(isDivided ? top : (y0 + y1) / 2 / height), dy: isDivided ? 11 : 4 };
    const text = shape("text", { ...at, class: x1 - x0 < width / 6 && "rdx-tile-small" });
    text.textContent = number(Number(drop.toPrecision(2)));
    return { box, text };
  });
  return shape("svg", { class: "rdx-sight", role: "img", "aria-label": sightWords(tiles) }, ...parts.map(({ box }) => box), ...parts.flatMap(({ text }) => text ?? []));
}

function sightWords(tiles) {
  const best = tiles.reduce((most, tile) => (tile.drop > most.drop ? tile : most));
  return `Sight: the largest drop is ${number(best.drop)} nat, at ${best.x0}, ${best.y0} to ${best.x1}, ${best.y1}`;
}

/** The scale of all maps of the answer, with its range. */
function sightScale({ most }) {
  const title = "Nats that the coordinates of the round, or else all its tokens, lose when a tile is shown in the picture's mean colour; one scale for all rounds of the answer";
  const end = number(Number(most.toPrecision(2)));
  return element("span", { class: "rdx-sight-scale", title }, `−${end}`, element("i", { "aria-hidden": "true" }), `${end} nat`);
}
