// The rounds of a sample side by side: what was seen, what was done, how far off it is.

function roundStrip({ onRound }) {
  const list = element("ol", { class: "rdx-strip-list" });
  const node = element("nav", { class: "rdx-strip", "aria-label": "Rounds" }, list);
  const buttons = () => [...list.querySelectorAll("button")];
  let [pictures, marked, shown] = [[], null, {}];

  function show(trajectory, thumbnails) {
    if (shown.trajectory === trajectory && shown.thumbnails === thumbnails) return;
    shown = { trajectory, thumbnails };
    free();
    const shots = new Map((thumbnails ?? []).map((shot) => [shot.index, shot]));
    const cards = trajectory.rounds.map((round) => {
      const shot = shots.get(round.screenshot);
      const picture = shot && pictureOf(shot, round.action, { alt: "", isSmall: true });
      if (picture) pictures.push(picture);
      return roundCard(round, picture?.node);
    });
    fill(list, ...cards);
    if (!cards.length) fill(list, element("li", {}, sentence("This sample has no rounds.")));
    mark(marked);
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
    pictures = [];
  }

  const choose = (button) => onRound(Number(button.dataset.round));
  list.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(button);
  });
  walkWithArrows(list, buttons, choose);
  return { node, show, mark, free };
}

function roundCard({ round, action, mean_abs_diff: mean, num_nonfinite: broken, level }, picture) {
  const bar = element("span", { class: `rdx-bar ${level < 0 ? "rdx-is-less" : "rdx-is-more"}` });
  bar.style.width = `${(Math.abs(level) / 8) * 100}%`;
  const label = visible(action?.label || action?.kind || "");
  const missing = broken ? `, ${counted(broken, "token")} not finite` : "";
  const title = `round ${round}: ${label}; mean |diff| ${number(mean)} nat${missing}`;
  return element(
    "li",
    {},
    element(
      "button",
      { type: "button", class: "rdx-card", "data-round": round, title, "aria-label": title },
      picture && element("span", { class: "rdx-card-picture" }, picture),
      element("span", { class: "rdx-card-line" },
        element("b", {}, String(round)), element("span", { class: "rdx-card-action" }, label)),
      element("span", { class: "rdx-card-line" },
        element("span", { class: "rdx-card-bar" }, bar),
        element("span", {}, number(mean) + (broken ? " ✕" : ""))),
    ),
  );
}
