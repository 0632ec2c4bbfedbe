// @ts-check
// All numbers of one token.

// Names are replaced where they depend on the scores.
const FACTS = [
  ["diff", "of the log-probs"],
  ["ratio", "of the probabilities"],
  ["by |diff|", "the largest first"],
  ["role", "role of the token in the output"],
  ["training", "what the loss does with the token"],
  ["k3", "ratio - 1 - diff"],
  ["entropy", "of the distribution, in nats"],
  ["advantage", "of the token"],
  ["round", "both from 0"],
  ["position", "in the response, from 0"],
  ["token id", null],
];
const NUM_FIRST = 5; // facts that are always visible

/** The elements stay, and their texts change: with each key another token is shown. */
function focusPanel(onNote, addressAt = (_place) => "") {
  const none = sentence("No token selected. Click one in the text.");
  const piece = element("div", {});
  const scores = [scoreRow(), scoreRow()];
  const facts = FACTS.map(([name, title]) => {
    const [term, value] = [element("dt", {}, name), element("dd", {})];
    return { term, value, node: element("div", { title }, term, value) };
  });
  const list = (some) => element("dl", { class: "rdx-facts-list" }, ...some.map((fact) => fact.node));
  const ofFile = element("dl", { class: "rdx-facts-list" }); // the file's own columns of tokens
  const more = element("details", { class: "rdx-more" }, element("summary", {}, "more"), list(facts.slice(NUM_FIRST)), ofFile);
  const note = noteField(onNote);
  const table = scoreTable(scores);
  const likely = element("div", { class: "rdx-answer" });
  const parts = [piece, table, likely, list(facts.slice(0, NUM_FIRST)), note.node, more];
  const attributes = { class: "rdx-focus", "aria-label": "Token", "aria-live": "polite", "aria-atomic": "true" };
  const node = element("section", attributes, none);

  /** The rank by size is there for what is beyond the threshold. */
  function show(trajectory, index, threshold = -1) {
    const { tokens, name_a, name_b, lacks } = trajectory;
    const text = tokens.piece[index];
    if (text === undefined) return fill(node, none);
    const [a, b] = [name_a, name_b].map(visible);
    const [diff, level] = [tokens.diff[index], tokens.level[index]];
    piece.className = `rdx-focus-piece ${levelClass(level === NOT_FINITE ? 0 : level)}`;
    fill(piece, text ? visibleNodes(text) : "part of the previous character");
    const round = roundOf(trajectory, tokens.round[index]);
    facts[0].term.textContent = `diff, ${a} − ${b}`;
    facts[1].term.textContent = `ratio, ${a} / ${b}`;
    const pair = [[a, tokens.a[index]], [b, tokens.b[index]]];
    /** @type {any[]} */
    const rows = lacks ? pair.filter(([, value]) => Number.isFinite(value)) : pair;
    const values = [
      Number.isFinite(diff) ? `${withSign(diff)} nat` : "not finite",
      number(Math.exp(diff)),
      Math.abs(diff) <= threshold ? "" : tokenRanks(tokens.rank_in_round[index], round.num_tokens, tokens.rank_in_batch[index]),
      tokens.role?.[index] ?? "",
      trainingOf(trajectory, index),
      number(Math.expm1(diff) - diff),
      tokens.entropy ? number(tokens.entropy[index]) : "",
      tokens.advantage ? number(tokens.advantage[index]) : "",
      `${round.round}, ${trajectory.noun} ${index - round.first}`,
      groupDigits(tokens.position[index]),
      String(tokens.token_id?.[index] ?? ""),
    ];
    if (lacks) [0, 1, 2, 5].forEach((at) => (values[at] = "")); // of two engines
    table.hidden = !rows.length;
    facts.forEach(({ value, node: row }, at) => {
      value.textContent = values[at];
      row.hidden = values[at] === "";
    });
    fill(ofFile, ...Object.entries(tokens.of_file ?? {}).map(([name, numbers]) => fileFact(name, numbers[index])));
    const [logProbs, probabilities] = [Number, Math.exp].map((of) => alignDecimals(rows.map(([, value]) => number(of(value)))));
    fill(table.lastChild, ...scores.slice(0, rows.length).map((row) => row.node));
    rows.forEach((row, at) => scores[at].show(row, logProbs[at], probabilities[at]));
    const place = { sample: trajectory.sample, round: round.round, token: index - round.first };
    fill(likely, ...alternativesPanel(trajectory, place, addressAt(place)));
    if (none.isConnected) fill(node, ...parts);
    return undefined;
  }

  return { node, show, note };
}

