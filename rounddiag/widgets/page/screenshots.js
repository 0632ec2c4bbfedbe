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

/** The frames that numbers of an action can be in, and their size on a picture. */
const FRAMES = { pixels: "pixels", thousand: "0 to 1000", unit: "0 to 1" };
const FRAME_SIZES = { thousand: [1000, 1000], unit: [1, 1] };

/** An action with its points read in another frame; null for that of its grammar. */
function readAction(action, frame) {
  const { written_points: written, frame: own, size } = action;
  if (!written || !frame || frame === own) return action;
  const whole = FRAME_SIZES[frame] ?? size;
  const shares = (point) => point && whole && point.map((value, at) => value / whole[at]);
  return { ...action, point: shares(written.point), end_point: shares(written.end_point) };
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
  const swap = pushButton({ class: "rdx-button", "aria-pressed": "false" }, onSwap, "After the action (a)");
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
  function draw(isAfter) {
    const view = isAfter ? views.after : views.current;
    swap.setAttribute("aria-pressed", isAfter);
    swap.hidden = !views.after?.shot;
    picture?.free();
    picture = view?.shot ? viewedPicture(view, views) : null;
    fill(stage, picture?.node ?? sentence("No screenshot before this round."));
    fill(caption, ...(view?.shot ? screenCaption(view) : []), view?.sight && sightScale(view.sight));
    if (view?.shot) onWanted(view.shot);
  }

  function toggle(isOpen) {
    if (isOpen === node.open || (isOpen && !views)) return;
    if (!isOpen) return node.close();
    node.showModal();
    draw(!views.current?.shot && Boolean(views.after?.shot));
  }

  node.addEventListener("click", (event) => {
    if (event.target === node || event.target === stage) toggle(false);
  });
  return { node, show, toggle, swap: onSwap, isOpen: () => node.open, free: () => picture?.free() };
}

// The screenshot of the current round with its action, and the one that it led to.

// In pixels: a caption, the gap to the panel below, the least height of a picture, and
// the least width of two where no plot is beside them.
const [CAPTION, PANEL_GAP, LEAST_TALL, LEAST_WIDE] = [24, 6, 100, 520];
const POINTING = ["click", "double_click", "drag", "move"];

