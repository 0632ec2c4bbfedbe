// Light or dark, as the notebook around is; and when that changes.
function pageTheme(onChange) {
  const read = () => (document.body.dataset.jpThemeLight === "false" ? "dark" : "light");
  let theme = read();
  const watch = new MutationObserver(() => {
    if (read() === theme) return;
    theme = read();
    onChange(theme);
  });
  watch.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
  return { now: () => theme, close: () => watch.disconnect() };
}
