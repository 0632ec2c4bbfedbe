// plotly.js: once a page, whichever explorer comes first, from the kernel's own package.
const LIBRARY = Symbol.for("rounddiag.plotly");
const PATIENCE = 30_000;

function plotlyFrom(ask) {
  globalThis[LIBRARY] ??= loaded(ask).catch((error) => {
    delete globalThis[LIBRARY]; // the next explorer tries again
    throw error;
  });
  return globalThis[LIBRARY];
}

async function loaded(ask) {
  const late = new Promise((_, reject) => {
    setTimeout(reject, PATIENCE, new NoKernel("The kernel does not answer."));
  });
  const { code } = await Promise.race([ask("plotly"), late]);
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