/** `onFrame` gets the frame in which the numbers of actions are read. */
function screenViewer({ onWanted, onFrame = (_frame) => {}, onSample = (_sample) => {}, onSight = (_isOn) => {} }) {
  const seen = element("div", { class: "rdx-screens" });
  const large = lightbox(want);
  // The dialog must stay in the document, else it leaves the top layer.
  const node = element("section", { "aria-label": "Screenshot" }, seen, large.node);
  const full = new Map();
  let [views, now, live, frame] = [null, null, [], null];
  let stepped = null; // to an earlier picture of the context
  let isSight = false; // whether tiles are over the screenshot

  function show(trajectory, round, shots) {
    if (now?.trajectory !== trajectory) full.clear();
    if (now?.trajectory !== trajectory || now.round !== round) stepped = null;
    now = { trajectory, round, shots };
    const next = viewsOf(now, full, frame, stepped);
    const isSame = (name) =>
      views[name]?.round === next[name]?.round && views[name]?.shot === next[name]?.shot;
    if (!views || !isSame("current") || !isSame("after")) draw();
  }

  // Replace a thumbnail by the full picture.
  function put(index, image) {
    if (image.error && now.shots.some((shot) => shot.index === index)) return;
    full.set(index, { ...image, index });
    if ([views?.current, views?.after].some((view) => view?.index === index)) draw();
  }

  // To the next picture that the model saw before the round, or the one before.
  function step(by) {
    if (!views?.current) return;
    const pictures = picturesOf(views.current.round);
    const place = pictures.indexOf(views.current.index) + by;
    if (place < 0 || place >= pictures.length) return;
    stepped = pictures[place];
    delete seen.dataset.after;
    want({ index: stepped });
    draw();
  }

  // Which picture of the context is shown, between buttons that step.
  function stepper({ round, index }) {
    const pictures = picturesOf(round);
    if (pictures.length < 2) return null;
    const place = pictures.indexOf(index);
    const button = (sign, by, title) => pushButton({ title, "aria-label": title, disabled: !(place + by in pictures) }, () => step(by), sign);
    const count = `${place + 1} of ${pictures.length}`;
    return element("span", { class: "rdx-chip rdx-stepper", title: `Pictures that the model saw before this round: ${count}` }, button("‹", -1, "Picture before (,)"), element("span", {}, count), button("›", 1, "Next picture (.)"));
  }

  function draw() {
    live.forEach((picture) => picture.free());
    live = [];
    views = viewsOf(now, full, frame, stepped);
    if (isSight && views.current) views.current.sight = sightOf(now.trajectory, now.round, views.current.index);
    const { width, height } = views.current?.shot ?? {};
    // Reserve the shape: the next one is probably the same.
    if (width) seen.style.setProperty("--ratio", width / height);
    fill(seen, ...screenNodes(views, now, { largeButton, figureOf, swap, frameChip, sightBar, stepper, onSample }));
    if (!views.after?.shot) delete seen.dataset.after;
    arrange();
    large.show(views);
    for (const view of [views.current, views.after]) if (view?.shot) want(view.shot);
  }

  function want({ index }) {
    if (!full.has(index)) onWanted(index);
  }

  function figureOf(view) {
    const picture = viewedPicture(view, views);
    live.push(picture);
    return picture.node;
  }

  function largeButton(picture) {
    return pushButton({ class: "rdx-enlarge", title: "Show large (f)" }, () => large.toggle(true), picture);
  }

  // Large: before and after above each other, side by side, or in one place, whichever
  // fills more of the pane. The height of the panel below is the largest that it had.
  const room = { width: 0, height: 0, panel: 0 };
  const follow = new ResizeObserver((changes) => {
    for (const { target, contentRect: { width, height } } of changes) {
      if (target.contains(node)) Object.assign(room, { width, height, panel: width === room.width ? room.panel : 0 });
      else if (!target.querySelector("details[open]")) room.panel = Math.max(room.panel, height - barsHeight(target));
    }
    arrange();
  });

  // The bars of an answer are scrolled to, instead of a smaller picture.
  const barsHeight = (panel) => panel.querySelector(".rdx-answer:has(.rdx-likely)")?.offsetHeight ?? 0;

  function arrange() {
    if (!room.width) return;
    const { width, height } = views?.current?.shot ?? {};
    const ratio = width ? width / height : 1.5;
    const free = Math.max(LEAST_TALL, room.height - room.panel - CAPTION - PANEL_GAP);
    const isTall = ratio < 1; // fits its width, but is no larger than it was, and scrolls
    const alone = isTall ? Math.min(room.width / ratio, Math.max(height, free)) : Math.min(free, room.width / ratio);
    const [beside, below] = [Math.min(free, (room.width - 16) / 2 / ratio), Math.min((free - CAPTION) / 2, room.width / ratio)];
    const paired = Math.max(beside, below);
    const hasTwo = !isTall && Boolean(views?.after?.shot) && paired * ratio > (node.closest("[data-plain]") ? LEAST_WIDE : SIDE_ROOM[0]) && 2 * paired ** 2 > alone ** 2; // of areas
    seen.dataset.arranged = hasTwo ? "two" : "one";
    seen.style.setProperty("--tall", `${Math.floor(hasTwo ? paired : alone)}px`);
    seen.style.setProperty("--across", hasTwo && beside >= below ? "calc(50% - 8px)" : "100%");
    const { point } = views?.current?.action ?? {};
    if (isTall) node.parentElement.scrollTop = isOnPicture(point) ? point[1] * alone - free / 2 : 0;
  }

  /** Follow the size of the pane, and of the panel that shares it. */
  function fitInto(pane, panel) {
    for (const part of [pane, panel]) follow.observe(part);
  }

  // Before and after, in one place where there is no room for both.
  function swap() {
    if (large.isOpen()) return large.swap();
    if (views?.after?.shot) seen.toggleAttribute("data-after");
    return undefined;
  }

  // What the numbers of the action count, where it has any; a click reads them as the next.
  function frameChip() {
    const { action } = views.current.round;
    if (!action.written_points || views.current.place) return null;
    const names = Object.keys(FRAMES);
    const now = frame ?? action.frame;
    const next = names[(names.indexOf(now) + 1) % names.length];
    const title = `The numbers of all actions are read as ${FRAMES[now]}; their grammar says ${FRAMES[action.frame]}. A click reads them as ${FRAMES[next]}.`;
    return pushButton({ class: "rdx-chip rdx-frame", title, "aria-pressed": String(now !== action.frame) }, () => onFrame(next === action.frame ? null : next), FRAMES[now]);
  }

  // Where the model looked, with the scale; of a picture of which the answer has a map.
  function sightBar({ round, index, sight }) {
    if (!sightOf(now.trajectory, round.round, index)) return sight === null && element("div", { class: "rdx-note" }, "no map of sight");
    const button = pushButton({ class: "rdx-chip", title: "Where the model looked (v)", "aria-pressed": String(isSight) }, () => onSight(!isSight), "sight");
    return element("div", { class: "rdx-sight-bar" }, button, sight && sightScale(sight));
  }

  function setFrame(newFrame) {
    if (newFrame === frame) return;
    frame = newFrame;
    if (now) draw();
  }

  function setSight(isOn) {
    if (isOn === isSight) return;
    isSight = isOn;
    if (now) draw();
  }

  const free = () => {
    follow.disconnect();
    [...live, large].forEach((picture) => picture.free());
  };
  return { node, show, put, swap, step, fitInto, setFrame, setSight, large: (open) => large.toggle(open), isLarge: large.isOpen, free };
}

