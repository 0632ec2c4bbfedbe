// Small controls: one of several, a number, a choice from a list.

/** Radio buttons side by side; `set` shows a value, `onChoose` says a new one. */
function radioRow(label, onChoose) {
  const name = uniqueName("radio");
  const node = element("div", { class: "rdx-segments", role: "radiogroup", "aria-label": label });
  node.addEventListener("change", (event) => onChoose(event.target.value));
  const radio = ([value, text, title], chosen) => {
    const input = element("input", { type: "radio", name, value });
    input.checked = value === chosen;
    return element("label", { title: title || null }, input, element("span", {}, text));
  };
  return {
    node,
    set: (options, chosen) =>
      keepFocus(
        node,
        options.map((one) => radio(one, chosen)),
      ),
  };
}

/** Check boxes side by side. */
function checkRow(label, onChange) {
  const node = element("div", { class: "rdx-checks", role: "group", "aria-label": label });
  node.addEventListener("change", ({ target }) => onChange(target.value, target.checked));
  const check = ([value, text, title], isOn) => {
    const input = element("input", { type: "checkbox", value });
    input.checked = isOn;
    return element("label", { title: title || null }, input, element("span", {}, text));
  };
  return {
    node,
    set: (options, values) =>
      keepFocus(
        node,
        options.map((one) => check(one, Boolean(values[one[0]]))),
      ),
  };
}

// New inputs in place of old ones: the same value stays in focus.
function keepFocus(node, made) {
  const inFocus = node.contains(document.activeElement) ? document.activeElement.value : null;
  fill(node, ...made);
  if (inFocus !== null) node.querySelector(`[value="${CSS.escape(inFocus)}"]`)?.focus();
}

/** A list to choose from; the empty value is null. */
function selectField(label, onChoose) {
  const input = element("select", { on: { change: () => onChoose(input.value || null) } });
  const node = labelled(label, input);
  function set(options, chosen) {
    fill(input, ...options.map(([value, text]) => element("option", { value: value ?? "" }, text)));
    input.value = chosen ?? "";
    node.hidden = options.length < 2;
  }
  return { node, set };
}

/** A field of text or a number, said when it is finished; empty is null. */
function textField(label, onChange, { type = "text", ...attributes } = {}) {
  const input = element("input", { type, autocomplete: "off", spellcheck: "false", ...attributes });
  input.addEventListener("change", () => {
    if (!input.validity.valid) return;
    onChange(input.value === "" ? null : type === "number" ? Number(input.value) : input.value);
  });
  const node = labelled(label, input);
  // What is being written is not taken away.
  const set = (value) => {
    if (document.activeElement !== input || input.value === "") input.value = value ?? "";
  };
  return { node, input, set };
}

/** Two numbers, lowest and highest; both empty are null. */
function rangeField(label, onChange, attributes) {
  const ends = ["from", "to"].map((end) =>
    textField(end, () => {}, { type: "number", "aria-label": `${label} ${end}`, ...attributes }),
  );
  const inputs = ends.map(({ input }) => input);
  const node = element(
    "div",
    { class: "rdx-field rdx-range", role: "group", "aria-label": label, on: { change: said } },
    element("span", {}, label),
    inputs[0],
    element("span", { "aria-hidden": "true" }, "–"),
    inputs[1],
  );

  function said() {
    const [low, high] = inputs.map(({ value }) => (value === "" ? null : Number(value)));
    const isHalf = (low === null) !== (high === null);
    const wrong = isHalf ? "Both ends are needed" : low > high ? "The lower end comes first" : "";
    for (const input of inputs) {
      input.setCustomValidity(wrong);
      input.title = wrong;
    }
    if (inputs.every((input) => input.validity.valid)) onChange(low === null ? null : [low, high]);
  }

  return { node, set: (range) => ends.forEach((end, index) => end.set(range?.[index])) };
}

function labelled(label, input) {
  if (!input.hasAttribute("aria-label")) input.setAttribute("aria-label", label);
  return element("label", { class: "rdx-field" }, element("span", {}, label), input);
}
