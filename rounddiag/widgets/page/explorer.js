// The explorer: what is chosen in one part is shown by all others.
const TELL_DELAY = 60;

class ExplorerPage {
  constructor(model) {
    this.banner = errorBanner();
    this.silence = silenceNote();
    this.wire = wireTo(model, {
      onTell: (told) => this.hear(told),
      onError: (error, asked) => this.wrong(error, asked),
      onSilence: this.silence.show,
    });
    this.store = sampleStore(this.wire.ask);
    this.theme = pageTheme(() => this.open());
    this.library = () => plotlyFrom(this.wire.ask);
    const { library } = this;
    this.controls = controlBar({
      onSet: (changes) => this.set(changes),
      onThreshold: (threshold) => this.sample.setThreshold(threshold),
    });
    this.overview = overviewPane({
      library,
      onCell: (samples, round) => this.pick(samples, round),
      onBox: (cells) => this.choose({ cells }),
      onRounds: (rounds) => this.set({ filter: { rounds } }),
      onSet: (changes) => this.set(changes),
    });
    this.sample = samplePane({ library, store: this.store, onPlace: (place) => this.goTo(place) });
    this.worst = worstList({ onJump: (place) => this.goTo(place) });
    this.sheet = sheet();
    this.chosen = element("output", { class: "rdx-chosen" });
    this.snapshot = snapshots(this);
    this.node = this.layout();
    const actions = keyActions(this);
    listenToKeys(this.node, (key) => this.state && actions[key]);
  }

  layout() {
    const { overview, chosen, worst, sample, banner, silence, controls, sheet: over } = this;
    const left = element("div", { class: "rdx-left" }, overview.node, chosen, worst.node);
    return element(
      "div",
      {
        class: "rdx",
        tabindex: 0,
        "aria-label": "rounddiag explorer",
        "data-lm-suppress-shortcuts": "true",
        "data-theme": this.theme.now(),
        "data-waiting": true, // until there is something to show
      },
      banner.node,
      silence.node,
      controls.node,
      element("div", { class: "rdx-main" }, left, sample.node),
      over.node,
    );
  }

  // Python changed what is shown, or one of its functions failed.
  hear({ name, error }) {
    if (name === "failed") this.banner.show(error);
    else this.open();
  }

  // What Python refuses of a field is said at the field.
  wrong(error, asked) {
    if (asked !== "set" || !this.controls.wrong(error)) this.banner.show(error);
  }

  // What went wrong in the page; what did in Python is shown by the wire.
  fail(error) {
    if (error.type || error instanceof NoKernel) return;
    this.banner.show({ type: error.name, message: error.message });
  }

  // Ask for everything: at first, when Python changed something, in other colours.
  open() {
    this.library().catch((error) => this.fail(error)); // read while Python draws
    return this.show("overview", {});
  }

  set(changes) {
    this.banner.hide();
    this.say();
    return this.show("set", { changes });
  }

  // All colours change when the answer is there: none without the others.
  async show(name, args) {
    const theme = this.theme.now();
    const question = this.wire.ask(name, { ...args, theme });
    const found = await this.wire.latest("overview", question).catch(ignored);
    if (!found) return;
    this.node.dataset.theme = theme;
    delete this.node.dataset.waiting;
    this.state = found.state;
    this.worstPlaces = found.worst;
    this.controls.show(found.head, found.options, found.state, found.counts, found.compared);
    this.worst.show(found.worst, found.counts.why_none);
    this.choice = found;
    this.sample.setThreshold(found.state.threshold);
    const isEmpty = !found.head.num_samples;
    this.sample.node.hidden = isEmpty;
    const drawn = [this.overview.show(found), isEmpty || this.goTo(found.state.current, { isTold: true })];
    await Promise.all(drawn).catch((error) => this.fail(error));
    this.snapshot.later();
  }

  // Look at another token; Python hears of it when the hand rests.
  async goTo(place, { isTold = false } = {}) {
    const { state } = this;
    this.chosen.textContent = chosenText(this.choice);
    const trajectory = await this.wire.latest("sample", this.store.trajectory(place.sample, state)).catch(ignored);
    if (!trajectory) return;
    // Python draws while the page writes the text.
    this.store.figure(trajectory, state, this.theme.now()).catch(ignored);
    const current = wholePlace(trajectory, place);
    this.state = { ...this.state, current };
    this.overview.mark(this.state);
    if (this.sample.trajectory() === trajectory) this.sample.mark(current);
    else this.sample.show(trajectory, current, state.threshold);
    if (!isTold) this.tell({ current });
    const drawn = [this.showShots(trajectory), this.showFigure(trajectory)];
    await Promise.all(drawn).catch((error) => this.fail(error));
    this.fetchNeighbours(place.sample);
    this.snapshot.later();
  }

