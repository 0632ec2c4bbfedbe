// Words in the text of a sample: how often they are there, and a walk over them.
function searchBox({ text, at, onHit }) {
  const input = element("input", { type: "search", placeholder: "Search the text  /", "aria-label": "Search the text" });
  const regex = element("input", { type: "checkbox" });
  const count = element("output", { class: "rdx-count" });
  const node = element(
    "div",
    { class: "rdx-search", role: "search" },
    input,
    element("label", {}, regex, " regular expression"),
    count,
  );

  function again() {
    if (!input.value) return void (count.textContent = text.search("", false) ? "" : "");
    try {
      count.textContent = counted(text.search(input.value, regex.checked), "hit");
    } catch (error) {
      count.textContent = error.message; // half an expression, while it is typed
    }
    return undefined;
  }

  input.addEventListener("input", again);
  regex.addEventListener("change", again);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const hit = text.nextHit(at(), event.shiftKey ? -1 : 1);
    if (hit !== undefined) onHit(hit);
  });
  return { node, again, focus: () => input.focus() };
}
