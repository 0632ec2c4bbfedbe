// The rounds of a sample side by side: what was seen, what was done, how far off it is.

function roundStrip({ onRound }) {
  const list = element("ol", { class: "rdx-strip-list" });
  const node = element("nav", { class: "rdx-strip", "aria-label": "Rounds" }, list);
  const buttons = () => [...list.querySelectorAll("button")];
  const pictures = new Map();
  let [shown, marked] = [null, null];

  // Pictures come after the rounds, a few at a time: those that are there stay.
  function show(trajectory, thumbnails) {
    if (trajectory !== shown) {
      free();
      shown = trajectory;
      const cards = trajectory.rounds.map((round) => element("li", {}, roundCard(round)));
      fill(
        list,
        ...(cards.length ? cards : [element("li", {}, sentence("This sample has no rounds."))]),
      );
      mark(marked);
      fade();
    }
    const shots = new Map((thumbnails ?? []).map((shot) => [shot.index, shot]));
    trajectory.rounds.forEach((round, at) => {
      const shot = shots.get(round.screenshot);
      if (!shot || pictures.has(at)) return;
      pictures.set(at, pictureOf(shot, round.action, { alt: "", isSmall: true }));
      fill(buttons()[at].querySelector(".rdx-card-picture"), pictures.get(at).node);
    });
  }

  function mark(round) {
    marked = round;
    for (const button of buttons()) {
      const isNow = Number(button.dataset.round) === round;
      button.setAttribute("aria-current", String(isNow));
      button.tabIndex = isNow ? 0 : -1;
      if (isNow) reveal(list, button, 60);
    }
    if (!list.querySelector('[tabindex="0"]')) buttons()[0]?.setAttribute("tabindex", "0");
  }

  function free() {
    pictures.forEach((picture) => picture.free());
    pictures.clear();
  }

  // An edge fades where there is more than is seen.
  function fade() {
    const rest = list.scrollWidth - list.clientWidth - list.scrollLeft;
    list.classList.toggle("rdx-more-before", list.scrollLeft > 1);
    list.classList.toggle("rdx-more-after", rest > 1);
  }

  const follow = new ResizeObserver(() => {
    const now = list.querySelector('[aria-current="true"]');
    if (now) reveal(list, now, 60);
    fade();
  });
  follow.observe(list);
  list.addEventListener("scroll", fade, { passive: true });
  const choose = (button) => onRound(Number(button.dataset.round));
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(button);
  });
  walkWithArrows(list, buttons, choose);
  function close() {
    follow.disconnect();
    free();
  }

  return { node, show, mark, close };
}

function roundCard({
  round,
  action,
  screenshot,
  mean_abs_diff: mean,
  num_nonfinite: broken,
  level,
}) {
  const bar = element("span", { class: `rdx-bar ${level < 0 ? "rdx-is-less" : "rdx-is-more"}` });
  bar.style.width = `${(Math.abs(level) / 8) * 100}%`;
  const label = visible(action?.label || action?.kind || "");
  const missing = broken ? `, ${counted(broken, "token")} not finite` : "";
  const title = `round ${round}: ${label}; mean |diff| ${number(mean)} nat${missing}`;
  const line = (...parts) => element("span", { class: "rdx-card-line" }, ...parts);
  return element(
    "button",
    { type: "button", class: "rdx-card", "data-round": round, title, "aria-label": title },
    screenshot !== null && element("span", { class: "rdx-card-picture" }),
    line(element("b", {}, String(round)), element("span", { class: "rdx-card-action" }, label)),
    line(
      element("span", { class: "rdx-card-bar" }, bar),
      element("span", {}, number(mean) + (broken ? " ✕" : "")),
    ),
  );
}
