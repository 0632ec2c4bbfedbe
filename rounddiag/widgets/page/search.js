// @ts-check
// The one box: it searches this text or all samples, and goes to places.

/** Matches in the text of each round, as tokens from `first` to before `stop`: one may
 * span several. Throws a SyntaxError for an invalid regular expression. */
function hitsOf({ tokens, rounds }, text, isRegex) {
  const source = isRegex ? text : text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const pattern = new RegExp(source, "gi");
  return rounds.flatMap(({ first, num_tokens: size }) => {
    const pieces = tokens.piece.slice(first, first + size);
    const matches = [...pieces.join("").matchAll(pattern)].filter((match) => match[0]);
    return tokensOf(matches, pieces, first);
  });
}

// Matches and tokens are both in order: one pass over both.
function tokensOf(matches, pieces, first) {
  let [token, end] = [0, pieces[0]?.length ?? 0];
  const tokenAt = (place) => {
    while (end <= place) end += pieces[(token += 1)].length;
    return first + token;
  };
  return matches.map(({ index, 0: words }) => ({
    first: tokenAt(index),
    stop: tokenAt(index + words.length - 1) + 1,
  }));
}

/** The matches of a search; `mark` gets the tokens of all of them. */
function hitMarks(mark) {
  let hits = [];

  function search(trajectory, text, isRegex) {
    mark([]);
    hits = [];
    hits = text ? hitsOf(trajectory, text, isRegex) : [];
    mark(hits.flatMap(({ first, stop }) => Array.from({ length: stop - first }, (_, at) => first + at)));
    return hits.length;
  }

  // The first token of the next match, forwards or backwards, wrapping around.
  function next(index, step = 1) {
    const firsts = hits.map(({ first }) => first);
    if (step > 0) return firsts.find((first) => first > index) ?? firsts[0];
    return firsts.findLast((first) => first < index) ?? firsts.at(-1);
  }

  return { search, next, forget: () => (hits = []) };
}

/** The place that a text names: an address, `88 r17 t40`, an id, or a round; else null. */
function placeNamed(text, { ids, numSamples, current }) {
  const words = text.trim().replace(/^step \d+ \/ /, "");
  const [, name, rest] = words.match(/^(.*?)((?: \/ [rt]\d+)*)$/s);
  const at = ids.indexOf(ids.includes(words) ? words : name);
  const plain = ids.includes(words) ? String(at) : at >= 0 ? `${at}${rest}` : words;
  const [, sample, round, token] = plain.match(/^(?:sample )?(\d+)?[\s/]*(?:r(\d+))?[\s/]*(?:t(\d+))?$/i) ?? [];
  if ((sample ?? round ?? token) === undefined || Number(sample) >= numSamples) return null;
  const place = { sample: Number(sample ?? current.sample) };
  if (round !== undefined) place.round = Number(round);
  if (token !== undefined) Object.assign(place, { round: place.round ?? current.round, token: Number(token) });
  return place;
}

/** What `placeNamed` reads: `step 40 / task-08/1 / r3 / t17`. */
function addressOf({ sample, round, token }, { ids, step }) {
  const name = ids[sample];
  const isOwn = name !== undefined && ids.indexOf(name) === ids.lastIndexOf(name);
  const parts = [step !== null && `step ${step}`, isOwn ? name : `sample ${sample}`];
  const inside = [round !== undefined && `r${round}`, token !== undefined && `t${token}`];
  return [...parts, ...inside].filter(Boolean).join(" / ");
}

/** `known` returns what `placeNamed` needs; `onAll` gets a text to find in all samples. */
function searchBox({ text, at, onHit, known, onPlace, onAll, canSearchAll }) {
  const title = "A text, 88 for a sample, 88 r17 t40 for a token, an id or an address; in quotes it is a text. Enter goes on.";
  const input = element("input", { type: "search", placeholder: "Search or go to  /", "aria-label": "Search the text", title });
  const regex = regexToggle("Regular expression in the text", again);
  const all = element("input", { type: "checkbox", on: { change: again } });
  const allToggle = element("label", { class: "rdx-toggle rdx-all", title: "List the hits in all samples" }, all, element("span", {}, "all"));
  const count = element("output", { class: "rdx-count" });
  const node = element("div", { class: "rdx-search", role: "search" }, input, regex.node, canSearchAll && allToggle, count);
  const words = () => input.value.match(/^"(.*)"$/)?.[1] ?? input.value;
  const place = () => (regex.input.checked || all.checked ? null : placeNamed(input.value, known()));
  let timer = 0;

  /** @param {{ target?: any }} [event] */
  function again({ target } = {}) {
    const wanted = place();
    try {
      const num = text.search(words(), regex.input.checked);
      const where = wanted && Object.entries(wanted).map(([name, index]) => `${name} ${index}`).join(", ");
      count.textContent = input.value && (where ? `Enter: ${where}` : pluralize(num, "hit"));
    } catch (error) {
      count.textContent = /** @type {Error} */ (error).message; // half an expression, while it is typed
    }
    clearTimeout(timer);
    if (target && all.checked) timer = setTimeout(onAll, REST, false);
  }

  input.addEventListener("input", again);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return undefined;
    if (all.checked) return onAll(true);
    const wanted = place();
    if (wanted) return onPlace(wanted);
    const hit = text.nextHit(at(), event.shiftKey ? -1 : 1);
    return hit === undefined ? undefined : onHit(hit);
  });
  return { node, again, focus: () => input.focus(), query: () => ({ text: words(), is_regex: regex.input.checked }) };
}
