// @ts-check
// A plotly figure in a pane, what the mouse does in it, and the notebook's theme.

// Of JupyterLab and Voila, VS Code (whose last kind is "vscode-high-contrast-light"), and
// marimo.
function isDarkPage() {
  const { jpThemeLight, vscodeThemeKind: kind } = document.body.dataset;
  if (jpThemeLight || kind) return jpThemeLight === "false" || /dark|contrast$/.test(kind ?? "");
  return document.querySelector("html.dark, body.dark") !== null;
}

function pageTheme(onChange) {
  const read = () => (isDarkPage() ? "dark" : "light");
  let theme = read();
  const watch = new MutationObserver(() => {
    if (read() === theme) return;
    theme = read();
    onChange(theme);
  });
  const attributeFilter = ["data-jp-theme-light", "data-vscode-theme-kind", "class"];
  for (const node of [document.documentElement, document.body]) watch.observe(node, { attributeFilter });
  return { now: () => theme, close: () => watch.disconnect() };
}

// A plotly figure that fills its pane, with its notes behind an i, and reports zooms.
const CONFIG = { displaylogo: false, responsive: false, displayModeBar: false };
const LOW = 80; // pixels: plotly fails where its margins leave no room

// `minHeight` and `maxHeight` are those of a layout; where the pane is lower, it scrolls.
// The figure is dimmed while it is outdated.
/** @param {Record<string, any>} options */
function figureView({ library, label, minHeight = () => 0, maxHeight = () => Infinity, onZoom, onDrawn }) {
  const plot = element("div", { class: "rdx-plot" });
  const body = element("div", { class: "rdx-figure-body" }, plot);
  const notes = element("ul", { class: "rdx-notes" });
  const info = dropdown({ label: "i", name: `About this figure: ${label}` }, notes);
  const attributes = { class: "rdx-figure", role: "region", "aria-label": label, "data-drawing": true };
  const tip = tooltip();
  const node = element("section", attributes, body, info.node, tip.node);
  node.addEventListener("scroll", tip.hide, { passive: true });
  const still = () => delete node.dataset.drawing;
  let layout = null;

  // Null while the pane is hidden.
  function size() {
    const [width, height] = [node.clientWidth, node.clientHeight - body.offsetTop].map(Math.floor);
    return width && height ? { width, height: Math.max(Math.min(height, maxHeight(layout)), LOW, minHeight(layout)) } : null;
  }

  const follow = new ResizeObserver(() => {
    const now = layout && size();
    if (!now || (now.width === layout.width && now.height === layout.height)) return;
    Object.assign(layout, now);
    library().then((plotly) => plotly.relayout(plot, now)).then(onDrawn);
  });
  follow.observe(node);

  async function draw(figure, more = {}) {
    const plotly = await library();
    const isFirst = layout === null;
    layout = { ...figure.layout, ...more, autosize: false };
    tip.hide();
    node.style.setProperty("--panels", layout.meta?.panels ?? 1);
    Object.assign(layout, size() ?? { width: 600, height: 200 });
    fill(notes, ...(layout.meta?.notes ?? []).map((note) => element("li", {}, note)));
    // Without a zoom there is none to take back: two quick clicks would move the axes.
    const doubleClick = layout.dragmode && "reset+autosize";
    await plotly.react(plot, figure.data, layout, { ...CONFIG, doubleClick });
    if (isFirst) {
      plot.on("plotly_relayout", onRelayout);
      plot.on("plotly_hover", ({ event }) => requestAnimationFrame(() => showTip(event)));
      plot.on("plotly_unhover", tip.hide);
    }
    still();
    onDrawn?.();
  }

  // What plotly's label has, which would cover what is compared: it is laid out unseen.
  function showTip({ clientY }) {
    const lines = [...plot.querySelectorAll(".hovertext .nums")].map((text) => {
      const parts = [...text.querySelectorAll(".line")];
      return (parts.length ? parts : [text]).map((line) => line.textContent.replace(/(^|\s)-(?=\d)/g, "$1−"));
    });
    if (!lines.length || !node.offsetWidth) return;
    tip.show(inThreeLines(lines[0]), node, { ...boxOf(node), top: clientY, bottom: clientY });
  }

  function onRelayout(change) {
    onDrawn?.();
    const range = change["xaxis.range"];
    const [low, high] = range ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (low !== undefined) onZoom?.([low, high]);
  }

  // Convert between values of an axis and pixels of the node.
  function axis(name) {
    const drawn = plot._fullLayout?.[name];
    return drawn && {
      pixel: (value) => drawn._offset + drawn.l2p(value),
      value: (pixel) => drawn.p2l(pixel - drawn._offset),
      from: drawn._offset,
      to: drawn._offset + drawn._length,
    };
  }

  return {
    node,
    body,
    draw,
    wait: () => (node.dataset.drawing = ""),
    still,
    axis,
    meta: () => layout?.meta ?? null,
    range: () => plot._fullLayout?.xaxis.range ?? [0, 0],
    height: () => layout?.height ?? 300,
    picture: async (size) => (await library()).toImage(plot, { format: "png", ...size }),
    close: async () => {
      follow.disconnect();
      if (layout) (await library()).purge(plot);
    },
  };
}

