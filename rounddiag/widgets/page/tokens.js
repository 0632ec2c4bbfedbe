// The rounds of a sample as text: a span for each token, coloured by its diff.

function tokenText({ onToken, onObservation }) {
  const key = element("p", { class: "rdx-key" });
  const scroller = element("div", {
    class: "rdx-scroller",
    tabindex: 0,
    role: "region",
    "aria-label": "Text of the sample",
  });
  const tip = pointerTip(scroller, tokenOfSpan, (index) => tokenTip(shown, index));
  const node = element("section", { class: "rdx-text", "aria-label": "Tokens" }, key, tip.node);
  const hits = hitMarks((first, stop) => spansOfTokens(chunks, first, stop));
  const chosen = { span: null, head: null };
  let [shown, chunks, threshold] = [null, [], Infinity];

  function show(trajectory, newThreshold) {
    [shown, threshold] = [trajectory, newThreshold];
    [chosen.span, chosen.head] = [null, null];
    hits.forget();
    tip.hide();
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
      if (size <= low || !(size <= high)) return;
      spanOfToken(chunks, index).classList.toggle("rdx-u", size > threshold);
    });
  }

  function mark(round, token = null) {
    const place = shown?.rounds.find((one) => one.round === round);
    move("head", place ? scroller.querySelector(`[data-round="${round}"]`) : null);
    move("span", place && token !== null ? spanOfToken(chunks, place.first + token) : null);
    const target = chosen.span ?? chosen.head;
    if (!target) return;
    reveal(scroller, target, chosen.span ? Infinity : 8);
    uncoverHead(scroller);
  }

  function move(what, to) {
    chosen[what]?.classList.remove("rdx-now");
    chosen[what] = to ?? null;
    to?.classList.add("rdx-now");
  }

  scroller.addEventListener("click", (event) => {
    const index = tokenOfSpan(event.target);
    if (index < 0 || !getSelection().isCollapsed) return;
    const round = shown.tokens.round[index];
    onToken(round, index - shown.rounds.find((one) => one.round === round).first, index);
  });

  const search = (text, isRegex) => (shown ? hits.search(shown, text, isRegex) : 0);
  return { node, show, mark, setThreshold, search, nextHit: hits.next };
}

// Scroll on until no head of a round covers half of the one before.
function uncoverHead(scroller) {
  const { top } = scroller.getBoundingClientRect();
  for (const head of scroller.querySelectorAll(".rdx-round-head")) {
    const at = head.getBoundingClientRect();
    if (at.top > top && at.top < top + at.height) scroller.scrollBy({ top: at.top - top });
  }
}

function tokenTip({ tokens, name_a: a, name_b: b }, index) {
  const { diff, a: ofA, b: ofB, round, rank_in_round: rank } = tokens;
  return [
    element("b", {}, `diff ${signed(diff[index])}`),
    `${visible(a)} ${number(ofA[index])}, ${visible(b)} ${number(ofB[index])}`,
    `round ${round[index]}, rank ${rank[index].toLocaleString("en-US")} in it`,
  ].map((line) => element("div", {}, line));
}
