// Questions to Python, and the answers; arrays travel as binary buffers.
const ARRAYS = {
  float32: Float32Array,
  int32: Int32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  bytes: Uint8Array,
};

function unpacked(value, buffers) {
  if (Array.isArray(value)) return value.map((one) => unpacked(one, buffers));
  if (value === null || typeof value !== "object") return value;
  if ("$" in value) {
    const view = buffers[value.$];
    const start = view.byteOffset ?? 0;
    const bytes = (view.buffer ?? view).slice(start, start + view.byteLength);
    return new ARRAYS[value.dtype](bytes);
  }
  const entries = Object.entries(value);
  return Object.fromEntries(entries.map(([key, one]) => [key, unpacked(one, buffers)]));
}

// What a question comes to when nobody answers any more.
class NoKernel extends Error {}

const PATIENCE = 5000;

function wireTo(model, { onTell, onError, onSilence }) {
  const waiting = new Map();
  const newest = new Map();
  // Pages of one kernel hear each other's answers: no two use the same numbers.
  let next = Math.floor(Math.random() * 2 ** 30);
  let [timer, isClosed] = [0, false];

  // Silence is "busy" after a while, "gone" where nobody is left to answer, else null.
  function expect() {
    timer ||= setTimeout(() => onSilence("busy"), PATIENCE);
  }

  function hear() {
    clearTimeout(timer);
    timer = 0;
    onSilence(null);
    if (waiting.size) expect();
  }

  function lose() {
    clearTimeout(timer);
    for (const { reject } of waiting.values()) reject(new NoKernel());
    waiting.clear();
    if (!isClosed) onSilence("gone");
  }

  function onMessage(message, buffers) {
    const asked = waiting.get(message.id);
    waiting.delete(message.id);
    hear();
    if (message.kind === "tell") return onTell(unpacked(message, buffers));
    if (message.kind !== "answer" || !asked) return undefined;
    if (!message.error) return asked.resolve(unpacked(message.result, buffers));
    onError(message.error, asked.name);
    return asked.reject(Object.assign(new Error(message.error.message), message.error));
  }

  function ask(name, args = {}, buffers = []) {
    const id = (next += 1);
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject, name });
      if (isClosed) return lose();
      expect();
      try {
        model.send({ kind: "ask", id, name, args }, undefined, buffers);
      } catch {
        lose(); // notebooks refuse to send to a kernel that was shut down
      }
    });
  }

  // A slow answer to an old question never overwrites a newer one.
  async function latest(channel, question) {
    const ticket = Symbol(channel);
    newest.set(channel, ticket);
    const found = await question;
    return newest.get(channel) === ticket ? found : undefined;
  }

  model.on("msg:custom", onMessage);
  model.on("comm_live_update", lose); // its kernel was started anew
  return {
    ask,
    latest,
    close: () => {
      isClosed = true;
      model.off("msg:custom", onMessage);
      model.off("comm_live_update", lose);
      lose();
    },
  };
}
