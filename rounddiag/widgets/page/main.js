function render({ model, el }) {
  const page = new ExplorerPage(model);
  el.append(page.node);
  page.open();
  return () => page.close();
}

export default { render };
