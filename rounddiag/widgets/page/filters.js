// Which tokens count: sample, group, reward, rounds, words, role.

function filterRow(onFilter) {
  const names = element("datalist", { id: uniqueName("groups") });
  const fields = {
    sample: textField("sample", (sample) => onFilter({ sample }), {
      type: "number",
      min: 0,
      step: 1,
    }),
    group: textField("group", (group) => onFilter({ group }), { list: names.id }),
    reward: rangeField("reward", (reward) => onFilter({ reward }), { step: "any" }),
    rounds: rangeField("rounds", (rounds) => onFilter({ rounds }), { min: 0, step: 1 }),
    text: textField("text", (text) => onFilter({ text }), { type: "search", class: "rdx-words" }),
  };
  const isRegex = element("input", {
    type: "checkbox",
    on: { change: () => onFilter({ is_regex: isRegex.checked }) },
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
    ...[reward.node, rounds.node, clear, names],
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
    clear.hidden = Object.keys(NO_FILTER).every(
      (name) => name === "is_regex" || (filter[name] ?? null) === null,
    );
  }

  return { node, show };
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
