// @ts-check
// Requests to Python, their replies and a cache of them, plotly.js; arrays travel as
// binary buffers.
const ARRAYS = {
  float32: Float32Array,
  int32: Int32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bytes: Uint8Array,
};

const TEXT = new TextDecoder();

function deserialize(value, buffers) {
  if (Array.isArray(value)) return value.map((entry) => deserialize(entry, buffers));
  if (value === null || typeof value !== "object") return value;
  if ("$" in value) {
    const view = buffers[value.$];
    const start = view.byteOffset ?? 0;
    const bytes = (view.buffer ?? view).slice(start, start + view.byteLength);
    if (value.dtype === "texts") return JSON.parse(TEXT.decode(bytes));
    if (value.dtype === "codes") return Array.from(new Int8Array(bytes), (code) => value.names[code]);
    return new ARRAYS[value.dtype](bytes);
  }
  const entries = Object.entries(value);
  return Object.fromEntries(entries.map(([key, part]) => [key, deserialize(part, buffers)]));
}

/** A figure from its JSON; every call returns a new one. */
function parseJson(json) {
  return JSON.parse(TEXT.decode(json));
}

// The kernel is gone, so a request gets no reply.
class NoKernel extends Error {}

const PATIENCE = 5000;

/** Returns replies of which only the newest of a channel counts: an older one is
 * undefined. */
function newestReplies() {
  const newest = new Map();
  return async (channel, reply) => {
    const ticket = Symbol(channel);
    newest.set(channel, ticket);
    const result = await reply;
    return newest.get(channel) === ticket ? result : undefined;
  };
}

function connectKernel(model, { onNotify, onError, onStatus }) {
  const waiting = new Map();
  // Pages of one kernel receive each other's replies: ids must not collide.
  let next = Math.floor(Math.random() * 2 ** 30);
  let [timer, isClosed] = [0, false];

  // Status: "busy" without a reply for a while, "gone" without a kernel, else null.
  function watch() {
    timer ||= setTimeout(() => onStatus("busy"), PATIENCE);
  }

  function markAlive() {
    clearTimeout(timer);
    timer = 0;
    onStatus(null);
    if ([...waiting.values()].some(({ isWorking }) => !isWorking)) watch();
  }

  function disconnect() {
    clearTimeout(timer);
    for (const { reject } of waiting.values()) reject(new NoKernel());
    waiting.clear();
    if (!isClosed) onStatus("gone");
  }

  function onMessage(message, buffers) {
    const pending = waiting.get(message.id);
    if (message.kind === "working" && pending) pending.isWorking = true;
    else waiting.delete(message.id);
    markAlive();
    if (message.kind === "notify") return onNotify(deserialize(message, buffers));
    if (message.kind !== "reply" || !pending) return undefined;
    if (!message.error) return pending.resolve(deserialize(message.result, buffers));
    onError(message.error, pending.name);
    return pending.reject(Object.assign(new Error(message.error.message), message.error));
  }

  function request(name, args = {}, buffers = []) {
    const id = (next += 1);
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject, name });
      if (isClosed) return disconnect();
      watch();
      try {
        model.send({ kind: "request", id, name, args }, undefined, buffers);
      } catch {
        disconnect(); // notebooks refuse to send to a kernel that was shut down
      }
    });
  }

  model.on("msg:custom", onMessage);
  model.on("comm_live_update", disconnect); // its kernel was started anew
  return {
    request,
    latest: newestReplies(),
    close: () => {
      isClosed = true;
      model.off("msg:custom", onMessage);
      model.off("comm_live_update", disconnect);
      disconnect();
    },
  };
}

// plotly.js: loaded once a page, by the first explorer, from the kernel's own package.
const LIBRARY = Symbol.for("rounddiag.plotly");
const OTHERS_PATIENCE = 10_000;

// Wait for another explorer that is loading it, unless its kernel does not respond.
async function plotlyFrom(request) {
  const known = globalThis[LIBRARY];
  const late = () => new Promise((done) => setTimeout(done, OTHERS_PATIENCE));
  const library = known && (await Promise.race([known, late()]).catch(ignore));
  if (!library && globalThis[LIBRARY] === known) globalThis[LIBRARY] = loadPlotly(request);
  return library ?? globalThis[LIBRARY];
}

async function loadPlotly(request) {
  const { code } = await request("plotly");
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  // With a global `define`, which JupyterLab may have, it would register as a module.
  const page = /** @type {any} */ (globalThis);
  const { define } = page;
  page.define = undefined;
  try {
    await new Promise((resolve, reject) => {
      const script = document.createElement("script");
      Object.assign(script, { src: address, onload: resolve, onerror: reject });
      document.head.append(script);
    });
  } finally {
    page.define = define;
    URL.revokeObjectURL(address);
  }
  return page.Plotly;
}

// A cache of what was requested of samples.
const MAX_CACHED = 80;
const NO_MARKS = { round: [], token: [] };
const SHOTS_AT_ONCE = 3;

function sampleStore(request) {
  const cache = new Map();

  function cached(name, args, key) {
    const known = cache.get(key) ?? request(name, args);
    cache.delete(key); // the one used last is thrown away last
    cache.set(key, known);
    known.catch(() => cache.delete(key));
    if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
    return known;
  }

  const keyOfCells = ({ samples, rounds }, { a, b, filter }) => `worst ${samples} ${rounds} ${a} ${b} ${JSON.stringify(filter)}`;

  return {
    clear: () => cache.clear(),
    // Where selecting these cells leads.
    worst: (cells, state) => cached("worst", { cells }, keyOfCells(cells, state)),
    knownWorst: (cells, state) => cache.get(keyOfCells(cells, state)),
    trajectory: (sample, { a, b }) => cached("trajectory", { sample }, `tokens ${sample} ${a} ${b}`),
    // The token plot without tokens.
    axes: ({ a, b, log_probs: hasLogProbs }, theme) =>
      cached("token_axes", { log_probs: hasLogProbs, theme }, `axes ${a} ${b} ${hasLogProbs} ${theme}`),
    thumbnails: ({ sample }, indices) => cached("thumbnails", { sample, indices }, `small ${sample} ${indices[0]}`),
    image: ({ sample }, index) => cached("image", { sample, index }, `image ${sample} ${index}`),
    marks: ({ sample }, { a, b, finding }) =>
      finding === null ? NO_MARKS : cached("marks", { sample }, `marks ${a} ${b} ${finding} ${sample}`),
    // Which tokens the filter keeps; null for all.
    kept: ({ sample }, state) =>
      keepsAll(state.filter) ? null : cached("kept", { sample }, `kept ${sample} ${JSON.stringify(state.filter)} ${state.a} ${state.b}`),
    // What the chosen correction does to each token; null without one.
    fates: ({ sample }, { a, b, correction, limit }) =>
      correction && cached("fates", { sample }, `fates ${sample} ${a} ${b} ${correction} ${limit}`),
    // Samples with a token beyond the threshold.
    beyond: (state) => cached("beyond", {}, `beyond ${state.threshold} ${JSON.stringify(state.filter)} ${state.a} ${state.b}`),
    context: ({ sample }, round) => cached("context", { sample, round }, `context ${sample} ${round}`),
    observation: ({ sample }, start, stop) => cached("observation", { sample, start, stop }, `seen ${sample} ${start} ${stop}`),
  };
}

/** The groups of screenshots, requested together, that have some of these. */
function shotGroups(indices) {
  const firsts = new Set(indices.map((index) => index - (index % SHOTS_AT_ONCE)));
  return [...firsts].map((first) => Array.from({ length: SHOTS_AT_ONCE }, (_, at) => first + at));
}
