// Everything on the page is made here. Text becomes text nodes: nothing of it can run.

/** Make an element. Keys of `on` are listened to; `true` sets an attribute without a
 * value; what is null, undefined or false is left out, of the children too. */
function element(tag, { on = {}, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  node.append(...children.flat().filter(isThere));
  return node;
}

/** Make a shape of SVG. */
function shape(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

function setAttribute(node, name, value) {
  if (isThere(value)) node.setAttribute(name, value === true ? "" : value);
}

function isThere(value) {
  return value !== null && value !== undefined && value !== false;
}

/** Put other children into a node. */
function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter(isThere));
}

// Each explorer of a page reads these files anew: counts would begin anew too.
function uniqueName(kind) {
  return `rdx-${kind}-${Math.random().toString(36).slice(2)}`;
}

/** A sentence where there is nothing to show. */
function sentence(...children) {
  return element("p", { class: "rdx-empty" }, ...children);
}

/** Write a value with three significant digits, as the figures do. */
function number(value) {
  // What is not finite is null where it came as JSON.
  if (!Number.isFinite(value)) return value > 0 ? "∞" : value < 0 ? "-∞" : "not finite";
  const [digits, power] = roundedToThree(value);
  if (power < -4 || power > 5) {
    const sign = power < 0 ? "-" : "+";
    return `${Number(digits)}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  return Number(`${digits}e${power}`).toLocaleString("en-US", { maximumFractionDigits: 6 });
}

// Numbers of few bits, 1.125 say, are often just between two: Python takes the even one.
function roundedToThree(value) {
  const [digits, power] = value.toExponential(2).split("e");
  const isTie = /^-?\d\.\d\d50*e/.test(value.toExponential(30));
  const isOdd = Number(digits.at(-1)) % 2 === 1;
  const even = Math.sign(value) * (Math.abs(digits) - 0.01);
  return [isTie && isOdd ? even.toFixed(2) : digits, Number(power)];
}

/** Write a value with its sign, so that a column of them can be compared. */
function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

/** Write a count with its noun, which takes an s unless there is one of it. */
function counted(count, noun) {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}

/** Scroll a box, and nothing around it, until a node inside is seen, so far from the
 * edges if that is at most a quarter of the box. */
function reveal(box, node, margin = 24) {
  const [around, inside] = [box.getBoundingClientRect(), node.getBoundingClientRect()];
  const nearest = (start, end, from, to, room) =>
    start < from + room ? start - from - room : end > to - room ? end - to + room : 0;
  const room = (size) => Math.min(margin, size / 4);
  box.scrollBy({
    top: nearest(inside.top, inside.bottom, around.top, around.bottom, room(around.height)),
    left: nearest(inside.left, inside.right, around.left, around.right, room(around.width)),
  });
}

/** Let arrow keys, Home and End walk over the controls of a group. */
function walkWithArrows(group, controls, onReach) {
  group.addEventListener("keydown", (event) => {
    const all = controls();
    const at = all.indexOf(event.target.closest("button"));
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const next = { Home: 0, End: all.length - 1 }[event.key] ?? at + step;
    if (at < 0 || Number.isNaN(next)) return;
    event.preventDefault();
    event.stopPropagation();
    const reached = all[Math.max(0, Math.min(all.length - 1, next))];
    reached.focus({ preventScroll: true });
    onReach(reached);
  });
}
