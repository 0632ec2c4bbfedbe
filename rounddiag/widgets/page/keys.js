// What keys do, once the explorer has been clicked or tabbed into.
const KEYS = [
  ["j", "k", "next and previous sample, in the order of the heatmap"],
  ["n", "p", "next and previous round"],
  ["→", "←", "next and previous token"],
  ["w", null, "next of the worst, in the list that is open"],
  ["g", "G", "first and last sample"],
  ["/", null, "search in the text; Enter for the next hit"],
  ["f", null, "screenshot in full size"],
  ["t", null, "table of the selection"],
  ["?", null, "these keys"],
  ["Esc", null, "close what is open, then clear the selection"],
];

function keyHelp() {
  const rows = KEYS.map(([one, other, what]) =>
    element(
      "tr",
      {},
      element("td", {}, element("kbd", {}, one), other && [" ", element("kbd", {}, other)]),
      element("td", {}, what),
    ),
  );
  return element("table", { class: "rdx-keys" }, ...rows);
}

// A notebook has keys of its own: none of these may reach it while this is in focus.
function listenToKeys(node, actionOf) {
  node.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const isTyping = event.target.matches("input, select, textarea");
    const isModified = event.ctrlKey || event.metaKey || event.altKey;
    if (isModified || (isTyping && event.key !== "Escape")) return;
    const action = actionOf(event.key);
    if (!action) return;
    event.preventDefault();
    action();
  });
}
