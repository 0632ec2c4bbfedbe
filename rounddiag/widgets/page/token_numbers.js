// All numbers of one token.

function focusPanel() {
  const node = element("section", {
    class: "rdx-focus",
    "aria-label": "Token",
    "aria-live": "polite",
  });

  function show(trajectory, index) {
    const isThere = trajectory?.tokens.piece[index] !== undefined;
    const isOpen = node.querySelector(".rdx-more")?.open ?? false;
    fill(
      node,
      ...(isThere
        ? tokenFacts(trajectory, index)
        : [sentence("No token selected. Click one in the text.")]),
    );
    if (isThere) node.querySelector(".rdx-more").open = isOpen;
  }

  show(null, null);
  return { node, show };
}

const NUM_FIRST = 4; // facts that are always visible

function tokenFacts({ tokens, rounds, name_a, name_b }, index) {
  const [a, b] = [name_a, name_b].map(visible);
  const of = (name) => tokens[name]?.[index];
  const round = rounds.find((one) => one.round === of("round"));
  const facts = [
    [
      `diff, ${a} - ${b}`,
      Number.isFinite(of("diff")) ? `${signed(of("diff"))} nat` : "not finite",
      "of the log-probs",
    ],
    [`ratio, ${a} / ${b}`, number(Math.exp(of("diff"))), "of the probabilities"],
    [
      "rank of |diff|",
      tokenRanks(of("rank_in_round"), round.num_tokens, of("rank_in_batch")),
      "1 is the largest",
    ],
    ["role", tokens.role ? of("role") : "not known", "role of the token in the output"],
    ["k3", number(Math.expm1(of("diff")) - of("diff")), "ratio - 1 - diff"],
    [
      "entropy",
      tokens.entropy ? number(of("entropy")) : "not recorded",
      "of the distribution, in nats",
    ],
    ["round", `${of("round")}, token ${index - round.first}`, "both from 0"],
    ["position", of("position").toLocaleString("en-US"), "in the response, from 0"],
    ["token id", String(of("token_id") ?? "not in the file"), ""],
  ];
  return [
    element(
      "div",
      { class: `rdx-focus-piece ${levelClass(of("level") === NOT_FINITE ? 0 : of("level"))}` },
      of("piece") ? visibleNodes(of("piece")) : "part of the previous character",
    ),
    probabilityTable([
      [a, of("a")],
      [b, of("b")],
    ]),
    factList(facts.slice(0, NUM_FIRST)),
    element("details", { class: "rdx-more" }, element("summary", {}, "more"), factList(facts.slice(NUM_FIRST))),
  ];
}

function factList(facts) {
  return element("dl", { class: "rdx-facts-list" }, ...facts.map(tokenFact));
}

function tokenRanks(inRound, numTokens, inBatch) {
  if (!inRound) return "not ranked: not finite";
  return `${inRound.toLocaleString("en-US")} of ${numTokens.toLocaleString("en-US")} in its round, ${inBatch.toLocaleString("en-US")} in the batch`;
}

function tokenFact([name, value, title]) {
  return element(
    "div",
    { title: title || null },
    element("dt", {}, name),
    element("dd", {}, value),
  );
}

// In columns, so that numbers and bars can be compared.
function probabilityTable(scores) {
  const names = ["", "log-prob", "probability", ""];
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const rows = scores.map(([name, logProb]) => {
    const bar = element("span", { class: "rdx-bar" });
    bar.style.width = `${100 * (Math.min(1, Math.exp(logProb)) || 0)}%`;
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      element("td", {}, number(logProb)),
      element("td", {}, number(Math.exp(logProb))),
      element("td", { class: "rdx-bar-room", "aria-hidden": "true" }, bar),
    );
  });
  return element(
    "table",
    { class: "rdx-scores" },
    element("thead", {}, head),
    element("tbody", {}, ...rows),
  );
}
