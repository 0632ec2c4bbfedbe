// @ts-check
// The line of steps of a run: the mean |diff| and the verdict of each, marks where rounds
// change. A click, arrow keys, and `[` and `]` go to another step.
const STEP_DELAY = 120; // while a key is held, only the last step is opened
const [STEPS_WIDTH, STEPS_HEIGHT] = [1000, 100];

function stepLine(onStep) {
  const plot = shape("svg", { viewBox: `0 0 ${STEPS_WIDTH} ${STEPS_HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const ends = [element("span", { class: "rdx-steps-first" }), element("span", { class: "rdx-steps-last" })];
  const slider = element("div", { class: "rdx-steps-line", role: "slider", tabindex: 0, "aria-label": "Step" }, plot, ...ends);
  const axis = element("div", { class: "rdx-steps-axis", title: "mean |diff| in nats, logarithmic" }, element("span", {}), element("span", {}));
  const text = element("output", { class: "rdx-steps-now" });
  const button = (sign, by, key) => {
    const name = by > 0 ? "Next step" : "Previous step";
    return pushButton({ class: "rdx-button", title: `${name} (${key})`, "aria-label": name }, () => move(by), sign);
  };
  const buttons = [button("‹", -1, "["), button("›", 1, "]")];
  const node = element("div", { class: "rdx-steps", hidden: true, "aria-label": "Steps" }, axis, buttons[0], slider, buttons[1], text);
  let [line, at, opened, timer] = [null, 0, null, 0];
  const verdicts = new Map(); // by step; those of a run that is diagnosed, and of opened steps

  const x = (step) => {
    const [first, last] = [line.steps[0], line.steps.at(-1)];
    return last > first ? ((step - first) / (last - first)) * STEPS_WIDTH : STEPS_WIDTH / 2;
  };

  function nearest(clientX) {
    const { left, width } = slider.getBoundingClientRect();
    const place = ((clientX - left) / width) * STEPS_WIDTH;
    const distances = line.steps.map((step) => Math.abs(x(step) - place));
    return distances.indexOf(Math.min(...distances));
  }

  function describe(index) {
    const [step, mean] = [line.steps[index], line.means[index]];
    const size = mean === null ? "no finite diff" : `mean |diff| ${number(mean)} nat`;
    const verdict = verdicts.has(step) ? `, ${verdicts.get(step).replace("_", " ")}` : "";
    return `step ${groupDigits(step)}, ${groupDigits(index + 1)} of ${groupDigits(line.steps.length)}: ${size}${verdict}`;
  }

  function mark() {
    text.textContent = describe(at);
    slider.setAttribute("aria-valuenow", line.steps[at]);
    slider.setAttribute("aria-valuetext", describe(at));
    buttons[0].disabled = at === 0;
    buttons[1].disabled = at === line.steps.length - 1;
    const now = plot.querySelector(".rdx-step-now");
    for (const end of ["x1", "x2"]) now.setAttribute(end, x(line.steps[at]));
  }

  function goTo(index) {
    if (!line || index < 0 || index >= line.steps.length || index === at) return;
    at = index;
    mark();
    clearTimeout(timer);
    timer = setTimeout(() => open(line.steps[at]), STEP_DELAY);
  }

  // A step that cannot be read leaves the one before open.
  async function open(step) {
    await onStep(step);
    if (line.steps[at] !== step || opened === step) return;
    at = line.steps.indexOf(opened);
    mark();
  }

  const move = (by) => goTo(at + by);

  function draw() {
    const sizes = line.means.map((mean) => (mean === null ? null : Math.log10(Math.max(mean, 1e-6))));
    const known = sizes.filter((size) => size !== null);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const y = (size) => STEPS_HEIGHT - 38 - (high > low ? (size - low) / (high - low) : 0.5) * (STEPS_HEIGHT - 50); // steps are named below
    const vertical = (place, name) => shape("line", { class: name, x1: place, x2: place, y1: 0, y2: STEPS_HEIGHT });
    const points = line.steps.map((step, index) => sizes[index] !== null && `${x(step)},${y(sizes[index])}`);
    // Hollow: not judged yet; the colour is then that of its level.
    const isBad = (index) => BAD_VERDICTS.includes(verdicts.get(line.steps[index])) || (!verdicts.has(line.steps[index]) && line.raised[index]);
    const dots = (name, isOne) => shape("path", { class: `rdx-step-dots ${name}`, d: points.filter((point, index) => point && isOne(index)).map((point) => `M${point}h0`).join("") });
    fill(axis.firstChild, high > low && number(10 ** high));
    fill(axis.lastChild, number(10 ** low));
    ends.forEach((end, side) => (end.textContent = groupDigits(line.steps.at(-side))));
    plot.replaceChildren(
      ...line.marks.map(({ at: step }) => vertical(x(step), "rdx-step-mark")),
      shape("polyline", { class: "rdx-step-means", points: points.filter(Boolean).join(" ") }),
      dots("", (index) => !isBad(index)),
      dots("rdx-raised", isBad),
      dots("rdx-unjudged", (index) => !verdicts.has(line.steps[index])),
      vertical(x(line.now), "rdx-step-now"),
    );
    slider.setAttribute("aria-valuemin", line.steps[0]);
    slider.setAttribute("aria-valuemax", line.steps.at(-1));
  }

  // Return whether another step than before is open; without a run there is no line.
  function show(next) {
    if (!next) return false;
    const isOther = next.now !== opened && opened !== null;
    const isWaiting = line && line.steps[at] !== opened; // superseded by a later request
    const wanted = isWaiting ? line.steps[at] : next.now;
    [line, opened] = [next, next.now];
    next.verdicts.forEach((verdict, index) => verdict && verdicts.set(next.steps[index], verdict));
    at = Math.max(0, line.steps.indexOf(line.steps.includes(wanted) ? wanted : next.now));
    node.hidden = false;
    draw();
    mark();
    return isOther;
  }

  const key = { ArrowLeft: () => move(-1), ArrowRight: () => move(1), Home: () => goTo(0), End: () => goTo(line.steps.length - 1) };
  slider.addEventListener("keydown", (event) => {
    if (!(event.key in key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    key[event.key]();
  });
  slider.addEventListener("click", ({ clientX }) => goTo(nearest(clientX)));
  slider.addEventListener("pointermove", ({ clientX }) => {
    const index = nearest(clientX);
    const near = line.marks.filter(({ at: step }) => Math.abs(x(step) - x(line.steps[index])) < STEPS_WIDTH / 100);
    const isOpen = line.steps[index] === opened;
    const click = isOpen ? "open now" : `click: open step ${groupDigits(line.steps[index])}`;
    const unjudged = !verdicts.has(line.steps[index]) && "hollow: not diagnosed yet; run.diagnose() does all";
    slider.title = [describe(index), ...near.map((mark) => mark.text), unjudged, click].filter(Boolean).join("\n");
  });

  // The verdict of the open step.
  function judge(verdict) {
    if (!line) return;
    verdicts.set(opened, verdict);
    draw();
    mark();
  }

  return { node, show, move, judge, close: () => clearTimeout(timer) };
}
