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
