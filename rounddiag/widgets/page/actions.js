// What each key does to an explorer.
function keyActions(page) {
  const trajectory = () => page.sample.trajectory();
  const current = () => page.state.current;

  function step(samples) {
    const at = samples.indexOf(current().sample);
    return (by) => goToSample(samples[Math.min(Math.max(at + by, 0), samples.length - 1)]);
  }

  function goToSample(sample) {
    if (sample !== undefined) page.goTo({ sample, round: current().round });
  }

  function goToRound(by) {
    const { rounds } = trajectory() ?? { rounds: [] };
    const at = rounds.findIndex((one) => one.round === current().round) + by;
    if (rounds[at]) page.goTo({ sample: current().sample, round: rounds[at].round });
  }

  function goToToken(by) {
    if (!trajectory()?.num_tokens) return;
    const index = indexOf(trajectory(), current()) + by;
    if (index < 0 || index >= trajectory().num_tokens) return;
    const [round, token] = placeAt(trajectory(), index);
    page.goTo({ sample: current().sample, round, token });
  }

  function leave() {
    const { screens } = page.sample;
    if (screens.isLarge()) return screens.large(false);
    if (page.sheet.hide()) return undefined;
    page.banner.hide();
    if (page.state.filter.rounds) page.set({ filter: { rounds: null } });
    if (page.state.cells) page.choose({ cells: null });
    return undefined;
  }

  return {
    j: () => step(page.overview.samples())(1),
    k: () => step(page.overview.samples())(-1),
    n: () => goToRound(1),
    p: () => goToRound(-1),
    ArrowRight: () => goToToken(1),
    ArrowLeft: () => goToToken(-1),
    w: () => page.worst.next(),
    g: () => goToSample(page.overview.samples()[0]),
    G: () => goToSample(page.overview.samples().at(-1)),
    "/": () => page.sample.find.focus(),
    f: () => page.sample.screens.large(true),
    t: () => showTable(page),
    "?": () => page.sheet.show("Keys", keyHelp()),
    Escape: leave,
  };
}

async function showTable(page) {
  const found = await page.wire.ask("table").catch(ignored);
  if (!found) return;
  const { columns, rows, num_tokens: size } = found;
  const shown = rows.length < size ? `the ${rows.length} worst of ` : "";
  const head = sentence(`${shown}${counted(size, "selected token")}: explorer.selection in Python`);
  page.sheet.show("Selection", head, tableOf(columns, rows));
}