const boxOf = (node) => (({ left, right }) => ({ left, right }))(node.getBoundingClientRect());

// The first line; of more than two others, all of them in two.
/** @param {string[]} lines */
function inThreeLines([first, ...others]) {
  const half = Math.ceil(others.length / 2);
  const rest = others.length > 2 ? [others.slice(0, half), others.slice(half)] : others.map((line) => [line]);
  return [first, ...rest.map((some) => some.join(" · "))];
}

// Clicks and drags in a figure, in values of its axes. plotly reports neither for all
// types of traces, and a click only after a hover.
const SLIP = 4; // pixels that a hand may slip in a click

const REST_DELAY = 60;

/** `onRest` is called where the pointer rests, which is most often before a click, and
 * not again until what it returns is there.
 * @param {any} view
 * @param {Record<string, any>} listeners */
function watchPointer(view, { onClick, onDouble = onClick, onStretch, onBox, onRest }) {
  let [from, timer, isResting, numClicks] = [null, 0, false, 0];

  function placeOf(event) {
    const [x, y] = [view.axis("xaxis"), view.axis("yaxis")];
    if (!x || !y) return null;
    const { left, top } = view.body.firstChild.getBoundingClientRect();
    const [across, down] = [event.clientX - left, event.clientY - top];
    const isIn = across >= x.from && across <= x.to && down >= y.from && down <= y.to;
    return { isIn, across, down, x: x.value(across), y: y.value(down) };
  }

  const slipped = (to) => Math.hypot(to.across - from.across, to.down - from.down) > SLIP;

  function onDown(event) {
    const place = event.button === 0 ? placeOf(event) : null;
    from = place?.isIn ? place : null;
  }

  function onMove(event) {
    const to = from && placeOf(event);
    if (to && slipped(to)) onStretch?.(from, to);
    clearTimeout(timer);
    if (onRest && !from && view.body.contains(event.target)) timer = setTimeout(rest, REST_DELAY, event);
  }

  async function rest(event) {
    if (isResting) return void (timer = setTimeout(rest, REST_DELAY, event));
    const place = placeOf(event);
    if (!place?.isIn) return;
    isResting = true;
    await onRest(place);
    isResting = false;
  }

  function onUp(event) {
    const to = from && placeOf(event);
    if (to && slipped(to)) onBox?.(from, to);
    else if (to) (numClicks > 1 ? onDouble : onClick)(to);
    from = null;
  }

  // plotly covers the page with a layer of its own during a drag.
  view.body.addEventListener("pointerdown", onDown, true);
  // To plotly, quick clicks at two places are a double click.
  view.body.addEventListener("mousedown", ({ detail }) => (numClicks = detail), true);
  addEventListener("pointermove", onMove, true);
  addEventListener("pointerup", onUp, true);
  return {
    close: () => {
      clearTimeout(timer);
      removeEventListener("pointermove", onMove, true);
      removeEventListener("pointerup", onUp, true);
    },
  };
}
