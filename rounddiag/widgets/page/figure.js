// A plotly figure that follows its box, and says what was clicked or zoomed.
const CONFIG = { displaylogo: false, responsive: false };
const TEXT = new TextDecoder();

// Until something is drawn it has a height; what is drawn later is pale before it is.
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

  // Where a value of an axis stands in pixels of the node, and back.
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
