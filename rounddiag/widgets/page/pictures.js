// One picture with its marker on it, or a sentence where it cannot be shown.

/** A picture from its bytes; `free` lets go of them. */
function pictureOf(
  { index, jpeg, bytes, mime = "image/jpeg", width, height, error },
  action,
  { alt, isSmall },
) {
  const node = element("span", { class: "rdx-picture" });
  const data = bytes ?? jpeg;
  const fail = (why) => {
    node.classList.add("rdx-broken");
    node.title = why;
    fill(node, isSmall ? "no picture" : sentence(`Screenshot ${index} cannot be shown. ${why}`));
  };
  if (!data || error) {
    fail(error?.message ?? error ?? "There is nothing in it.");
    return { node, free() {} };
  }
  const url = URL.createObjectURL(new Blob([data], { type: mime }));
  const image = element("img", { src: url, alt, draggable: "false", decoding: "async" });
  image.addEventListener("error", () => fail("The browser cannot read it as a picture."));
  node.style.setProperty("--ratio", width / height);
  fill(node, image, actionMarker(action, width, height), isSmall ? null : typedText(action));
  return { node, free: () => URL.revokeObjectURL(url) };
}

// Where it was typed if that is known, at the foot of the picture if not.
function typedText(action) {
  if (action?.kind !== "type" || !action.text) return null;
  const node = element("span", { class: "rdx-typed" }, visible(action.text));
  if (isOnPicture(action.point)) {
    const [x, y] = action.point;
    node.style.cssText = `left:${share(Math.min(x, 0.6))};top:${share(Math.min(y, 0.85))};bottom:auto`;
  }
  return node;
}
