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
  return {
    node,
    show: (status) => {
      node.textContent = KERNEL_STATUS[status] ?? "";
      node.hidden = !status;
    },
  };
}

/** A button that opens a panel under it; one panel of the explorer is open at a time. */
function dropdown({ label, name, side = "left" }, ...content) {
  const summary = element("summary", { class: "rdx-button", title: name, "aria-label": name }, label);
  const panel = element("div", { class: `rdx-panel rdx-panel-${side}` }, ...content);
  const node = element("details", { class: "rdx-dropdown" }, summary, panel);
  return { node, summary, label: (text) => (summary.textContent = text) };
}

/** Close the open panels that do not contain a node; tells whether there were any. */
function closeDropdowns(root, target = null) {
  const open = [...root.querySelectorAll(".rdx-dropdown[open]")].filter((one) => !one.contains(target));
  for (const one of open) one.open = false;
  return open.length > 0;
}

function sheet() {
  const title = element("h3", {});
  const close = pushButton({ "aria-label": "Close" }, hide, "×");
  const body = element("div", { class: "rdx-sheet-body" });
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
