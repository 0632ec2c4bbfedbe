// The theme of the notebook, light or dark, and its changes.
function pageTheme(onChange) {
  const read = () => (document.body.dataset.jpThemeLight === "false" ? "dark" : "light");
  let theme = read();
  const watch = new MutationObserver(() => {
    if (read() === theme) return;
    theme = read();
    onChange(theme);
  });
  watch.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
  return { now: () => theme, close: () => watch.disconnect() };
}

// A plotly figure that follows the size of its box, and reports zooms.
const CONFIG = { displaylogo: false, responsive: false };
const TEXT = new TextDecoder();

// It reserves `height` before the first drawing, and is dimmed while it is outdated.
function figureView({ library, label, height = 0, onZoom, onDrawn }) {
  const plot = element("div", { class: "rdx-plot" });
  const attributes = { class: "rdx-figure", role: "group", "aria-label": label, "data-drawing": true };
  const node = element("div", attributes, plot);
  const reserve = (pixels) => (node.style.minHeight = `${pixels}px`);
  const still = () => delete node.dataset.drawing;
  reserve(height);
  let layout = null;

  const follow = new ResizeObserver(() => {
    const width = Math.floor(node.clientWidth);
    if (!layout || !width || width === layout.width) return;
    layout.width = width;
    library().then((plotly) => plotly.relayout(plot, { width })).then(onDrawn);
  });
  follow.observe(node);

  async function draw(json, more = {}) {
    const figure = JSON.parse(TEXT.decode(json));
    reserve(figure.layout.height);
    const plotly = await library();
    const isFirst = layout === null;
    layout = { ...figure.layout, ...more, width: Math.floor(node.clientWidth) || 600, autosize: false };
    await plotly.react(plot, figure.data, layout, CONFIG);
    if (isFirst) plot.on("plotly_relayout", onRelayout);
    still();
    onDrawn?.();
  }

  function onRelayout(change) {
    onDrawn?.();
    const range = change["xaxis.range"];
    const [low, high] = range ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (low !== undefined) onZoom?.([low, high]);
    if (change["xaxis.autorange"]) onZoom?.(null);
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
    draw,
    wait: () => (node.dataset.drawing = ""),
    still,
    axis,
    meta: () => layout?.meta ?? null,
    height: () => layout?.height ?? 300,
    picture: async (size) => (await library()).toImage(plot, { format: "png", ...size }),
    close: async () => {
      follow.disconnect();
      if (layout) (await library()).purge(plot);
    },
  };
}

// Clicks and drags in a figure, in values of its axes. plotly reports neither for all
// types of traces, and a click only after a hover.
const SLIP = 4; // pixels that a hand may slip in a click

function pointing(view, { onClick, onStretch, onBox }) {
  let from = null;

  function placeOf(event) {
    const [x, y] = [view.axis("xaxis"), view.axis("yaxis")];
    if (!x || !y) return null;
    const { left, top } = view.node.getBoundingClientRect();
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
  }

  function onUp(event) {
    const to = from && placeOf(event);
    if (to && slipped(to)) onBox?.(from, to);
    else if (to) onClick(to);
    from = null;
  }

  // plotly covers the page with a layer of its own during a drag.
  view.node.addEventListener("pointerdown", onDown, true);
  addEventListener("pointermove", onMove, true);
  addEventListener("pointerup", onUp, true);
  return {
    close: () => {
      removeEventListener("pointermove", onMove, true);
      removeEventListener("pointerup", onUp, true);
    },
  };
}