/** The numbers of the pictures that the model saw before a round. */
function picturesOf({ pictures = [] }) {
  return pictures.flatMap(([first, stop]) => Array.from({ length: stop - first }, (_, at) => first + at));
}

/** The current round and what it led to, each with the best available picture; or an
 * earlier picture of its context, to which one has stepped. */
function viewsOf({ trajectory, round: number, shots }, full, frame, stepped = null) {
  const round = roundOf(trajectory, number);
  const viewOf = (index, action) => ({ round, action, index, shot: full.get(index) ?? shots?.find((shot) => shot.index === index) });
  if (round && stepped !== null && stepped !== round.screenshot) {
    const [pictures, from] = [picturesOf(round), trajectory.rounds.find((earlier) => picturesOf(earlier).includes(stepped))];
    const place = `picture ${pictures.indexOf(stepped) + 1} of ${pictures.length}, from round ${from.round}`;
    return { current: { ...viewOf(stepped, null), place }, after: null };
  }
  return {
    current: round && viewOf(round.screenshot, readAction(round.action, frame)),
    after: (round?.after ?? null) === null ? null : viewOf(round.after, null),
  };
}

/** A picture of a view; of the one after an action, what did not change is dim. */
function viewedPicture(view, views) {
  const picture = pictureOf(view.shot, view.action, { alt: screenName(view) });
  if (view.sight) picture.node.querySelector("img")?.after(sightLayer(view.sight, view.shot));
  // The veil has the colour of the paper, which is known in the document.
  if (!view.action && !view.place) queueMicrotask(() => picture.node.append(...changeVeil(view.shot, picture.node)));
  return picture;
}

