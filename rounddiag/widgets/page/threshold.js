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
  const line = wrongLine();
  const exact = textField("threshold", setExact, line, { type: "number", step: "any" });
  let now = 1;
  const beyond = element("span", { class: "rdx-beyond", "aria-live": "polite" });
  const node = element(
    "div",
    { class: "rdx-threshold", title: "Tokens with a |diff| beyond are underlined and counted" },
    exact.node,
    element("span", {}, "nat"),
    slider,
    beyond,
    line.node,
  );
  const chosen = () => Number((10 ** Number(slider.value)).toPrecision(3));

  function setExact(value) {
    if (value > 0) onSet(value);
    else exact.wrong(`threshold: above 0 is needed, so it stays ${number(now)} nat`);
  }

  // The words stay until there is another one.
  exact.input.addEventListener("blur", () => {
    if (exact.input.getAttribute("aria-invalid") !== "true") return;
    exact.input.value = Number(now.toPrecision(3));
    exact.input.setAttribute("aria-invalid", "false");
  });
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
    now = value;
    exact.set(Number(value.toPrecision(3)));
    slider.value = Math.log10(value);
    describe(value);
    beyond.textContent = counts ? beyondText(counts) : "";
  }

  return { node, show };
}

function beyondText({ num_tokens: all, num_tokens_beyond: beyond, num_samples_beyond: samples, why_none: why }) {
  if (!all) return why;
  const share = number((100 * beyond) / all);
  return `${beyond.toLocaleString("en-US")} of ${counted(all, "token")} beyond (${share} %), in ${counted(samples, "sample")}`;
}
