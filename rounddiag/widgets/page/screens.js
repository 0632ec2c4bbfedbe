// The screenshot of a round with what was done on it, and the one of the round before.

const POINTING = ["click", "double_click", "drag", "move"];

function screenViewer({ onLarge, onWanted = () => {} }) {
  const seen = element("div", { class: "rdx-screens" });
  const large = lightbox({ onToggle: onLarge, onWanted: want });
  // What is large must stay in the page: it would fall out of its layer.
  const node = element("section", { "aria-label": "Screenshot" }, seen, large.node);
  const full = new Map();
  let [views, now, live] = [null, null, []];

  function show(trajectory, round, shots) {
    if (now?.trajectory !== trajectory) full.clear();
    now = { trajectory, round, shots };
    const found = viewsOf(now, full);
    const isSame = (name) =>
      views?.[name]?.round === found[name]?.round && views?.[name]?.shot === found[name]?.shot;
    if (!views || !isSame("current") || !isSame("before")) draw();
  }

  // A picture in full, in place of its thumbnail.
  function put(index, image) {
    full.set(index, { ...image, index });
    if ([views?.current, views?.before].some((view) => view?.shot?.index === index)) draw();
  }

  function draw() {
    live.forEach((picture) => picture.free());
    live = [];
    views = viewsOf(now, full);
    const { width, height } = views.current?.shot ?? {};
    // The next one will likely have the same shape.
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
    return element(
      "button",
      {
        type: "button",
        class: "rdx-enlarge",
        title,
        "aria-label": title,
        on: { click: () => large.toggle(true) },
      },
      picture,
    );
  }

  const free = () => [...live, large].forEach((one) => one.free());
  return { node, show, put, large: (open) => large.toggle(open), isLarge: large.isOpen, free };
}

/** What is seen in a round and in the one before: the round, and the best picture. */
function viewsOf({ trajectory, round, shots }, full) {
  const at = trajectory.rounds.findIndex((one) => one.round === round);
  const view = (one) =>
    one && {
      round: one,
      shot: full.get(one.screenshot) ?? shots?.find(({ index }) => index === one.screenshot),
    };
  return { current: view(trajectory.rounds[at]), before: view(trajectory.rounds[at - 1]) };
}

function screenNodes({ current, before }, { trajectory }, largeButton, figureOf) {
  const without = trajectory.rounds.every((round) => round.screenshot === null);
  if (!current) return [sentence("No round is chosen.")];
  if (without) return [sentence("This sample has no screenshots.")];
  const { round, screenshot } = current.round;
  if (screenshot === null) return [sentence(`No screenshot was seen before round ${round}.`)];
  if (!current.shot) return [screenFigure(current, comingPicture(screenshot), "rdx-current")];
  const isSame = before?.round.screenshot === current.round.screenshot;
  return [
    screenFigure(current, largeButton(figureOf(current, screenName(current))), "rdx-current"),
    isSame && sentence(`Round ${before.round.round} had the same screenshot.`),
    before?.shot &&
      !isSame &&
      screenFigure(before, figureOf(before, screenName(before)), "rdx-before"),
  ];
}

function comingPicture(index) {
  const text = `Screenshot ${index} is on its way.`;
  return element("div", { class: "rdx-picture rdx-coming", role: "status" }, text);
}

function screenFigure(view, picture, name) {
  const node = element(
    "figure",
    { class: name },
    picture,
    element("figcaption", {}, ...screenCaption(view)),
  );
  if (view.shot?.width) node.style.setProperty("--ratio", view.shot.width / view.shot.height);
  return node;
}

function screenName({ round, shot }) {
  return `Screenshot ${shot.index}, seen before round ${round.round}: ${visible(round.action.label)}`;
}

function screenCaption({ round, shot }) {
  const { action } = round;
  const isLost = POINTING.includes(action.kind) && !action.point && !action.end_point;
  const size = shot?.width ? `${shot.width} × ${shot.height}` : "";
  return [
    element("b", {}, `round ${round.round}`),
    element("span", { class: "rdx-caption-action" }, visible(action.label)),
    isLost &&
      element("span", { class: "rdx-note" }, "its place is not known, or not on the picture"),
    element("span", { class: "rdx-facts" }, size),
  ];
}
