// @ts-check
// Form fields: radio buttons, check boxes, lists, text, numbers, ranges.

/** Radio buttons in a row; `set` shows a value, `onChoose` gets a new one. */
function radioRow(label, onChoose) {
  const name = uniqueName("radio");
  const node = element("div", { class: "rdx-segments", role: "radiogroup", "aria-label": label });
  node.addEventListener("change", (event) => onChoose(event.target.value));
  const radio = (option, chosen) => choice({ type: "radio", name }, option, option[0] === chosen);
  return { node, set: (options, chosen) => keepFocus(node, options.map((option) => radio(option, chosen))) };
}

function choice(attributes, [value, text, title], isOn) {
  const input = element("input", { ...attributes, value });
  input.checked = isOn;
  return element("label", { title: title || null }, input, element("span", {}, text));
}

/** Check boxes in a row. */
function checkRow(label, onChange) {
  const node = element("div", { class: "rdx-checks", role: "group", "aria-label": label });
  node.addEventListener("change", ({ target }) => onChange(target.value, target.checked));
  const check = (option, values) => choice({ type: "checkbox" }, option, Boolean(values[option[0]]));
  return { node, set: (options, values) => keepFocus(node, options.map((option) => check(option, values))) };
}

/** A check box for a regular expression, as a button. */
function regexToggle(title, onChange) {
  const input = element("input", { type: "checkbox", on: { change: onChange } });
  return { input, node: element("label", { class: "rdx-toggle", title }, input, element("span", {}, ".*")) };
}

// Replace inputs; the input with the same value keeps the focus.
function keepFocus(node, made) {
  const inFocus = node.contains(document.activeElement) ? focused().value : null;
  fill(node, ...made);
  if (inFocus !== null) node.querySelector(`[value="${CSS.escape(inFocus)}"]`)?.focus();
}

/** What has the focus.
 * @returns {any} */
function focused() {
  return document.activeElement;
}

/** Tabs by name; `mark` shows which one is chosen, `onReach` gets what arrow keys reach. */
function tabRow(label, names, onChoose, onReach = onChoose) {
  const tabs = Object.entries(names).map(([name, text]) => element("button", { type: "button", role: "tab", "data-name": name }, text));
  const node = element("div", { class: "rdx-tabs", role: "tablist", "aria-label": label }, ...tabs);
  node.addEventListener("click", ({ target }) => target.dataset.name && onChoose(target.dataset.name));
  walkWithArrows(node, () => tabs.filter((tab) => tab.offsetWidth), (tab) => onReach(tab.dataset.name));
  function mark(name) {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", tab.dataset.name === name);
      tab.tabIndex = tab.dataset.name === name ? 0 : -1;
      if (tab.dataset.name === name) tab.hidden = false;
    }
  }

  // Only these, in this order, and the one that is marked.
  function offer(shown) {
    for (const tab of tabs) tab.hidden = !shown.includes(tab.dataset.name);
    tabs.sort((a, b) => shown.indexOf(a.dataset.name) - shown.indexOf(b.dataset.name));
    node.append(...tabs);
  }

  return { node, mark, offer };
}

/** A drop-down list; the empty value is null. */
function selectField(label, onChoose, attributes) {
  const onChange = () => onChoose(input.value || null);
  const input = element("select", { on: { change: onChange }, ...attributes });
  const node = withLabel(label, input);
  const option = ([value, text]) => element("option", { value: value ?? "" }, text);
  function set(options, chosen, more = []) {
    fill(input, options.map(option), more.length > 0 && element("optgroup", { label: "more" }, more.map(option)));
    input.value = chosen ?? "";
    node.hidden = options.length < 2;
  }
  return { node, set };
}

/** A line for the errors of some fields. */
function errorLine() {
  const wrong = new Map();
  const attributes = { class: "rdx-wrong", id: uniqueName("wrong"), role: "alert", hidden: true };
  const node = element("p", attributes);

  // An empty message clears the error of these inputs.
  function say(inputs, words) {
    if (words) wrong.set(inputs[0], words);
    else wrong.delete(inputs[0]);
    for (const input of inputs) {
      input.toggleAttribute("aria-describedby", Boolean(words));
      input.setAttribute("aria-invalid", Boolean(words));
      if (words) input.setAttribute("aria-describedby", node.id);
    }
    node.textContent = visible([...wrong.values()].join(" "));
    node.hidden = !wrong.size;
  }

  return { node, say };
}

