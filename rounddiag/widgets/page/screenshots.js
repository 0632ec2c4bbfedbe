// @ts-check
// Screenshots with markers of the actions, in the pane and large. Positions are shares of
// the picture and sizes are screen pixels, so markers keep their shape at any scale.

const ARROW = "M -9 -6 L 0 0 L -9 6";
const TURNS = { right: 0, down: 90, left: 180, up: 270 };

/** The marker of an action, or null without coordinates. */
function actionMarker(action, width, height) {
  const { point, end_point: end, direction } = action ?? {};
  const shapes = [];
  const middle = isOnPicture(point) ? point : [0.5, 0.5];
  if (action?.kind === "scroll" && direction in TURNS)
    shapes.push(...arrowsAt(middle, TURNS[direction], [-10, 4, 18]));
  else if (isOnPicture(point) && isOnPicture(end))
    shapes.push(...dragMark(point, end, width / height));
  else if (isOnPicture(point ?? end))
    shapes.push(...clickMark(point ?? end, action.kind === "double_click"));
  return shapes.length ? shape("svg", { class: "rdx-marker", "aria-hidden": "true" }, ...shapes) : null;
}

function isOnPicture(point) {
  return Boolean(point) && point.every((share) => share >= 0 && share <= 1);
}

function clickMark([x, y], isDouble) {
  const at = { cx: share(x), cy: share(y) };
  const rings = isDouble ? [9, 14] : [10];
  return [
    ...rings.flatMap((r) => withHalo("circle", { ...at, r })),
    shape("circle", { ...at, r: 3.5, class: "rdx-halo-dot" }),
    shape("circle", { ...at, r: 2, class: "rdx-core-dot" }),
  ];
}

function dragMark(from, to, aspect) {
  const turn = (Math.atan2(to[1] - from[1], (to[0] - from[0]) * aspect) * 180) / Math.PI;
  const line = { x1: share(from[0]), y1: share(from[1]), x2: share(to[0]), y2: share(to[1]) };
  return [
    ...withHalo("line", line),
    ...withHalo("circle", { cx: line.x1, cy: line.y1, r: 5 }),
    ...arrowsAt(to, turn, [0]),
  ];
}

// Arrow heads in a row, rotated, in an svg of their own at a relative position.
function arrowsAt([x, y], turn, places) {
  const heads = places.map((place) => `translate(${place} 0)`);
  const drawn = heads.flatMap((transform) => withHalo("path", { d: ARROW, transform }));
  const turned = shape("g", { transform: `rotate(${turn})` }, ...drawn);
  return [shape("svg", { x: share(x), y: share(y), overflow: "visible" }, turned)];
}

// White under black, to be visible on any picture.
function withHalo(tag, attributes) {
  return ["rdx-halo", "rdx-core"].map((name) => shape(tag, { ...attributes, class: name }));
}

function share(value) {
  return `${100 * value}%`;
}

// A picture with its marker, or a sentence if it cannot be shown.

/** A picture from its bytes; `free` releases them.
 * @param {any} shot
 * @param {any} action
 * @param {{ alt: string, isSmall?: boolean }} look */
function pictureOf({ index, jpeg, bytes, mime = "image/jpeg", width, height, error }, action, { alt, isSmall }) {
  const node = element("span", { class: "rdx-picture" });
  const data = bytes ?? jpeg;
  const fail = (why) => {
    node.classList.add("rdx-broken");
    node.title = why;
    fill(node, isSmall ? "no picture" : sentence(`Screenshot ${index} cannot be shown. ${why}`));
  };
  if (!data || error) {
    fail(error?.message ?? error ?? "It is empty.");
    return { node, free() {} };
  }
  const url = URL.createObjectURL(new Blob([data], { type: mime }));
  const image = element("img", { src: url, alt, draggable: "false", decoding: "async" });
  image.addEventListener("error", () => fail("The browser cannot decode it."));
  node.style.setProperty("--ratio", width / height);
  fill(node, image, actionMarker(action, width, height), isSmall ? null : typedText(action));
  const free = () => {
    image.removeAttribute("src"); // it may not be loaded yet
    URL.revokeObjectURL(url);
  };
  return { node, free };
}

// At the text field if its place is known, else at the bottom of the picture.
function typedText(action) {
  if (action?.kind !== "type" || !action.text) return null;
  const node = element("span", { class: "rdx-typed" }, visible(action.text));
  if (isOnPicture(action.point)) {
    const [x, y] = action.point;
    node.style.cssText = `left:${share(Math.min(x, 0.6))};top:${share(Math.min(y, 0.85))};bottom:auto`;
  }
  return node;
}

// The screenshot in a dialog of the size of the window.

function lightbox(onWanted) {
  const stage = element("div", { class: "rdx-stage" });
  const caption = element("div", { class: "rdx-stage-caption" });
  const onSwap = () => draw(swap.getAttribute("aria-pressed") !== "true");
  const swap = pushButton({ class: "rdx-button", "aria-pressed": "false" }, onSwap, "Round before");
  const close = pushButton({ class: "rdx-button" }, () => toggle(false), "Close");
  const bar = element("div", { class: "rdx-stage-bar" }, caption, swap, close);
  const node = element("dialog", { class: "rdx-large", "aria-label": "Screenshot, large" }, bar, stage);
  let [views, picture] = [null, null];

  function show(newViews) {
    const isOther = views?.current?.round !== newViews.current?.round;
    views = newViews;
    if (node.open) draw(!isOther && swap.getAttribute("aria-pressed") === "true");
  }

  // Swapped in place, so that changes are visible.
  function draw(isBefore) {
    const view = isBefore ? views.before : views.current;
    swap.setAttribute("aria-pressed", isBefore);
    swap.hidden = !views.before?.shot;
    picture?.free();
    picture = view?.shot ? pictureOf(view.shot, view.round.action, { alt: screenName(view) }) : null;
    fill(stage, picture?.node ?? sentence("No screenshot before this round."));
    fill(caption, ...(view?.shot ? screenCaption(view) : []));
    if (view?.shot) onWanted(view.shot);
  }

  function toggle(isOpen) {
    if (isOpen === node.open || (isOpen && !views)) return;
    if (!isOpen) return node.close();
    node.showModal();
    draw(false);
  }

  node.addEventListener("click", (event) => {
    if (event.target === node || event.target === stage) toggle(false);
  });
  return { node, show, toggle, isOpen: () => node.open, free: () => picture?.free() };
}

