// What an action does, drawn on the picture that it was chosen from. Places are shares
// of the picture and sizes are pixels of the screen: true and round at every size.

const ARROW = "M -9 -6 L 0 0 L -9 6";
const TURNS = { right: 0, down: 90, left: 180, up: 270 };

/** The overlay of an action, or null where it has no place. */
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
  return shapes.length
    ? shape("svg", { class: "rdx-marker", "aria-hidden": "true" }, ...shapes)
    : null;
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

// Arrow heads in a row, turned; inside an svg of their own they stand at a share.
function arrowsAt([x, y], turn, places) {
  const heads = places.map((place) => `translate(${place} 0)`);
  const drawn = heads.flatMap((transform) => withHalo("path", { d: ARROW, transform }));
  const turned = shape("g", { transform: `rotate(${turn})` }, ...drawn);
  return [shape("svg", { x: share(x), y: share(y), overflow: "visible" }, turned)];
}

// White under dark: one of them is seen on any picture.
function withHalo(tag, attributes) {
  return ["rdx-halo", "rdx-core"].map((name) => shape(tag, { ...attributes, class: name }));
}

function share(value) {
  return `${100 * value}%`;
}
