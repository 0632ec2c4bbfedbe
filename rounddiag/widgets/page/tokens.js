// The rounds of a sample as text: a span for each token, coloured by its diff.

function tokenText({ onToken, onObservation }) {
  const key = element("p", { class: "rdx-key" });
  const scroller = element("div", {
    class: "rdx-scroller",
    tabindex: 0,
    role: "region",
    "aria-label": "Text of the sample",
  });
  const tip = element("div", { class: "rdx-tip", "aria-hidden": "true", hidden: true });
  const body = element("div", { class: "rdx-text-body" }, scroller, tip);
  const node = element("section", { class: "rdx-text", "aria-label": "Tokens" }, key, body);
  const chosen = { span: null, head: null };
  let [shown, chunks, threshold, hits] = [null, [], Infinity, []];

  function show(trajectory, newThreshold) {
    [shown, threshold, hits] = [trajectory, newThreshold, []];
    [chosen.span, chosen.head, tip.hidden] = [null, null, true];
    const made = roundsAsText(trajectory, threshold, onObservation);
    chunks = made.chunks;
    fill(key, ...textKey(trajectory, threshold));
    fill(scroller, ...notesOnText(trajectory), made.fragment);
    scroller.scrollTop = 0;
  }

  function setThreshold(newThreshold) {
    const [low, high] = [threshold, newThreshold].sort((a, b) => a - b);
    threshold = newThreshold;
    if (!shown) return;
    fill(key, ...textKey(shown, threshold));
    shown.tokens.diff.forEach((diff, index) => {
      const size = Math.abs(diff);
      if (size > low && size <= high) spanAt(index).classList.toggle("rdx-u", size > threshold);
    });
  }

  function mark(round, token = null) {
    const place = shown?.rounds.find((one) => one.round === round);
    move("head", place ? scroller.querySelector(`[data-round="${round}"]`) : null);
    move("span", place && token !== null ? spanAt(place.first + token) : null);
    const target = chosen.span ?? chosen.head;
    if (target) reveal(scroller, target, chosen.span ? Infinity : 8);
  }

  function move(what, to) {
    chosen[what]?.classList.remove("rdx-now");
    chosen[what] = to ?? null;
    to?.classList.add("rdx-now");
  }

  function search(text, isRegex) {
    for (const { first, stop } of hits) spansOf(first, stop).forEach((one) => one.classList.remove("rdx-hit"));
    hits = shown ? hitsOf(shown, text, isRegex) : [];
    for (const { first, stop } of hits) spansOf(first, stop).forEach((one) => one.classList.add("rdx-hit"));
    return hits.length;
  }

  // The token where the next hit begins, after or before a token, round the ends.
  function nextHit(index, step = 1) {
    const firsts = hits.map(({ first }) => first);
    if (step > 0) return firsts.find((first) => first > index) ?? firsts[0];
    return firsts.findLast((first) => first < index) ?? firsts.at(-1);
  }

  function spansOf(first, stop) {
    return Array.from({ length: stop - first }, (_, i) => spanAt(first + i));
  }

  function spanAt(index) {
    const after = chunks.findIndex(({ first }) => first > index);
    const chunk = chunks.at(after < 0 ? -1 : after - 1);
    return chunk?.node.children[index - chunk.first];
  }

  function indexOf(target) {
    const span = target.closest?.("[data-first] > *");
    if (!span) return -1;
    const chunk = span.parentNode;
    return Number(chunk.dataset.first) + Array.prototype.indexOf.call(chunk.children, span);
  }

  scroller.addEventListener("click", (event) => {
    const index = indexOf(event.target);
    if (index < 0 || !getSelection().isCollapsed) return;
    const round = shown.tokens.round[index];
    onToken(round, index - shown.rounds.find((one) => one.round === round).first, index);
  });
  scroller.addEventListener("pointerover", (event) => {
    const index = indexOf(event.target);
    tip.hidden = index < 0;
    if (index >= 0) placeTip(tip, body, event.target.closest("[data-first] > *"), tokenTip(shown, index));
  });
  scroller.addEventListener("pointerleave", () => (tip.hidden = true));
  scroller.addEventListener("scroll", () => (tip.hidden = true), { passive: true });

  return { node, show, mark, setThreshold, search, nextHit };
}

function tokenTip({ tokens, name_a: a, name_b: b }, index) {
  const { diff, a: ofA, b: ofB, round, rank_in_round: rank } = tokens;
  return [
    element("b", {}, `diff ${signed(diff[index])}`),
    `${visible(a)} ${number(ofA[index])}, ${visible(b)} ${number(ofB[index])}`,
    `round ${round[index]}, rank ${rank[index].toLocaleString("en-US")} in it`,
  ].map((line) => element("div", {}, line));
}

// Over the token, or under it where there is no room.
function placeTip(tip, body, span, lines) {
  fill(tip, ...lines);
  const [at, around] = [span.getClientRects()[0], body.getBoundingClientRect()];
  if (!at) return;
  const left = Math.min(at.left - around.left, around.width - tip.offsetWidth - 4);
  const above = at.top - around.top - tip.offsetHeight - 4;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${above < 0 ? at.bottom - around.top + 4 : above}px`;
}
