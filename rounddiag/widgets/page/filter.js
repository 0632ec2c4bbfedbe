// @ts-check
// The filter: a text, and conditions on any column, each shown as a chip.

// Values of a column that are check boxes: numbers are short.
const [MOST_CHECKS, MOST_NUMBERS] = [12, 24];
const MOST_NAMED = 8; // values in a chip

/** @param {(name: string) => Promise<any>} [askValues] */
function filterRow(onFilter, askValues = async () => ({ rows: [] })) {
  const line = errorLine();
  /** @type {[Record<string, any>, any[], any]} */
  let [filter, columns, column] = [{}, [], null];
  const set = (name, condition) => {
    const { [name]: _, ...others } = filter;
    return onFilter(condition === null ? others : { ...others, [name]: condition });
  };
  const words = (text) => set("text", text && regex.input.checked ? { regex: text } : text);
  const text = liveField("text", words, line, { type: "search", class: "rdx-words" });
  const regex = regexToggle("Regular expression", () => words(text.input.value || null));
  const which = selectField("column", (name) => edit(name));
  const clear = pushButton({ class: "rdx-button" }, () => onFilter({}), "Clear filter");
  const editor = element("div", { class: "rdx-condition" });
  const parts = [element("div", { class: "rdx-words-row" }, text.node, regex.node), which.node, editor, clear, line.node];
  const form = element("div", { class: "rdx-filter", role: "group", "aria-label": "Filter" }, ...parts);
  const menu = dropdown({ label: "+ filter", name: "Filter by text or any column", side: "right" }, form);
  const chips = element("span", { class: "rdx-filter-chips" });
  const node = element("div", { class: "rdx-filters" }, chips, menu.node);
  let field = null;

  // The fields of a column's condition.
  function edit(name) {
    column = columns.find((known) => known.name === name) ?? columns[0];
    if (!column) return;
    field = conditionField(column, (condition) => set(column.name, condition), line);
    fill(editor, field.node);
    field.set(filter[column.name] ?? null);
    if (field.setCounts && menu.node.open) countValues();
  }

  // How many tokens each value has, and how much they differ.
  async function countValues() {
    const [of, name] = [field, column?.name];
    const counted = await askValues(name).catch(() => null);
    if (counted && of === field) of.setCounts?.(counted.rows);
  }

  menu.node.addEventListener("toggle", () => menu.node.open && field?.setCounts && countValues());

  function show(newFilter, newColumns) {
    const isOther = JSON.stringify(newColumns) !== JSON.stringify(columns);
    const hadText = filter.text !== undefined;
    [filter, columns] = [newFilter, newColumns];
    which.set(columns.map((known) => [known.name, visible(known.name)]), column?.name ?? columns[0]?.name);
    if (isOther) edit(column?.name);
    else field?.set(filter[column.name] ?? null);
    text.set(filter.text?.regex ?? filter.text ?? null);
    // Without a text, the box keeps what was chosen for the one that will be typed.
    if (hadText || filter.text !== undefined) regex.input.checked = Boolean(filter.text?.regex);
    clear.hidden = keepsAll(filter);
    fill(chips, ...Object.entries(filter).map(([name, condition]) => filterChip(name, condition, () => set(name, null))));
  }

  // Show an error of Python at the field it is about; false if it is about none.
  function showError({ message }) {
    const name = message.match(/^`(.+?)`: /)?.[1];
    const isOfColumn = columns.some((known) => known.name === name);
    if (name !== "text" && !isOfColumn) return false;
    if (isOfColumn && name !== column?.name) edit(name);
    (name === "text" ? text : field).wrong(message.replaceAll("`", ""));
    menu.node.open = true;
    return true;
  }

  // In place of the fields.
  function disable(why) {
    menu.summary.title = why;
    fill(form, sentence(...prose(`${why}.`)));
  }

  return { node, show, showError, disable };
}

/** The fields for a condition on a column: a range, check boxes, or a list of values. */
function conditionField({ name, values = [], ends }, onChange, line) {
  if (ends) return rangeField(name, onChange, line, { step: "any", placeholder: "any" });
  if (values.length <= (typeof values[0] === "number" ? MOST_NUMBERS : MOST_CHECKS) && name !== "sample") return choiceField(name, values, onChange);
  const options = element("datalist", { id: uniqueName("values") }, ...values.map((value) => element("option", { value })));
  const parse = (text) => onChange(text === null ? null : text.split(",").map((part) => valueOf(part.trim(), values)));
  const field = textField(name, parse, line, { list: options.id, placeholder: name === "sample" ? "38, 52, or ids" : "values" });
  field.node.append(options);
  return { ...field, set: (condition) => field.set(condition === null ? null : valuesWithin(condition, values).join(", ")) };
}

