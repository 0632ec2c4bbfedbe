// The tokens of a sample as a figure, with a line at the current one.

function tokenPlot({ library, onToken }) {
  const line = element("div", { class: "rdx-here", hidden: true });
  const view = figureView({
    library,
    label: "Tokens",
    onDrawn: redraw,
  });
  view.body.append(line);
  const hand = pointing(view, { onClick: ({ x }) => nearest(x) });
  let [trajectory, current] = [null, null];

  // The x value of a token.
  const placeOf = ({ round, token }) => {
    const { rounds, starts } = view.meta();
    return starts[rounds.indexOf(round)] + token;
  };

  function nearest(x) {
    const { rounds, starts } = view.meta();
    const after = starts.findIndex((start) => start - 0.5 > x);
    const index = Math.max((after < 0 ? starts.length : after) - 1, 0);
    const { num_tokens: size } = trajectory.rounds.find((one) => one.round === rounds[index]);
    onToken(rounds[index], Math.min(Math.max(Math.round(x - starts[index]), 0), size - 1));
  }

  function redraw() {
    const x = view.axis("xaxis");
    const place = current && view.meta()?.rounds && x ? placeOf(current) : NaN;
    line.hidden = Number.isNaN(place) || x.pixel(place) < x.from || x.pixel(place) > x.to;
    if (line.hidden) return;
    const [top, bottom] = [view.axis("yaxis").from, view.axis("yaxis").to];
    const [left, height] = [x.pixel(place), bottom - top];
    Object.assign(line.style, { left: `${left}px`, top: `${top}px`, height: `${height}px` });
  }

  return {
    node: view.node,
    view,
    show: async (newTrajectory, figure, place) => {
      [trajectory, current] = [newTrajectory, place];
      await view.draw(figure);
    },
    mark: (place) => {
      current = place;
      redraw();
    },
    close: () => {
      hand.close();
      view.close();
    },
  };
}