function plainInput(attributes) {
  return element("input", { autocomplete: "off", spellcheck: "false", ...attributes });
}

/** A field for text or a number that reports when it is committed; empty is null.
 * @param {string} label
 * @param {(value: any) => any} onChange
 * @param {ReturnType<typeof errorLine>} line
 * @param {Record<string, any>} [attributes] */
function textField(label, onChange, line, { type = "text", ...attributes } = {}) {
  const input = plainInput({ type, ...attributes });
  const wrong = (words) => line.say([input], words);
  let isWritten = false;
  input.addEventListener("input", () => (isWritten = true));
  input.addEventListener("change", () => {
    const { valid } = input.validity;
    isWritten = false;
    wrong(valid ? "" : `${label}: ${input.validationMessage}`);
    if (valid) onChange(input.value === "" ? null : type === "number" ? Number(input.value) : input.value);
  });

  // Keep what the user is typing.
  function set(value) {
    const text = String(value ?? "");
    if (!isWritten || document.activeElement !== input) input.value = text;
    if (input.value === text) wrong("");
  }

  return { node: withLabel(label, input), input, wrong, set };
}

const REST = 300; // milliseconds without a key

/** A text field that reports after a pause in typing, and only once the previous value
 * was handled. */
function liveField(label, onChange, line, attributes) {
  const field = textField(label, apply, line, attributes);
  const busy = element("span", { class: "rdx-applying", role: "status" });
  field.node.append(busy);
  let [timer, wanted, said, isBusy, isRefused] = [0, null, null, false, false];

  field.input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => apply(field.input.value || null), REST);
  });

  // A refused value is reported again: Enter took its error away.
  async function apply(text) {
    clearTimeout(timer);
    [timer, wanted] = [0, text];
    if (isBusy || (said === wanted && !isRefused)) return;
    [isBusy, isRefused, busy.textContent] = [true, false, "applying…"];
    do {
      said = wanted;
      await onChange(said);
    } while (said !== wanted);
    [isBusy, busy.textContent] = [false, ""];
  }

  function wrong(words) {
    isRefused = Boolean(words);
    field.wrong(words);
  }

  // Keep what is not reported yet, and an invalid value as long as it has the focus.
  function set(text) {
    if (timer || said !== wanted) return;
    said = wanted = text;
    if (field.input.getAttribute("aria-invalid") !== "true") field.input.value = text ?? "";
    field.set(text);
  }

  return { ...field, wrong, set };
}

/** Two numbers, lowest and highest, one of which is enough; null if both are empty. */
function rangeField(label, onChange, line, attributes) {
  const inputs = ["from", "to"].map((end) =>
    plainInput({ type: "number", "aria-label": `${label} ${end}`, ...attributes }),
  );
  let isWritten = false;
  const on = { input: () => (isWritten = true), change: said };
  const node = element(
    "div",
    { class: "rdx-field rdx-range", role: "group", "aria-label": label, on },
    element("span", {}, label),
    inputs[0],
    element("span", { "aria-hidden": "true" }, "–"),
    inputs[1],
  );

  function wrong(words) {
    for (const input of inputs) input.setCustomValidity(words);
    line.say(inputs, words);
  }

  function said() {
    wrong("");
    const unfit = inputs.find((input) => !input.validity.valid)?.validationMessage;
    const [low, high] = inputs.map(({ value }) => (value === "" ? null : Number(value)));
    const isTurned = low !== null && high !== null && low > high;
    const why = unfit ?? (isTurned ? "the lower end comes first" : "");
    isWritten = Boolean(why);
    if (why) wrong(`${label}: ${why}`);
    else onChange(low === null && high === null ? null : { from: low, to: high });
  }

  // Keep what the user is typing at either end.
  function set(range) {
    if (isWritten && node.contains(document.activeElement)) return;
    inputs[0].value = range?.from ?? "";
    inputs[1].value = range?.to ?? "";
    isWritten = false;
    wrong("");
  }

  return { node, wrong, set };
}

function withLabel(label, input) {
  if (!input.hasAttribute("aria-label")) input.setAttribute("aria-label", label);
  return element("label", { class: "rdx-field" }, element("span", {}, label), input);
}