// What an action changed is clear, the more the clearer: a veil is over all else.
function changeVeil({ changes }, node) {
  const { columns, sizes } = changes ?? { sizes: [] };
  const largest = Math.max(0, ...sizes);
  if (!largest) return [];
  const veil = element("canvas", { class: "rdx-veil", width: columns, height: sizes.length / columns, "aria-hidden": "true" });
  const context = veil.getContext("2d");
  context.fillStyle = getComputedStyle(node).getPropertyValue("--paper");
  sizes.forEach((size, at) => {
    context.globalAlpha = 1 - size / largest;
    context.fillRect(at % columns, Math.floor(at / columns), 1, 1);
  });
  return [veil];
}

function changeText({ changes }) {
  if (!changes) return "";
  const share = changes.sizes.filter(Boolean).length / changes.sizes.length;
  return share ? `${percent(share)} changed` : "nothing changed";
}

function screenNodes({ current, after }, { trajectory }, { largeButton, figureOf, swap, frameChip, sightBar, stepper, onSample }) {
  if (!current) return [sentence("No round selected.")];
  if (trajectory.rounds.every((round) => round.screenshot === null)) return [noScreenshots(trajectory, onSample)];
  const { round, screenshot } = current.round;
  if (screenshot === null) return [sentence(`No screenshot before round ${round}.`), after?.shot && screenFigure(after, largeButton(figureOf(after)), "rdx-current")];
  if (!current.shot) return [screenFigure(current, comingPicture(current.index), "rdx-current", [stepper(current)])];
  const before = trajectory.rounds[trajectory.rounds.indexOf(current.round) - 1];
  const button = (text) => after?.shot && pushButton({ class: "rdx-chip rdx-swap", title: "Before and after the action (a)" }, swap, text);
  return [
    screenFigure(current, largeButton(figureOf(current)), "rdx-current", [stepper(current), frameChip(), button("after ›")]),
    !current.place && before?.screenshot === screenshot && sentence(`Same screenshot as round ${before.round}.`),
    after?.shot && screenFigure(after, largeButton(figureOf(after)), "rdx-after", [button("‹ before")]),
    sightBar(current),
  ];
}

/** `onSample` goes to the next sample that has some. */
function noScreenshots({ num_unplaced: num, with_screenshots: others = [], sample }, onSample) {
  if (num) return sentence(`${pluralize(num, "screenshot")}, round unknown.`);
  if (!others.length) return sentence("This sample has no screenshots.");
  const next = others.find((mate) => mate > sample) ?? others[0];
  const words = `${pluralize(others.length, "other")} of the batch`;
  return sentence("This sample has no screenshots; ", pushButton({ class: "rdx-unfold", title: `Go to sample ${next}` }, () => onSample(next), words), ` ${others.length === 1 ? "has" : "have"} some.`);
}

function comingPicture(index) {
  const text = `Loading screenshot ${index}…`;
  return element("div", { class: "rdx-picture rdx-coming", role: "status" }, text);
}

function screenFigure(view, picture, name, buttons = []) {
  const node = element("figure", { class: name }, picture, element("figcaption", {}, ...screenCaption(view), buttons));
  if (view.shot?.width) node.style.setProperty("--ratio", view.shot.width / view.shot.height);
  return node;
}

function screenName({ round, action, shot, place }) {
  if (place) return `Screenshot ${shot.index}, ${place}`;
  const label = visible(round.action.label);
  return `Screenshot ${shot.index}, ${action ? "before" : "after"} round ${round.round}: ${label}`;
}

function screenCaption({ round, action, shot, place }) {
  const isLost = POINTING.includes(action?.kind) && ![action.point, action.end_point].some(isOnPicture);
  const size = shot?.width ? `${shot.width} × ${shot.height}` : "";
  return [
    element("b", {}, place ?? `${action ? "" : "after "}round ${round.round}`),
    action && element("span", { class: "rdx-caption-action", title: visible(action.line ?? "") }, visible(action.label)),
    isLost && element("span", { class: "rdx-note" }, "coordinates unknown or outside the screenshot"),
    !action && !place && element("span", { class: "rdx-changed" }, changeText(shot ?? {})),
    element("span", { class: "rdx-facts" }, size),
  ];
}
