// Where in a figure a hand clicks or draws a box, in the units of its axes: plotly says
// neither for all kinds of figures, and a click only after it has noticed a hover.
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

  // Plotly covers the page with a layer of its own while it is dragged in.
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
