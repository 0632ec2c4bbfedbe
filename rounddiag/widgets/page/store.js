// What was fetched of samples, kept so that nothing travels twice.
const MOST_KEPT = 80;
const SHOTS_AT_ONCE = 3;

function sampleStore(ask) {
  const kept = new Map();

  function once(name, args, key) {
    const known = kept.get(key) ?? ask(name, args);
    kept.delete(key); // the one used last is thrown away last
    kept.set(key, known);
    known.catch(() => kept.delete(key));
    if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
    return known;
  }

  return {
    trajectory: (sample, { batch, a, b }) =>
      once("trajectory", { batch, sample }, `tokens ${batch} ${sample} ${a} ${b}`),
    figure: ({ batch, sample }, { a, b }, theme) =>
      once("trajectory_figure", { batch, sample, theme }, `figure ${batch} ${sample} ${a} ${b} ${theme}`),
    thumbnails: ({ batch, sample }, indices) =>
      once("thumbnails", { batch, sample, indices }, `small ${batch} ${sample} ${indices[0]}`),
    image: ({ batch, sample }, index) =>
      once("image", { batch, sample, index }, `image ${batch} ${sample} ${index}`),
    observation: ({ batch, sample }, start, stop) =>
      once("observation", { batch, sample, start, stop }, `seen ${batch} ${sample} ${start} ${stop}`),
  };
}

// Groups of a sample's screenshots that travel together, the nearest to a round first.
function shotGroups({ rounds }, round) {
  const now = rounds.find((one) => one.round === round)?.screenshot ?? 0;
  const num = Math.max(-1, ...rounds.map(({ screenshot }) => screenshot ?? -1)) + 1;
  const indices = Array.from({ length: num }, (_, index) => index);
  const groups = indices.filter((index) => index % SHOTS_AT_ONCE === 0);
  const distance = (first) => Math.abs(first + SHOTS_AT_ONCE / 2 - 0.5 - now);
  return groups
    .sort((one, other) => distance(one) - distance(other))
    .map((first) => indices.slice(first, first + SHOTS_AT_ONCE));
}
