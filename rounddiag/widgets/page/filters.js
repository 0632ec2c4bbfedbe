// Which tokens count: sample, group, reward, rounds, words, role.

function filterRow(onFilter) {
  const names = element("datalist", { id: uniqueName("groups") });
  const line = wrongLine();
  const said = (name) => (value) => onFilter({ [name]: value });
  const words = (text) => onFilter({ text, is_regex: isRegex.checked });
  const whole = { type: "number", min: 0, step: 1 };
  const fields = {
    sample: textField("sample", said("sample"), line, whole),
    group: textField("group", said("group"), line, { list: names.id }),
    reward: rangeField("reward", said("reward"), line, { step: "any" }),
    rounds: rangeField("rounds", said("rounds"), line, { min: 0, step: 1 }),
    text: liveField("text", words, line, { type: "search", class: "rdx-words" }),
  };
  const isRegex = element("input", {
    type: "checkbox",
    on: { change: () => words(text.input.value || null) },
  });
  const regex = element(
    "label",
    { class: "rdx-toggle", title: "Regular expression" },
    isRegex,
    element("span", {}, ".*"),
  );
  const role = selectField("role", (value) => onFilter({ role: value }));
  const clear = element(
    "button",
    { type: "button", class: "rdx-button", on: { click: () => onFilter(NO_FILTER) } },
    "Clear filter",
  );
  const { sample, group, reward, rounds, text } = fields;
  const parts = [
    ...[text.node, regex, role.node, sample.node, group.node],
    ...[reward.node, rounds.node, clear, names, line.node],
  ];
  const node = element(
    "div",
    { class: "rdx-filter", role: "group", "aria-label": "Filter" },
    ...parts,
  );

  function show(filter, { groups, roles, num_samples: numSamples }) {
    for (const [name, field] of Object.entries(fields)) field.set(filter[name]);
    isRegex.checked = filter.is_regex;
    role.set([[null, "any"], ...roles.map((one) => [one, one])], filter.role);
    group.node.hidden = !groups.length;
    fill(names, ...groups.map((value) => element("option", { value })));
    sample.input.max = numSamples - 1;
    clear.hidden = keepsAll(filter);
  }

  // Whether what Python refuses is one of these fields: it is said there then.
  function wrong({ message }) {
    const field = fields[message.match(/^`(\w+)`: /)?.[1]];
    field?.wrong(message.replaceAll("`", ""));
    return Boolean(field);
  }

  return { node, show, wrong };
}

// A switch alone, without a text, leaves nothing out.
function keepsAll(filter) {
  return Object.keys(NO_FILTER).every((name) => name === "is_regex" || (filter[name] ?? null) === null);
}

const NO_FILTER = {
  sample: null,
  group: null,
  reward: null,
  rounds: null,
  text: null,
  is_regex: false,
  role: null,
};
