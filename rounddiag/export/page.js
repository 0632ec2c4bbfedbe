"use strict";
// Draws every figure in the colours of the reader, and in light ones on paper.
(() => {
  const PAPER_WIDTH = 660;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")].map((box) => ({
    box,
    stored: JSON.parse(box.nextElementSibling.textContent),
  }));

  function figureIn({ figure, dark: differences }, isDark) {
    const drawn = structuredClone(figure);
    for (const [path, value] of isDark ? differences : []) {
      const last = path.at(-1);
      path.slice(0, -1).reduce((part, key) => part[key], drawn)[last] = value;
    }
    return drawn;
  }

  function draw(isDark, width) {
    document.documentElement.dataset.jpThemeLight = String(!isDark);
    for (const { box, stored } of plots) {
      const { data, layout } = figureIn(stored, isDark);
      const config = { responsive: true, displaylogo: false };
      Plotly.react(box, data, { ...layout, width }, config);
      if (!width) Plotly.Plots.resize(box); // after paper, the page's width again
    }
  }

  const drawForScreen = () => draw(dark.matches);
  drawForScreen();
  dark.addEventListener("change", drawForScreen);
  addEventListener("beforeprint", () => draw(false, PAPER_WIDTH));
  addEventListener("afterprint", drawForScreen);
})();
