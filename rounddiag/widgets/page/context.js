// @ts-check
// What the model saw before a round: its whole context, with what entered and what left.

/** The context of each engine, side by side; pictures in the order in which they stand. */
function contextView({ store, trajectory, round }) {
  const node = element("div", { class: "rdx-contexts" }, sentence("…"));
  let [live, isClosed] = [[], false];

  async function draw() {
    const reply = await store.context(trajectory, round).catch((error) => ({ why: error.message }));
    if (isClosed) return;
    if (reply.why) return void fill(node, sentence(reply.why));
    fill(node, reply.engines.map(engineContext));
    await fillPictures();
  }

  async function fillPictures() {
    const places = [...node.querySelectorAll("[data-picture]")];
    const wanted = [...new Set(places.map((place) => Number(place.dataset.picture)))];
    for (const group of shotGroups(wanted)) {
      const { shots } = await store.thumbnails(trajectory, group).catch(() => ({ shots: [] }));
      if (isClosed) return;
      for (const shot of shots) {
        for (const place of places.filter(({ dataset }) => Number(dataset.picture) === shot.index)) {
          live.push(pictureOf(shot, null, { alt: `picture ${shot.index}`, isSmall: true }));
          fill(place, live.at(-1).node);
        }
      }
    }
  }

  draw();
  return {
    node,
    close: () => {
      isClosed = true;
      live.forEach((picture) => picture.free());
    },
  };
}

function engineContext({ name, summary, parts, left }) {
  const gone = left.length > 0 && element("details", { class: "rdx-left", open: true }, element("summary", {}, "left since the round before"), left.map((part) => contextPart(part, "−")));
  const legend = parts.some(({ entered }) => entered) && element("p", { class: "rdx-quiet" }, element("span", { class: "rdx-entered" }, "+ entered"), " since the round before");
  return element("section", { "aria-label": name || "context" }, name && element("h4", {}, name), element("p", {}, summary), legend, gone, element("div", { class: "rdx-context-text" }, parts.map((part) => contextPart(part, part.entered ? "+" : ""))));
}

function contextPart({ kind, text, index, num_tokens: size, entered }, sign) {
  const name = entered ? "rdx-entered" : sign && "rdx-gone";
  const mark = sign && element("b", { class: "rdx-mark", title: entered ? "entered" : "left" }, sign);
  if (kind === "text") return element("span", { class: name || null }, mark, ...visibleNodes(text));
  const label = index === null ? "picture not recorded" : `picture ${index}`;
  const picture = element("span", { class: "rdx-context-picture", "data-picture": index }, label);
  return element("span", { class: `rdx-picture-part ${name}`, title: `${label}: ${pluralize(size, "image token")}` }, mark, picture);
}
