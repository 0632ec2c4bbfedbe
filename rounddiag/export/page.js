"use strict";
// Draws figures when they come near the screen, in the colours of the reader; all of
// them, in light ones, when the page is put on paper.
(() => {
  const PAPER_WIDTH = 660;
  const NEAR = "800px 0px";
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
    if (!width) Plotly.Plots.resize(box); // after paper, the page's width again
    drawn.add(box);
  }

  function drawAgain() {
    document.documentElement.dataset.jpThemeLight = String(!dark.matches);
    for (const box of drawn) draw(box, dark.matches);
  }

  function drawOnPaper() {
    document.documentElement.dataset.jpThemeLight = "true";
    for (const box of boxes) draw(box, false, PAPER_WIDTH);
  }

  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && !drawn.has(target)) draw(target, dark.matches);
    }
  }, { rootMargin: NEAR });

  drawAgain();
  for (const box of boxes) near.observe(box);
  dark.addEventListener("change", drawAgain);
  addEventListener("beforeprint", drawOnPaper);
  addEventListener("afterprint", drawAgain);
})();
