// @ts-check
// A report: this page without a kernel. Its replies were computed when the file was
// written, and are in it, one element each.
const WHY_FIXED = "This file has no Python that could compute it: open the batch in a notebook with rounddiag.explore";

async function storedReply(key) {
  const node = document.querySelector(`script[data-reply="${CSS.escape(key)}"]`);
  if (!node) throw new Error(`${key} is not in this file`);
  const packed = bytesOf(node.textContent);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const { plain, sizes } = JSON.parse(TEXT.decode(bytes.subarray(4, 4 + size)));
  let end = 4 + size;
  const buffers = sizes.map((length) => bytes.subarray(end, (end += length)));
  return deserialize(plain, buffers);
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

function connectPage() {
  const has = (key) => Boolean(document.querySelector(`script[data-reply="${CSS.escape(key)}"]`));
  let state = null;
  /** @type {Promise<any> | null} */
  let opened = null;
  const first = () => (opened ??= storedReply("overview"));

  // Figures are stored in light colours.
  async function inTheme(figure, theme) {
    if (theme !== "dark") return figure;
    const dark = new Map((await first()).colors);
    const pattern = new RegExp([...dark.keys()].join("|"), "g");
    return new TextEncoder().encode(TEXT.decode(figure).replace(pattern, (color) => dark.get(color)));
  }

  const groupsKey = (by, options) => `rounds ${options.by.indexOf(by)} light`;

  async function overview({ theme }) {
    const { stops, beyond, colors, ...answer } = await first();
    state ??= answer.state;
    const { metric, by, threshold } = state;
    const all = await storedReply(`overview ${metric} light`);
    const { figure, groups } = by === null ? { figure: all.rounds, groups: null } : await storedReply(groupsKey(by, answer.options));
    const [rounds, heatmap] = await Promise.all([inTheme(figure, theme), inTheme(all.heatmap, theme)]);
    const [num_tokens_beyond, num_samples_beyond] = beyond[stops.indexOf(threshold)];
    const counts = { ...answer.counts, num_tokens_beyond, num_samples_beyond };
    const { samples, head } = answer;
    const note =
      samples.length < head.num_samples
        ? `${samples.length} of ${pluralize(head.num_samples, "sample")} are in this file token by token: those marked at the left edge. j and k step through them.`
        : "";
    const canShow = (name, column) => column === null || (name === answer.state.metric && has(groupsKey(column, answer.options)));
    return { ...answer, groups, note, state, counts, figures: { rounds, heatmap }, limits: { why: WHY_FIXED, canShow, samples } };
  }

  async function set({ changes: { threshold, ...changes }, theme }) {
    const { stops } = await first();
    state = { ...state, ...changes };
    if (threshold) {
      const distance = (stop) => Math.abs(Math.log(stop / threshold));
      state.threshold = stops.reduce((best, stop) => (distance(stop) < distance(best) ? stop : best));
    }
    return overview({ theme });
  }

  async function select({ changes: { cells, layout, ...changes } }) {
    const { places, samples, num_tokens, num_rounds } = await first();
    state = { ...state, ...changes, layout: { ...state.layout, ...layout } };
    if (changes.finding !== undefined) state.current = places[changes.finding] ?? state.current;
    // Of several cells, the first sample that is in the file.
    if (cells) state.current = { sample: cells.samples.find((sample) => samples.includes(sample)) ?? cells.samples[0], round: cells.rounds[0] };
    return { state, num_tokens, num_rounds };
  }

  async function trajectory({ sample }) {
    if (has(`trajectory ${sample}`)) {
      const reply = await storedReply(`trajectory ${sample}`);
      const { a, b } = reply.tokens;
      reply.tokens.diff ??= a.map((value, at) => value - b[at]);
      return reply;
    }
    const { samples, head, source } = await first();
    return {
      missing: [
        `Sample ${sample} is not in this file, which has ${groupDigits(samples.length)} of ${pluralize(head.num_samples, "sample")}.`,
        "To write a file that has it:",
        element("code", {}, `rounddiag report ${source} --samples ${sample}`),
        "To open all samples in a notebook:",
        element("code", {}, `rounddiag.explore("${source}", current={"sample": ${sample}})`),
      ],
    };
  }

  async function image({ sample, index }) {
    const { shots } = await storedReply(`thumbnails ${sample}`);
    const { full, changes } = shots[index];
    return { ...(await storedReply(`image ${full}`)), changes };
  }

  async function observation({ sample, start, stop }) {
    const { gaps } = await storedReply(`trajectory ${sample}`);
    const low = gaps[0].start;
    const { pieces, is_image: isImage } = await storedReply(`observation ${sample} ${low} ${gaps.at(-1).stop}`);
    return { pieces: pieces.slice(start - low, stop - low), is_image: isImage.slice(start - low, stop - low) };
  }

  async function context({ sample, round }) {
    const key = `context ${sample} ${round}`;
    if (has(key)) return storedReply(key);
    throw new Error("This file has no context of this round: open the batch in a notebook with rounddiag.explore.");
  }

  // Some rows of a list in another order, which Python stored.
  async function sorted(list, start, { head, is_ascending: isAscending }) {
    const { orders } = await storedReply(`orders ${list}`);
    const { order, caption } = orders.find((other) => other.head === head && other.is_ascending === isAscending);
    const starts = Array.from({ length: Math.ceil(order.length / PAGE_ROWS) }, (_, at) => at * PAGE_ROWS);
    const pages = await Promise.all(starts.map((from) => storedReply(`list ${list} ${from}`)));
    const pick = (valuesOf) => Array.from(order.slice(start, start + PAGE_ROWS), (at) => valuesOf(pages[Math.floor(at / PAGE_ROWS)])[at % PAGE_ROWS]);
    const columns = pages[0].columns.map((column, at) => ({ ...column, values: pick((page) => page.columns[at].values) }));
    return { ...pages[0], caption, columns, places: pick((page) => page.places) };
  }

  async function beyond() {
    const { samples } = await first();
    const trajectories = await Promise.all(samples.map((sample) => trajectory({ sample })));
    return { samples: samples.filter((_, at) => trajectories[at].tokens.diff.some((diff) => Math.abs(diff) > state.threshold)) };
  }

  const answers = {
    overview,
    set,
    select,
    trajectory,
    marks: ({ sample }) => storedReply(`marks ${state.finding} ${sample}`),
    image,
    observation,
    context,
    beyond,
    plotly: () => storedReply("plotly"),
    diagnosis: () => storedReply("diagnosis"),
    token_axes: async ({ log_probs: hasLogProbs, theme }) => {
      const { figure } = await storedReply(`token_axes ${hasLogProbs} light`);
      return { figure: await inTheme(figure, theme) };
    },
    thumbnails: async ({ sample, indices }) => {
      const { shots } = await storedReply(`thumbnails ${sample}`);
      return { shots: indices.filter((at) => at in shots).map((at) => shots[at]) };
    },
    list: ({ list, start, sort }) => (sort ? sorted(list, start, sort) : storedReply(`list ${list} ${start}`)),
  };
  return { request: (name, args = {}) => answers[name](args), latest: newestReplies(), isStored: true, close: () => {} };
}

// The theme is that of the reader's system; the page takes it from where notebooks have it.
const isDark = matchMedia("(prefers-color-scheme: dark)");
const followSystem = () => (document.body.dataset.jpThemeLight = String(!isDark.matches));
followSystem();
isDark.addEventListener("change", followSystem);
const report = new ExplorerPage(connectPage);
const words = document.getElementById("words");
words.replaceChildren(words.querySelector("h1"), report.node);
words.removeAttribute("id");
// `report.html#step 40 / task-08/1 / r3 / t17` opens there.
function goToAddress() {
  const place = location.hash && placeNamed(decodeURIComponent(location.hash.slice(1)), report.known());
  if (place) report.goTo(place);
}
report.open().then(goToAddress);
addEventListener("hashchange", goToAddress);
report.node.focus({ preventScroll: true });