// The values that a condition names, or has between its ends.
function valuesWithin(condition, values) {
  if (Array.isArray(condition) || typeof condition !== "object") return [condition].flat();
  return values.filter((value) => value >= (condition?.from ?? -Infinity) && value <= (condition?.to ?? Infinity));
}

// A number where the column has numbers.
function valueOf(text, values) {
  const isNumber = text !== "" && Number.isFinite(Number(text)) && values.some((value) => typeof value === "number");
  return isNumber ? Number(text) : text;
}

function choiceField(label, values, onChange) {
  let chosen = {};
  const row = checkRow(label, (name, isOn) => {
    chosen[name] = isOn;
    const named = values.filter((value) => chosen[value]);
    onChange(named.length ? named : null);
  });
  const set = (condition) => {
    chosen = Object.fromEntries((condition === null ? [] : valuesWithin(condition, values)).map((value) => [value, true]));
    row.set(values.map((value) => [value, visible(String(value))]), chosen);
    if (counts) setCounts(counts);
  };
  let counts = null;
  function setCounts(rows) {
    counts = rows;
    const scale = barScale(rows);
    for (const check of row.node.children) {
      const own = rows.find(({ condition }) => String(condition[0]) === check.firstChild.value);
      check.querySelector(".rdx-of-value")?.remove();
      check.firstChild.setAttribute("aria-label", check.firstChild.value);
      if (own) check.append(element("span", { class: "rdx-of-value", title: valueTitle(own) }, meanBar(own, scale), pluralize(own.num_tokens, "token")));
    }
  }
  return { node: row.node, set, setCounts, wrong: () => {} };
}

// Bars of means, on one logarithmic scale.

/** Where a size is, from 0 to 1: from a tenth of the smallest to the largest. */
function barScale(rows) {
  const sizes = rows.flatMap(({ mean, low, high }) => [mean, low, high]).map(Math.abs).filter((size) => size > 0);
  const [low, high] = [Math.log(Math.min(...sizes)) - 1, Math.log(Math.max(...sizes))];
  return (value) => clamp((Math.log(Math.abs(value)) - low) / (high - low), 0, 1) || 0;
}

function meanBar({ mean, low, high }, scale) {
  const bar = element("span", { class: "rdx-bar" });
  bar.style.width = `${100 * scale(mean)}%`;
  const reach = Number.isFinite(low) && low !== null && element("span", { class: "rdx-bar-reach" });
  const [near, far] = [low, high].map(scale).sort((first, second) => first - second);
  const from = low < 0 && high > 0 ? 0 : near; // an interval around zero begins there
  if (reach) Object.assign(reach.style, { left: `${100 * from}%`, width: `${100 * (far - from)}%` });
  return element("span", { class: "rdx-mean-bar" }, bar, reach);
}

function valueTitle({ text, mean, low, high, num_tokens: num }) {
  const interval = low === null ? "no interval: fewer than 5 samples or groups" : `95 % interval ${number(low)} to ${number(high)}`;
  return `${visible(text)}: mean ${number(mean)}, ${interval}, ${pluralize(num, "token")}`;
}

function keepsAll(filter) {
  return !Object.keys(filter).length;
}

function conditionText(condition) {
  if (condition?.regex) return `/${condition.regex}/`;
  if (Array.isArray(condition) || typeof condition !== "object") return firstOf([condition].flat());
  const { from = null, to = null } = condition;
  if (from === to) return number(from);
  return from === null ? `≤ ${number(to)}` : to === null ? `≥ ${number(from)}` : `${number(from)} to ${number(to)}`;
}

function firstOf(values) {
  const more = values.length - MOST_NAMED;
  const texts = values.slice(0, MOST_NAMED).map((value) => (typeof value === "number" ? String(value).replace("-", "−") : value));
  return texts.join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function filterChip(name, condition, onRemove) {
  const text = `${visible(name)}: ${visible(conditionText(condition))}`;
  return pushButton({ class: "rdx-chip", title: `Remove the filter ${text}` }, onRemove, element("span", {}, text), " ×");
}