function fileFact(name, value) {
  const text = Number.isFinite(value) ? number(value) : "not known";
  return element("div", { title: "of the file" }, element("dt", {}, visible(name)), element("dd", {}, text));
}

const NOTE_KEYS = { token: ["sample", "round", "token"], round: ["sample", "round"], sample: ["sample"] };

/** What a note at a place is on: the token, its round, or the sample. */
function noteScope(place) {
  return Object.keys(NOTE_KEYS).find((scope) => NOTE_KEYS[scope].at(-1) in place);
}

/** The note on a token, its round or its sample; `onNote` gets its place and its text. */
function noteField(onNote) {
  /** @type {{ place: any, notes: any[], scope: string, noun: string }} */
  let now = { place: {}, notes: [], scope: "token", noun: "token" };
  const here = () => Object.fromEntries(NOTE_KEYS[now.scope].map((key) => [key, now.place[key]]));
  const field = textField("note", (text) => onNote(here(), text), errorLine(), { placeholder: "Write a note" });
  const scopes = selectField("on", (scope) => show({ scope }), { "aria-label": "note on" });
  const node = element("div", { class: "rdx-note-field" }, field.node, scopes.node);

  /** @param {{ place?: any, notes?: any[], scope?: string, noun?: string }} changes */
  function show(changes) {
    now = { ...now, ...changes };
    scopes.set(Object.keys(NOTE_KEYS).map((scope) => [scope, `${scope === "token" ? now.noun : scope} ${now.place[scope] ?? ""}`]), now.scope);
    field.set(now.notes.find((note) => isSamePlace(note, here()))?.text ?? "");
  }

  return { node, show, focus: () => field.input.focus() };
}

// Where the mask and the limit of weights are known.
function trainingOf({ tokens, weight_limit: limit }, index) {
  if (tokens.loss_mask?.[index] === 0) return "masked: not in the loss";
  const weight = Math.exp(tokens.diff[index]);
  return limit && weight > limit ? `weight ${number(weight)}, truncated at ${number(limit)}` : "";
}

function tokenRanks(inRound, numTokens, inBatch) {
  if (!inRound) return "no place: not finite";
  return `${ordinal(inRound)} of ${groupDigits(numTokens)} in the round, ${ordinal(inBatch)} of all`;
}

// In columns, so that numbers and bars can be compared.
function scoreTable(rows) {
  const names = ["", "log-prob", "prob", ""];
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  return element(
    "table",
    { class: "rdx-scores" },
    element("thead", {}, head),
    element("tbody", {}, ...rows.map(({ node }) => node)),
  );
}

function scoreRow() {
  const bar = element("span", { class: "rdx-bar" });
  const name = element("th", { scope: "row" });
  const [logProb, probability] = [element("td", {}), element("td", {})];
  const room = element("td", { class: "rdx-bar-room", "aria-hidden": "true" }, bar);

  function show([score, value], ...texts) {
    name.textContent = name.title = score;
    [logProb.textContent, probability.textContent] = texts;
    bar.style.width = `${100 * (Math.min(1, Math.exp(value)) || 0)}%`;
  }

  return { node: element("tr", {}, name, logProb, probability, room), show };
}
