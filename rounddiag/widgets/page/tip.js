// A few lines beside what the pointer is over.

/** A box around `inner` with a tip; `linesOf` makes it of what `indexOf` finds, if not -1. */
function pointerTip(inner, indexOf, linesOf) {
  const tip = element("div", { class: "rdx-tip", "aria-hidden": "true", hidden: true });
  const node = element("div", { class: "rdx-text-body" }, inner, tip);
  const hide = () => (tip.hidden = true);

  inner.addEventListener("pointerover", ({ target }) => {
    const index = indexOf(target);
    tip.hidden = index < 0;
    if (tip.hidden) return;
    fill(tip, ...linesOf(index));
    placeTip(tip, target.getClientRects()[0], node.getBoundingClientRect());
  });
  inner.addEventListener("pointerleave", hide);
  inner.addEventListener("scroll", hide, { passive: true });
  return { node, hide };
}

// Over it, or under it where there is no room.
function placeTip(tip, at, around) {
  if (!at) return;
  const left = Math.min(at.left - around.left, around.width - tip.offsetWidth - 4);
  const above = at.top - around.top - tip.offsetHeight - 4;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${above < 0 ? at.bottom - around.top + 4 : above}px`;
}
