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

// What a page says when nobody answers any more.
class NoKernel extends Error {}

function wireTo(model, { onTell, onError }) {
  const waiting = new Map();
  const newest = new Map();
  // Pages of one kernel hear each other's answers: no two use the same numbers.
  let next = Math.floor(Math.random() * 2 ** 30);

  function onMessage(message, buffers) {
    if (message.kind === "tell") return onTell(unpacked(message, buffers));
    const asked = waiting.get(message.id);
    if (message.kind !== "answer" || !asked) return undefined;
    waiting.delete(message.id);
    if (!message.error) return asked.resolve(unpacked(message.result, buffers));
    onError(message.error);
    return asked.reject(Object.assign(new Error(message.error.message), message.error));
  }

  function ask(name, args = {}, buffers = []) {
    const id = (next += 1);
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      model.send({ kind: "ask", id, name, args }, undefined, buffers);
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
  return {
    ask,
    latest,
    close: () => {
      model.off("msg:custom", onMessage);
      for (const { reject } of waiting.values()) reject(new NoKernel("closed"));
    },
  };
}
