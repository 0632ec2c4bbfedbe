// Where the text of a sample matches a search; a match may span several tokens.

/** Matches in the joined text of each round, as tokens from `first` up to `stop`; a
 * SyntaxError where the text is no regular expression. */
function hitsOf({ tokens, rounds }, text, isRegex) {
  const source = isRegex ? text : text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const pattern = new RegExp(source, "gi");
  return rounds.flatMap(({ first, num_tokens: size }) => {
    const pieces = tokens.piece.slice(first, first + size);
    const matches = [...pieces.join("").matchAll(pattern)].filter((match) => match[0]);
    return tokensOf(matches, pieces, first);
  });
}

// Matches come in order, and so do the tokens: one walk over both.
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

/** The hits of a search, marked in the text. */
function hitMarks(spansOf) {
  let hits = [];

  function mark(isHit) {
    for (const { first, stop } of hits) {
      for (const span of spansOf(first, stop)) span.classList.toggle("rdx-hit", isHit);
    }
  }

  function search(trajectory, text, isRegex) {
    mark(false);
    hits = [];
    hits = hitsOf(trajectory, text, isRegex);
    mark(true);
    return hits.length;
  }

  // The token where the next hit begins, after or before a token, round the ends.
  function next(index, step = 1) {
    const firsts = hits.map(({ first }) => first);
    if (step > 0) return firsts.find((first) => first > index) ?? firsts[0];
    return firsts.findLast((first) => first < index) ?? firsts.at(-1);
  }

  return { search, next, forget: () => (hits = []) };
}
