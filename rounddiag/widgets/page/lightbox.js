// The screenshot as large as the window is, over everything.

function lightbox({ onToggle, onWanted }) {
  const stage = element("div", { class: "rdx-stage" });
  const caption = element("div", { class: "rdx-stage-caption" });
  const swap = element(
    "button",
    {
      type: "button",
      class: "rdx-button",
      "aria-pressed": "false",
      on: { click: () => draw(swap.getAttribute("aria-pressed") !== "true") },
    },
    "Round before",
  );
  const close = element(
    "button",
    { type: "button", class: "rdx-button", on: { click: () => toggle(false) } },
    "Close",
  );
  const bar = element("div", { class: "rdx-stage-bar" }, caption, swap, close);
  const node = element(
    "dialog",
    { class: "rdx-large", "aria-label": "Screenshot, large" },
    bar,
    stage,
  );
  let [views, picture] = [null, null];

  function show(newViews) {
    const isOther = views?.current?.round !== newViews.current?.round;
    views = newViews;
    if (node.open) draw(!isOther && swap.getAttribute("aria-pressed") === "true");
  }

  // Swapped in its place, so that the eye sees what changed.
  function draw(isBefore) {
    const view = isBefore ? views.before : views.current;
    swap.setAttribute("aria-pressed", String(isBefore));
    swap.hidden = !views.before?.shot;
    picture?.free();
    picture = view?.shot
      ? pictureOf(view.shot, view.round.action, { alt: screenName(view) })
      : null;
    fill(stage, picture?.node ?? sentence("No screenshot was seen before this round."));
    fill(caption, ...(view?.shot ? screenCaption(view) : []));
    if (view?.shot) onWanted(view.shot);
  }

  function toggle(isOpen) {
    if (isOpen === node.open || (isOpen && !views)) return;
    if (!isOpen) return node.close();
    node.showModal();
    draw(false);
    onToggle(true);
  }

  node.addEventListener("close", () => onToggle(false));
  node.addEventListener("click", (event) => {
    if (event.target === node || event.target === stage) toggle(false);
  });
  return { node, show, toggle, isOpen: () => node.open, free: () => picture?.free() };
}
