// What was fetched of samples, kept so that nothing travels twice.
const MOST_KEPT = 60;

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
    trajectory: (sample, { a, b }) =>
      once("trajectory", { sample }, `tokens ${sample} ${a} ${b}`),
    figure: (sample, { a, b }, theme) =>
      once("trajectory_figure", { sample, theme }, `figure ${sample} ${a} ${b} ${theme}`),
    thumbnails: (sample) => once("thumbnails", { sample }, `small ${sample}`),
    image: (sample, index) => once("image", { sample, index }, `image ${sample} ${index}`),
    observation: (sample, start, stop) =>
      once("observation", { sample, start, stop }, `seen ${sample} ${start} ${stop}`),
  };
}
