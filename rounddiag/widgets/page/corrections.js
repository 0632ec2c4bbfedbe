// @ts-check
// The line of a correction of the update: its limit on a slider, and what it does.

/** Classes of tokens by what a correction does to them. */
const FATES = { 1: "rdx-capped", 2: "rdx-struck" };
// Of the slider: powers of ten, by which the limit of the trainers is multiplied; of a
// ratio, its logarithm.
const LIMIT_ENDS = [-2, 0.5];

/** A menu of corrections, and the line of the one that is chosen. */
function correctionLine(onSet) {
  const menu = selectField("correction", (name) => onSet({ correction: name, limit: null }));
  const [name, bounds] = [element("b", {}), element("output", {})];
  const [min, max] = LIMIT_ENDS;
  const slider = element("input", { type: "range", min, max, step: 0.05, "aria-label": "Limit of the correction, logarithmic" });
  const said = element("span", { "aria-live": "polite" });
  const [dropped, capped] = [["rdx-struck", "dropped"], ["rdx-capped", "capped"]].map(([look, text]) => element("span", { class: look }, text));
  const off = pushButton({ class: "rdx-button", title: "No correction", "aria-label": "No correction" }, () => onSet({ correction: null, limit: null }), "✕");
  const node = element("div", { class: "rdx-row rdx-corrected", hidden: true }, name, bounds, slider, dropped, capped, said, off);
  let own = null;

  const size = (limit) => (own.is_ratio ? Math.log(limit) : limit);
  const exact = (limit) => String(Number(limit.toPrecision(6)));

  function chosen() {
    const limit = size(own.limit) * 10 ** Number(slider.value);
    return Number((own.is_ratio ? Math.exp(limit) : limit).toPrecision(8));
  }

  // The lower bound moves as far as the upper one.
  function describe(limit) {
    const low = own.low ** (Math.log(limit) / Math.log(own.limit));
    bounds.textContent = own.low ? `${exact(low)} to ${exact(limit)}` : `up to ${exact(limit)}`;
    slider.setAttribute("aria-valuetext", bounds.textContent);
  }

  slider.addEventListener("input", () => describe(chosen()));
  slider.addEventListener("change", () => onSet({ limit: chosen() }));

  function show(options, state, applied) {
    const named = (some) => some.map(({ name, meaning, is_own: isOwn }) => [name, `${name}${isOwn ? ", the rule of this run" : ""}: ${meaning}`]);
    const common = options.filter((correction) => correction.is_common);
    menu.set([[null, "none"], ...named(common)], state.correction, named(options.filter((correction) => !common.includes(correction))));
    node.hidden = !applied;
    if (!applied) return;
    own = options.find((correction) => correction.name === state.correction);
    slider.value = Math.log10(size(applied.limit) / size(own.limit));
    [name.textContent, node.title, said.textContent] = [own.name, own.meaning, applied.text];
    capped.hidden = !applied.num_capped;
    describe(applied.limit);
  }

  return { node, menu: menu.node, show };
}