  // A few at a time, those of the round that is looked at first.
  async showShots(trajectory) {
    const shots = [];
    for (const group of shotGroups(trajectory, this.state.current.round)) {
      const question = this.store.thumbnails(trajectory, group);
      const found = await this.wire.latest("shots", question).catch(ignored);
      if (!found || this.sample.trajectory() !== trajectory) return;
      shots.push(...found.shots);
      this.sample.showShots([...shots]);
    }
  }

  async showFigure(trajectory) {
    const question = this.store.figure(trajectory, this.state, this.theme.now());
    const found = await this.wire.latest("figure", question).catch(() => null);
    if (found === undefined) return; // there is a newer one
    if (found && found !== this.drawn) await this.sample.showFigure(found.figure);
    this.drawn = found ?? this.drawn;
    this.sample.figure.still();
  }

  // A cell of one sample is a place; one of several, Python knows the worst in.
  async pick(samples, round) {
    if (samples.length > 1) return this.choose({ cells: { samples, rounds: [round, round] } });
    const [sample] = samples;
    const question = this.store.trajectory(sample, this.state);
    const trajectory = await this.wire.latest("sample", question).catch(ignored);
    if (!trajectory) return undefined;
    if (trajectory.rounds.some((one) => one.round === round)) return this.goTo({ sample, round });
    return void (this.chosen.textContent = `sample ${sample} has no round ${round}`);
  }

  async choose(changes) {
    this.banner.hide();
    this.say();
    const found = await this.wire.latest("choice", this.wire.ask("select", { changes })).catch(ignored);
    if (!found) return;
    this.state = found.state;
    this.choice = found;
    await this.goTo(found.state.current, { isTold: true });
  }

  tell(changes) {
    this.banner.hide();
    clearTimeout(this.telling);
    this.unsaid = changes;
    this.telling = setTimeout(() => this.say(), TELL_DELAY);
  }

  // What was not told yet comes before all that is asked for now.
  say() {
    clearTimeout(this.telling);
    const changes = this.unsaid;
    this.unsaid = null;
    // Where Python does not follow, the page goes back to where Python is.
    if (changes) this.wire.ask("select", { changes }).catch(({ type }) => type && this.open());
  }

  // The samples that come next are there before they are asked for.
  fetchNeighbours(sample) {
    const samples = this.overview.samples();
    const at = samples.indexOf(sample);
    clearTimeout(this.fetching);
    this.fetching = setTimeout(() => {
      for (const near of [samples[at + 1], samples[at - 1]].filter((one) => one !== undefined)) {
        this.store.trajectory(near, this.state).then((found) => this.fetchShots(found)).catch(ignored);
      }
    }, 250);
  }

  fetchShots(trajectory) {
    const [first] = shotGroups(trajectory, this.state.current.round);
    return first && this.store.thumbnails(trajectory, first);
  }

  close() {
    for (const part of [this.wire, this.theme, this.overview, this.sample, this.snapshot]) part.close();
    clearTimeout(this.telling);
    clearTimeout(this.fetching);
    this.node.remove();
  }
}

// The place with what was left out: the worst round, the worst token in it. Of a sample
// without the round it is the last one.
function wholePlace(trajectory, { sample, round, token }) {
  const { rounds } = trajectory;
  const size = (one) => one.mean_abs_diff ?? -1;
  const worst = rounds.reduce((most, one) => (size(one) > size(most) ? one : most), rounds[0]);
  const asked = rounds.find((one) => one.round === round) ?? rounds.at(-1);
  const found = (round === undefined ? worst : asked)?.round ?? 0;
  return { sample, round: found, token: token ?? worstToken(trajectory, found) };
}

// It is said elsewhere; nothing more is to be done where it was asked.
function ignored() {
  return undefined;
}

function chosenText({ state, num_rounds: rounds, num_tokens: tokens }) {
  if (!state.cells) return "";
  if (!tokens) return `selected: nothing: ${keepsAll(state.filter) ? "these samples have no such rounds" : "the filter keeps no token of these cells"}`;
  return `selected: ${counted(rounds, "round")}, ${counted(tokens, "token")} · explorer.selection`;
}