// The screenshot of the current round with its action, and that of the round before.

const POINTING = ["click", "double_click", "drag", "move"];

function screenViewer({ onWanted }) {
  const seen = element("div", { class: "rdx-screens" });
  const large = lightbox(want);
  // The dialog must stay in the document, else it leaves the top layer.
  const node = element("section", { "aria-label": "Screenshot" }, seen, large.node);
  const full = new Map();
  let [views, now, live] = [null, null, []];

  function show(trajectory, round, shots) {
    if (now?.trajectory !== trajectory) full.clear();
    now = { trajectory, round, shots };
    const found = viewsOf(now, full);
    const isSame = (name) =>
      views[name]?.round === found[name]?.round && views[name]?.shot === found[name]?.shot;
    if (!views || !isSame("current") || !isSame("before")) draw();
  }

  // Replace a thumbnail by the full picture.
  function put(index, image) {
    full.set(index, { ...image, index });
    if ([views?.current, views?.before].some((view) => view?.shot?.index === index)) draw();
  }

  function draw() {
    live.forEach((picture) => picture.free());
    live = [];
    views = viewsOf(now, full);
    const { width, height } = views.current?.shot ?? {};
    // Reserve the shape: the next one is probably the same.
    if (width) seen.style.setProperty("--ratio", width / height);
    fill(seen, ...screenNodes(views, now, largeButton, figureOf));
    large.show(views);
    if (views.current?.shot) want(views.current.shot);
  }

  function want({ index }) {
    if (!full.has(index)) onWanted(index);
  }

  function figureOf(view, name) {
    const picture = pictureOf(view.shot, view.round.action, { alt: name });
    live.push(picture);
    return picture.node;
  }

  function largeButton(picture) {
    const title = "Show large (f)";
    return pushButton({ class: "rdx-enlarge", title, "aria-label": title }, () => large.toggle(true), picture);
  }

  const free = () => [...live, large].forEach((one) => one.free());
  return { node, show, put, large: (open) => large.toggle(open), isLarge: large.isOpen, free };
}

/** The current round and the one before, each with the best available picture. */
function viewsOf({ trajectory, round, shots }, full) {
  const at = trajectory.rounds.findIndex((one) => one.round === round);
  const shotOf = (index) => full.get(index) ?? shots?.find((shot) => shot.index === index);
  const view = (one) => one && { round: one, shot: shotOf(one.screenshot) };
  return { current: view(trajectory.rounds[at]), before: view(trajectory.rounds[at - 1]) };
}

function screenNodes({ current, before }, { trajectory }, largeButton, figureOf) {
  if (!current) return [sentence("No round selected.")];
  if (trajectory.rounds.every((round) => round.screenshot === null)) {
    const num = trajectory.num_unplaced;
    const others = trajectory.with_screenshots;
    const none = `This sample has no screenshots${others ? `; ${pluralize(others, "other")} of the batch ${others === 1 ? "has" : "have"} some` : ""}.`;
    return [sentence(num ? `${pluralize(num, "screenshot")}, round unknown.` : none)];
  }
  const { round, screenshot } = current.round;
  if (screenshot === null) return [sentence(`No screenshot before round ${round}.`)];
  if (!current.shot) return [screenFigure(current, comingPicture(screenshot), "rdx-current")];
  const isSame = before?.round.screenshot === current.round.screenshot;
  return [
    screenFigure(current, largeButton(figureOf(current, screenName(current))), "rdx-current"),
    isSame && sentence(`Same screenshot as round ${before.round.round}.`),
    before?.shot && !isSame && screenFigure(before, figureOf(before, screenName(before)), "rdx-before"),
  ];
}

function comingPicture(index) {
  const text = `Loading screenshot ${index}…`;
  return element("div", { class: "rdx-picture rdx-coming", role: "status" }, text);
}

function screenFigure(view, picture, name) {
  const node = element("figure", { class: name }, picture, element("figcaption", {}, ...screenCaption(view)));
  if (view.shot?.width) node.style.setProperty("--ratio", view.shot.width / view.shot.height);
  return node;
}

function screenName({ round, shot }) {
  return `Screenshot ${shot.index}, before round ${round.round}: ${visible(round.action.label)}`;
}

function screenCaption({ round, shot }) {
  const { action } = round;
  const isLost = POINTING.includes(action.kind) && !action.point && !action.end_point;
  const size = shot?.width ? `${shot.width} × ${shot.height}` : "";
  return [
    element("b", {}, `round ${round.round}`),
    element("span", { class: "rdx-caption-action" }, visible(action.label)),
    isLost && element("span", { class: "rdx-note" }, "coordinates unknown or outside the screenshot"),
    element("span", { class: "rdx-facts" }, size),
  ];
}
