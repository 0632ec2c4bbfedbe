// @ts-check
// Error banner, kernel status, dropdowns, and the dialog for tables and keys.
function errorBanner() {
  const text = element("span", {});
  const close = pushButton({ "aria-label": "Dismiss" }, () => (node.hidden = true), "×");
  const node = element("div", { class: "rdx-banner", role: "alert", hidden: true }, text, close);
  return {
    node,
    hide: () => (node.hidden = true),
    show: ({ type, message }) => {
      text.textContent = `${type}: ${message}`;
      node.hidden = false;
    },
  };
}

const KERNEL_STATUS = {
  gone: "The kernel is gone. The page stays as it is; run the cell again to continue.",
  busy: "The kernel does not respond: it is busy or not running.",
};

function kernelNote() {
  const node = element("p", { class: "rdx-silence", role: "status", hidden: true });
  let [status, work] = [null, ""];
  function draw() {
    const text = KERNEL_STATUS[status] ?? work;
    if (node.textContent !== text) node.textContent = text; // else it is read aloud again
    node.hidden = !text;
  }

  return {
    node,
    show: (newStatus) => {
      status = newStatus;
      draw();
    },
    showWork: (text) => {
      work = text;
      draw();
    },
  };
}

/** A button that opens a panel beside it; one panel of the explorer is open at a time. It
 * is in the top layer, where no pane clips it. */
function dropdown({ label, name, side = "left" }, ...content) {
  const summary = element("summary", { class: "rdx-button", title: name }, label);
  const panel = element("div", { class: "rdx-panel", popover: "manual" }, ...content);
  const node = element("details", { class: "rdx-dropdown" }, summary, panel);
  (label ? summary : node).ariaLabel = name; // a sentence that comes later is its own name
  const follow = () => placeInTopLayer(panel, summary.getBoundingClientRect(), side);
  const grown = new ResizeObserver(follow);
  node.addEventListener("toggle", () => {
    const act = node.open ? "addEventListener" : "removeEventListener";
    globalThis[act]("scroll", follow, true);
    globalThis[act]("resize", follow);
    if (panel.isConnected) panel.togglePopover(node.open); // else it is hidden already
    if (!node.open) return void grown.disconnect();
    follow();
    grown.observe(panel);
  });
  return { node, summary, panel, label: (text) => (summary.textContent = text) };
}

const EDGE = 8; // pixels between what is in the top layer and the edge of the window

/** Place a popover under a box, or above it where there is more room; aligned to its left
 * or right side, within the window. */
function placeInTopLayer(panel, { left, right, top, bottom }, side = "left") {
  const [below, above] = [innerHeight - bottom - EDGE, top - EDGE];
  const isBelow = below >= Math.min(panel.scrollHeight + 2, above);
  const wanted = side === "left" ? left : right - panel.offsetWidth;
  Object.assign(panel.style, {
    maxHeight: `${(isBelow ? below : above) - 4}px`,
    left: `${clamp(wanted, EDGE, Math.max(innerWidth - panel.offsetWidth - EDGE, EDGE))}px`,
    top: isBelow ? `${bottom + 4}px` : "auto",
    bottom: isBelow ? "auto" : `${innerHeight - top + 4}px`,
  });
}

/** Place a popover beside a pane, at the height of what it is about: never over what is
 * compared there. A pane without room at its right or left has it above or below.
 * @param {any} tip
 * @param {any} pane
 * @param {any} about */
function placeBeside(tip, pane, about) {
  const { left, right } = pane.getBoundingClientRect();
  const width = tip.offsetWidth + 2 * EDGE;
  if (right + width > innerWidth && left < width) return placeInTopLayer(tip, about);
  const at = right + width > innerWidth ? left - width + EDGE : right + EDGE;
  const top = clamp(about.top, EDGE, Math.max(innerHeight - tip.offsetHeight - EDGE, EDGE));
  return Object.assign(tip.style, { left: `${at}px`, top: `${top}px`, bottom: "auto", maxHeight: "none" });
}

/** A popover of at most three lines. */
function tooltip() {
  const node = element("div", { class: "rdx-tip", popover: "manual", "aria-hidden": "true" });
  return {
    node,
    hide: () => void (node.isConnected && node.togglePopover(false)), // else it is hidden already
    show: (lines, pane, about) => {
      fill(node, lines.map((line) => element("div", {}, line)));
      node.togglePopover(true);
      placeBeside(node, pane, about);
    },
  };
}

/** Close the open panels that do not contain a node; tells whether there were any. */
function closeDropdowns(root, target = null) {
  const open = [...root.querySelectorAll(".rdx-dropdown[open]")].filter((panel) => !panel.contains(target));
  for (const panel of open) {
    if (panel.contains(root.getRootNode().activeElement)) panel.querySelector("summary").focus();
    panel.open = false;
  }
  return open.length > 0;
}

function sheet() {
  const title = element("h3", {});
  const close = pushButton({ "aria-label": "Close" }, hide, "×");
  const body = element("div", { class: "rdx-sheet-body", tabindex: 0 });
  const head = element("header", {}, title, close);
  const node = element("dialog", { class: "rdx-sheet" }, head, body);

  function hide() {
    const wasOpen = node.open;
    node.close();
    return wasOpen;
  }

  node.addEventListener("click", ({ target }) => target === node && hide());
  return {
    node,
    hide,
    show: (name, ...content) => {
      title.textContent = name;
      node.setAttribute("aria-label", name);
      fill(body, ...content);
      if (!node.open) node.showModal();
    },
  };
}
