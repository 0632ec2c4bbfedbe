// From which |diff| on a token stands out: a number, a slider, and how many there are.

const THRESHOLD_ENDS = [-3, 1]; // powers of ten, in nats

/** `onSet` hears a new threshold, `onDrag` each one on the way to it. */
function thresholdField(onSet, onDrag) {
  const [min, max] = THRESHOLD_ENDS;
  const slider = element("input", {
    type: "range",
    min,
    max,
    step: 0.01,
    "aria-label": "Threshold, logarithmic",
  });
  const exact = textField("threshold", (value) => value > 0 && onSet(value), {
    type: "number",
    min: 0,
    step: "any",
  });
  const beyond = element("span", { class: "rdx-beyond", "aria-live": "polite" });
  const node = element(
    "div",
    { class: "rdx-threshold", title: "Tokens with a |diff| beyond are underlined and counted" },
    exact.node,
    element("span", {}, "nat"),
    slider,
    beyond,
  );
  const chosen = () => Number((10 ** Number(slider.value)).toPrecision(3));

  slider.addEventListener("input", () => {
    exact.input.value = chosen();
    describe(chosen());
    onDrag(chosen());
  });
  slider.addEventListener("change", () => onSet(chosen()));

  function describe(value) {
    slider.setAttribute("aria-valuetext", `${number(value)} nat`);
  }

  function show(value, counts) {
    exact.set(Number(value.toPrecision(3)));
    slider.value = Math.log10(value);
    describe(value);
    beyond.textContent = counts ? beyondText(counts) : "";
  }

  return { node, show };
}

function beyondText({ num_tokens: all, num_tokens_beyond: beyond, num_samples_beyond: samples }) {
  if (!all) return "the filter keeps no token";
  const share = number((100 * beyond) / all);
  return `${beyond.toLocaleString("en-US")} of ${counted(all, "token")} beyond (${share} %), in ${counted(samples, "sample")}`;
}
