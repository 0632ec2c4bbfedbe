// Which batch this is, on how much data, and what is wrong with it.

function headBlock() {
  const node = element("header", { class: "rdx-head" });

  function show(head) {
    const chips = [head.verdict && { label: "", ...head.verdict }, ...head.chips].filter(Boolean);
    fill(
      node,
      head.failed.length > 0 && failedChecks(head.failed),
      element(
        "div",
        { class: "rdx-name" },
        element("h3", {}, visible(head.name)),
        head.step !== null && element("span", {}, `step ${head.step}`),
        element("span", { class: "rdx-sizes" }, headSizes(head)),
      ),
      element(
        "ul",
        { class: "rdx-chips", "aria-label": "About the batch" },
        ...chips.map(factChip),
      ),
    );
  }

  return { node, show };
}

function headSizes({ num_samples: samples, num_rounds: rounds, num_tokens: tokens }) {
  return [counted(samples, "sample"), counted(rounds, "round"), counted(tokens, "token")].join(
    " · ",
  );
}

function factChip({ label, value, tone }) {
  const text = visible(String(value));
  return element(
    "li",
    {
      class: tone === "warn" ? "rdx-chip rdx-warn" : "rdx-chip",
      title: label ? `${label}: ${text}` : text,
    },
    label && element("span", {}, `${label} `),
    element("b", {}, text),
  );
}

// The first ones in full: what is wrong comes before all that is measured.
function failedChecks(failed) {
  const line = (text) => element("li", {}, visible(text));
  const [first, rest] = [failed.slice(0, 3), failed.slice(3)];
  const title = failed.length === 1 ? "1 check failed" : `${failed.length} checks failed`;
  return element(
    "div",
    { class: "rdx-failed", role: "note", "aria-label": title },
    element("b", {}, `✗ ${title}`),
    element("ul", {}, ...first.map(line)),
    rest.length > 0 &&
      element(
        "details",
        {},
        element("summary", {}, `and ${rest.length} more`),
        element("ul", {}, ...rest.map(line)),
      ),
  );
}
