// @ts-check
"use strict";
// Draws each figure when it scrolls near the viewport, in the reader's colour scheme;
// before printing, draws all figures in the light scheme.
(() => {
  const { Plotly } = /** @type {any} */ (globalThis);
  const PRINT_WIDTH = 660;
  const MARGIN = "800px 0px";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const boxes = [...document.querySelectorAll(".plot")];
  const drawn = new Set();

  function figureIn(box, isDark) {
    const { figure, dark: differences } = JSON.parse(box.nextElementSibling.textContent);
    for (const [path, value] of isDark ? differences : []) {
      const last = path.at(-1);
      path.slice(0, -1).reduce((part, key) => part[key], figure)[last] = value;
    }
    return figure;
  }

  function draw(box, isDark, width) {
    const { data, layout } = figureIn(box, isDark);
    const config = { responsive: true, displaylogo: false };
    Plotly.react(box, data, { ...layout, width }, config);
    if (!width) Plotly.Plots.resize(box); // back to the page's width after printing
    drawn.add(box);
  }

  function redraw() {
    document.documentElement.dataset.jpThemeLight = String(!dark.matches);
    for (const box of drawn) draw(box, dark.matches);
  }

  function drawForPrint() {
    document.documentElement.dataset.jpThemeLight = "true";
    for (const box of boxes) draw(box, false, PRINT_WIDTH);
  }

  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && !drawn.has(target)) draw(target, dark.matches);
    }
  }, { rootMargin: MARGIN });

  redraw();
  for (const box of boxes) observer.observe(box);
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", drawForPrint);
  addEventListener("afterprint", redraw);
})();
