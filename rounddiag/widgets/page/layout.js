// @ts-check
// Sizes of the explorer and its panes, moved by the mouse or with arrow keys. They are
// part of the state in Python.
const HEIGHTS = [520, 1200];
const SHARES = { columns: [0.2, 0.7], side: [0.2, 0.7] };
const DRAWER_HEIGHTS = [90, 520];
const KEY_STEP = 24; // pixels
// Up to this width a pane has little room, and from this one on it has much.
const READING_ROOM = [360, Infinity];
const SIDE_ROOM = [215, 480];
const OPEN_DRAWER_FROM = [1400, 800]; // width and height

/** `nodes` has the explorer, its `main`, `overview`, `sample`, `reading`, `side` and drawer;
 * `onChange` gets what was changed by hand; `onResize` follows the window. */
function paneLayout(nodes, onChange, onResize) {
  let layout = {};
  const rooms = [paneRoom(nodes.reading, READING_ROOM), paneRoom(nodes.side, SIDE_ROOM)];
  const area = () => nodes.root.closest(".jp-WindowedPanel-outer, .jp-Notebook")?.clientHeight ?? innerHeight;
  const height = () => Math.round(layout.height ?? clamp(0.9 * area(), ...HEIGHTS));
  const share = (name) => (layout[name] ? `${(100 * layout[name]).toFixed(2)}%` : null);

  function apply() {
    setVariable(nodes.root, "--height", `${height()}px`);
    setVariable(nodes.main, "--columns", share("columns"));
    setVariable(nodes.sample, "--side", share("side"));
    setVariable(nodes.root, "--drawer", layout.drawer && `${layout.drawer}px`);
  }

  function set(name, value) {
    layout = { ...layout, [name]: value };
    apply();
  }

  // Of a node within another, in shares of its width; of any other, in pixels of height.
  // `sign` is -1 where the node is at the right of its splitter, or below it.
  /** @param {string} name @param {string} label
   * @param {{ of: HTMLElement, within?: HTMLElement, ends: number[], sign?: number }} what */
  const splitter = (name, label, { of, within, ends, sign = 1 }) => {
    const attributes = {
      class: `rdx-splitter rdx-split-${name}`,
      role: "separator",
      tabindex: 0,
      "aria-orientation": within ? "vertical" : "horizontal",
      "aria-label": label,
      ...spoken(ends[0], ends, within),
    };
    const node = element("div", attributes);
    const box = (other) => other.getBoundingClientRect()[within ? "width" : "height"];
    const move = (from, by) => {
      const size = from + sign * by;
      set(name, within ? clamp(size / box(within), ...ends) : Math.round(clamp(size, ...ends)));
    };
    const tell = () => onChange({ [name]: layout[name] });
    node.addEventListener("pointerdown", (event) => {
      const [from, before] = [within ? event.clientX : event.clientY, box(of)];
      node.setPointerCapture(event.pointerId);
      node.onpointermove = (to) => move(before, (within ? to.clientX : to.clientY) - from);
      node.onlostpointercapture = () => {
        node.onpointermove = node.onlostpointercapture = null;
        tell();
      };
    });
    node.addEventListener("keydown", (event) => {
      const keys = within ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
      const step = [-KEY_STEP, KEY_STEP][keys.indexOf(event.key)];
      if (!step) return;
      event.stopPropagation();
      event.preventDefault();
      move(box(of), step);
      tell();
    });
    const sized = new ResizeObserver(() => {
      const size = within ? box(of) / box(within) : box(of);
      for (const [key, value] of Object.entries(spoken(size, ends, within))) node.setAttribute(key, value);
    });
    for (const resized of [of, within]) if (resized) sized.observe(resized);
    rooms.push(sized);
    return node;
  };
  const splitters = {
    height: splitter("height", "Height of the explorer", { of: nodes.root, ends: HEIGHTS }),
    columns: splitter("columns", "Width of the overview", { of: nodes.overview, within: nodes.main, ends: SHARES.columns }),
    side: splitter("side", "Width of the screenshot", { of: nodes.side, within: nodes.sample, ends: SHARES.side, sign: -1 }),
    drawer: splitter("drawer", "Height of the drawer", { of: nodes.drawer, ends: DRAWER_HEIGHTS, sign: -1 }),
  };
  nodes.main.insertBefore(splitters.columns, nodes.main.lastChild);
  nodes.sample.append(splitters.side);
  nodes.drawer.before(splitters.drawer);
  nodes.root.append(splitters.height);
  function follow() {
    apply();
    onResize();
  }

  addEventListener("resize", follow);
  return {
    show: (newLayout) => {
      layout = newLayout;
      apply();
    },
    // Which list is open: where there is room the first one, unless it was closed.
    list: (first, [leastWide, leastHigh] = OPEN_DRAWER_FROM) => {
      if (layout.list) return layout.list === "closed" ? null : layout.list;
      const { width: wide, height: high } = nodes.root.getBoundingClientRect();
      return first && wide >= leastWide && high >= leastHigh ? first : null;
    },
    set: (changes) => (layout = { ...layout, ...changes }),
    close: () => {
      removeEventListener("resize", follow);
      for (const room of rooms) room.disconnect();
    },
  };
}

/** Tell the style of a pane whether it has little or much width, and its height.
 * @param {HTMLElement} node
 * @param {number[]} room */
function paneRoom(node, [little, much]) {
  const follow = new ResizeObserver(() => {
    const { clientWidth: width, clientHeight: height } = node;
    node.dataset.room = width <= little ? "little" : width >= much ? "much" : "some";
    node.style.setProperty("--pane-height", `${height}px`);
  });
  follow.observe(node);
  return follow;
}

/** A size and its ends as a splitter says them: percent, or pixels. */
function spoken(size, ends, isShare) {
  const [now, min, max] = [size, ...ends].map((value) => Math.round(isShare ? 100 * value : value));
  return { "aria-valuenow": now, "aria-valuemin": min, "aria-valuemax": max };
}

function setVariable(node, name, value) {
  if (value) node.style.setProperty(name, value);
  else node.style.removeProperty(name);
}
