// plotly.js: once a page, whichever explorer comes first, from the kernel's own package.
const LIBRARY = Symbol.for("rounddiag.plotly");
const OTHERS_PATIENCE = 10_000;

// What another explorer asked for is waited for, unless its kernel does not answer.
async function plotlyFrom(ask) {
  const known = globalThis[LIBRARY];
  const late = () => new Promise((done) => setTimeout(done, OTHERS_PATIENCE));
  const found = known && (await Promise.race([known, late()]).catch(ignored));
  if (!found && globalThis[LIBRARY] === known) globalThis[LIBRARY] = loaded(ask);
  return found ?? globalThis[LIBRARY];
}

async function loaded(ask) {
  const { code } = await ask("plotly");
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  // A page that has `define`, as JupyterLab may, would get a module and no global.
  const { define } = globalThis;
  globalThis.define = undefined;
  try {
    await new Promise((resolve, reject) => {
      const script = document.createElement("script");
      Object.assign(script, { src: address, onload: resolve, onerror: reject });
      document.head.append(script);
    });
  } finally {
    globalThis.define = define;
    URL.revokeObjectURL(address);
  }
  return globalThis.Plotly;
}
