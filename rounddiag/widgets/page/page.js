// @ts-check
// The explorer: it connects the panes, and keeps the state in step with Python.
const SELECT_DELAY = 60;
const FEW_TRAJECTORIES = 3; // without log-probs, need no overview; with them, one needs none
const TWO_COLUMNS = [760, 0]; // from this width on trajectories are a list from the start
const UNREAD = 500; // milliseconds in which nobody has read anything

class ExplorerPage {
  numMoves = 0; // made by hand
  /** @type {ReturnType<typeof trajectoryFilm>} */
  film;
  /** @type {string[]} */
  ids = []; // of all samples
  numSamples = 0;
  /** @type {number | null} */
  step = null;
  /** @type {Uint8Array | null} */
  kept = null; // tokens of the sample
  /** @type {object | null} */
  shown = null; // the overview
  paintedAt = 0; // the first time, in milliseconds

  /** `connect` gets listeners, and returns who answers requests. */
  constructor(connect) {
    this.banner = errorBanner();
    this.kernelNote = kernelNote();
    this.kernel = connect({
      onNotify: (notification) => this.onNotify(notification),
      onError: (error, name) => this.showRequestError(error, name),
      onStatus: this.kernelNote.show,
    });
    this.store = sampleStore(this.kernel.request);
    this.theme = pageTheme(() => this.open());
    this.library = () => plotlyFrom(this.kernel.request);
    const { library } = this;
    this.controls = controlBar({
      onSet: (changes) => this.set(changes),
      onFindings: () => this.drawer.toggle(true, "findings"),
      askValues: this.kernel.isStored ? undefined : (name) => this.kernel.request("values", { name }),
      buttons: [
        this.button("?", "Keys (?)", () => this.sheet.show("Keys", keyHelp())),
        this.button(fullWindowIcon(), "Full window (F)", () => this.fillWindow()),
      ],
    });
    this.steps = stepLine((step) => this.goToStep(step));
    this.overview = overviewPane({
      library,
      onCell: (samples, round) => this.goToCell(samples, round),
      onRest: (samples, round) => this.loadCell(samples, round),
      onBox: (cells) => this.select({ cells }),
      onRounds: (range) => this.setFilter({ round: range && { from: range[0], to: range[1] } }),
      onValue: this.kernel.isStored ? null : (name, condition) => this.setFilter({ [name]: condition }),
    });
    this.sample = samplePane({
      library,
      store: this.store,
      onPlace: (place) => this.goTo(place),
      onPlot: (changes) => this.select(changes),
      onSeen: () => this.showShots(this.sample.trajectory()),
      onFact: this.kernel.isStored ? null : (name, condition) => this.setFilter({ [name]: name in this.state.filter ? null : condition }),
      onMates: () => this.showMates(),
      onContext: (round) => this.showContext(round),
      onFilm: () => this.film.toggle(),
      onNote: (place, text) => this.setNote(place, text),
      search: {
        known: () => this.known(),
        canSearchAll: !this.kernel.isStored,
        onAll: (goesOn) => {
          const listed = goesOn && this.drawer.open() === "hits" ? this.drawer.next() : this.drawer.renew("hits");
          this.offerLists();
          return listed;
        },
      },
    });
    this.selectionLine = element("output", { class: "rdx-chosen" });
    this.drawer = listDrawer({
      request: (list, start, sort) => this.listRows(list, start, sort),
      onRow: (row) => this.goToRow(row),
      onToggle: (list) => this.setLayout({ list: list ?? "closed" }),
      inBar: [this.selectionLine],
    });
    this.sheet = sheet();
    this.tabs = tabRow("Panes", PANES, (name) => this.showPane(name));
    this.tabs.node.classList.add("rdx-panes");
    this.snapshot = this.kernel.isStored ? { later() {}, close() {} } : snapshots(this);
    this.node = this.arrange();
    this.showPane("overview");
    this.panes = paneLayout(
      {
        root: this.node,
        main: this.node.querySelector(".rdx-main"),
        overview: this.overview.node,
        sample: this.sample.node,
        reading: this.node.querySelector(".rdx-reading"),
        side: this.node.querySelector(".rdx-side"),
        drawer: this.node.querySelector(".rdx-list-panel"),
      },
      (layout) => this.setLayout(layout),
      () => this.state && this.showDrawer(),
    );
    const actions = keyActions(this);
    listenToKeys(this.node, (key) => this.state && actions[key]);
    this.node.addEventListener("pointerdown", ({ target }) => closeDropdowns(this.node, target));
  }

  button(text, title, onClick) {
    return pushButton({ class: "rdx-button", title, "aria-label": title }, onClick, text);
  }

  // In the top layer, where nothing of the notebook clips it.
  fillWindow(isFull = !this.isFull) {
    if (isFull === Boolean(this.isFull)) return;
    this.isFull = isFull;
    closeDropdowns(this.node);
    if (isFull) {
      this.node.popover = "manual";
      this.node.showPopover();
    } else {
      this.node.hidePopover();
      this.node.removeAttribute("popover");
    }
    this.node.focus({ preventScroll: true });
  }

  arrange() {
    const attributes = {
      class: "rdx mathjax_ignore",
      tabindex: 0,
      role: "region",
      "aria-label": "rounddiag explorer",
      "data-lm-suppress-shortcuts": "true",
      "data-theme": this.theme.now(),
      "data-waiting": true, // until there is something to show
    };
    const main = { node: element("div", { class: "rdx-main" }, this.overview.node, this.sample.node) };
    const parts = [this.banner, this.kernelNote, this.steps, this.controls, this.tabs, main, this.drawer, this.sheet];
    return element("div", attributes, parts.map(({ node }) => node));
  }

  // In JupyterLab, a live explorer hides the output above it where that is its preview.
  markLive(isLive) {
    this.node.closest(".rdx-under-preview")?.closest(".jp-OutputArea-child")?.classList.toggle("rdx-live", isLive);
  }

  // Of a narrow explorer.
  showPane(name) {
    this.node.dataset.pane = name;
    this.tabs.mark(name);
  }

  // Python changed the state, a callback failed, or a run has new steps.
  onNotify({ name, error, steps }) {
    if (name === "failed") return this.banner.show(error);
    if (name === "steps") return this.steps.show(steps);
    clearTimeout(this.flushTimer); // Python was later than the choice that was to be sent
    this.pending = null;
    return this.open();
  }

  // Show an error of Python at the field it is about, else in the banner.
  showRequestError(error, name) {
    if (name !== "set" || !this.controls.showError(error)) this.banner.show(error);
  }

  // Show an error of the page; errors of Python are shown when they arrive.
  showPageError(error) {
    if (error.type || error instanceof NoKernel) return;
    this.banner.show({ type: error.name, message: error.message });
  }

  // Request everything: at first, after a change in Python, for another theme.
  open() {
    this.library().catch((error) => this.showPageError(error)); // read while Python draws
    return this.show("overview", {});
  }

  set(changes) {
    this.banner.hide();
    this.flush();
    return this.show("set", { changes });
  }

  goToStep(step) {
    this.banner.hide();
    this.flush();
    return this.show("step", { step });
  }

  // What addresses are read and written with.
  known() {
    return { ids: this.ids, numSamples: this.numSamples, step: this.step, current: this.state.current };
  }

  // Nothing that is known of one step holds for another.
  forgetStep() {
    this.store.clear();
    [this.diagnosed, this.marked, this.drawn] = [null, null, null];
    this.numMoves += 1;
  }

  // What was moved or opened by hand; nothing else follows from it.
  setLayout(layout) {
    if (!this.state) return;
    this.panes.set(layout);
    this.sendChoice({ layout });
  }

  showDrawer() {
    const trajectories = this.numSamples > FEW_TRAJECTORIES && "samples";
    const list = this.shown?.head.lacks ? this.panes.list(trajectories, TWO_COLUMNS) : this.panes.list(this.numFindings > 0 && "findings");
    if (list !== this.drawer.open()) this.drawer.show(list);
  }

  // Lists that have something; without two engines trajectories come first.
  offerLists() {
    const { cells, filter } = this.state;
    const names = this.shown.head.lacks ? ["samples", "rounds"] : ["findings", "tokens", "rounds", "samples", "common"];
    const made = { selection: cells || !keepsAll(filter), hits: this.sample.find.query().text };
    const shown = Object.keys(made).filter((name) => made[name] || this.drawer.open() === name);
    this.drawer.offer([...names, ...shown, "notes"]);
  }

  /** Change conditions of the filter; null removes one. */
  setFilter(changes) {
    const conditions = Object.entries({ ...this.state.filter, ...changes });
    return this.set({ filter: Object.fromEntries(conditions.filter(([, condition]) => condition !== null)) });
  }

  async show(name, args) {
    this.numBusy = (this.numBusy ?? 0) + 1;
    this.node.setAttribute("aria-busy", "true");
    await this.showReply(name, args);
    this.numBusy -= 1;
    this.node.setAttribute("aria-busy", this.numBusy > 0);
  }

  // In a thread of the kernel; true unless something else was asked for meanwhile.
  readPictures(num) {
    this.kernelNote.showWork(`Reading the screenshots of ${pluralize(num, "round")}…`);
    const reading = this.kernel.request("pictures").finally(() => this.kernelNote.showWork(""));
    return this.kernel.latest("overview", reading.then(() => true)).catch(ignore);
  }

  // The theme changes with the reply, so that all colours change together.
  async showReply(name, args) {
    const theme = this.theme.now();
    const ask = () => this.kernel.latest("overview", this.kernel.request(name, { ...args, theme })).catch(ignore);
    let result = await ask();
    if (result?.num_unread) result = (await this.readPictures(result.num_unread)) && (await ask());
    if (!result) return;
    this.node.dataset.theme = theme;
    const isFirst = !this.state;
    delete this.node.dataset.waiting;
    this.markLive(true);
    if (this.steps.show(result.steps)) this.forgetStep();
    [this.shown, this.state] = [result, result.state];
    this.panes.show(result.state.layout);
    if (isFirst) requestAnimationFrame(() => showWhole(this.node));
    this.controls.show(result.head, result.options, result.state, result.counts, result.limits, result.corrected);
    this.inFile = result.limits?.samples;
    [this.ids, this.numSamples, this.step] = [result.options.samples, result.head.num_samples, result.head.step];
    this.selection = result;
    this.offerLists();
    this.showDrawer();
    this.drawer.refresh();
    this.overview.markFile(this.inFile);
    this.sample.setThreshold(result.state.threshold);
    const hasPlot = !result.head.lacks || result.options.metric.some(([name]) => name === "surprise");
    if (hasPlot) this.store.axes(this.state, theme).catch(ignore); // drawn after the sample, asked for before
    this.node.toggleAttribute("data-plain", !hasPlot);
    const isEmpty = !result.head.num_samples;
    this.node.toggleAttribute("data-lone", !isEmpty && result.head.num_samples <= (hasPlot ? 1 : FEW_TRAJECTORIES));
    if ("lone" in this.node.dataset && this.node.dataset.pane === "overview") this.showPane("sample");
    this.sample.node.hidden = isEmpty;
    const drawing = [this.overview.show(result), isEmpty || this.goTo(result.state.current, { isKnown: true })];
    await Promise.all(drawing).catch((error) => this.showPageError(error));
    this.paintedAt ||= performance.now();
    this.diagnose(result);
    this.snapshot.later();
  }

  // After the figures, and once for each pair of scores.
  async diagnose(shown) {
    const { state: { a, b }, head, has_onset: hasOnset } = shown;
    const key = `${a} ${b}`;
    if (this.diagnosed?.key !== key) {
      this.controls.diagnose(undefined, head.num_tokens ? "diagnosing…" : "");
      const reply = this.kernel.request("diagnosis").catch((error) => ({ why: `no diagnosis: ${error.message}` }));
      this.diagnosed = { key, reply };
    }
    const diagnosis = await this.kernel.latest("diagnosis", this.diagnosed.reply);
    if (!diagnosis) return;
    this.sample.setUsual(diagnosis.usual ?? 0);
    if (diagnosis.why) return void this.controls.diagnose(undefined, diagnosis.why);
    this.controls.diagnose(diagnosis);
    this.steps.judge(diagnosis.verdict);
    this.numFindings = diagnosis.num_findings;
    this.showDrawer();
    if (diagnosis.has_onset && !hasOnset) this.drawOnset(shown);
    if (diagnosis.opens === null || this.numMoves) return;
    const goThere = () => this.goToRow({ finding: diagnosis.opens });
    if (performance.now() - this.paintedAt < UNREAD) await goThere();
    else this.controls.offer(goThere);
  }

  // The figure of the rounds as the diagnosis marks them, unless another overview is shown
  // by then. An overview that is still to come is shown.
  async drawOnset(shown) {
    const reply = await this.kernel.request("rounds", { theme: this.theme.now() }).catch(ignore);
    if (reply && shown === this.shown) await this.overview.showRounds(reply.figure).catch((error) => this.showPageError(error));
  }

  // Notes are in the state; all other lists are Python's.
  async listRows(list, start, sort = undefined) {
    if (list === "notes") return noteRows(this.state.notes, this.known());
    return this.kernel.request("list", { list, start, ...(sort && { sort }), ...(list === "hits" ? this.sample.find.query() : {}) });
  }

  /** Go to what a row of a list is about.
   * @param {{ place?: any, condition?: any, finding?: number, at?: number }} row */
  async goToRow({ place, condition, finding, at }) {
    if (this.drawer.open() === "notes") this.sample.note.show({ scope: noteScope(place) });
    if (finding !== undefined) return this.select({ finding });
    if (condition) {
      await this.set({ filter: condition, current: place });
      return this.drawer.reach("common", at); // the places of a batch are those of all filters
    }
    return place && this.goTo(place);
  }

  // Go to another token; Python is informed after a pause, unless it knows.
  async goTo(place, { isKnown = false } = {}) {
    const { state, sample } = this;
    this.numMoves += isKnown ? 0 : 1;
    const trajectory = await this.kernel.latest("sample", this.store.trajectory(place.sample, state)).catch(ignore);
    if (!trajectory) return;
    if (trajectory.missing) return void this.showMissing(trajectory, place);
    const current = completePlace(trajectory, place);
    this.state = { ...this.state, current };
    const before = sample.trajectory()?.sample;
    const isShown = sample.trajectory() === trajectory;
    if (!isShown) {
      [this.marked, this.kept] = [null, null];
      sample.show(trajectory, current, state.threshold);
    } else if (!isKnown || !isSamePlace(sample.current(), current)) sample.mark(current);
    if (!isKnown) this.selectLater({ current });
    if (!isKnown && isShown) await nextPaint(); // what else is of another round takes longer
    this.showChoice();
    if (sample.trajectory() !== trajectory) return;
    sample.showScreens();
    await this.showKept(trajectory);
    await this.showFates(trajectory);
    if (sample.trajectory() !== trajectory) return;
    const drawing = [this.showShots(trajectory), this.showFigure(trajectory), this.showMarks(trajectory)];
    await Promise.all(drawing).catch((error) => this.showPageError(error));
    this.loadAhead(before, place.sample);
    this.snapshot.later();
  }

  showChoice() {
    if (this.state.finding !== null) this.controls.offer(null);
    this.sample.setState(this.state);
    this.selectionLine.textContent = selectionText(this.selection);
    this.offerLists();
    this.overview.mark(this.state);
  }

  // What the filter keeps of the sample.
  async showKept(trajectory) {
    const reply = this.store.kept(trajectory, this.state);
    const answer = await this.kernel.latest("kept", reply).catch(ignore);
    const isOther = (answer?.is_kept ?? null) !== this.kept;
    if (answer === undefined || this.sample.trajectory() !== trajectory || !isOther) return;
    this.kept = answer?.is_kept ?? null;
    this.sample.setKept(this.kept);
  }

  // A report has none of other corrections.
  async showFates(trajectory) {
    const reply = this.kernel.isStored ? null : this.store.fates(trajectory, this.state);
    const answer = await this.kernel.latest("fates", reply).catch(ignore);
    if (answer === undefined || this.sample.trajectory() !== trajectory) return;
    this.sample.setFates(answer?.fate ?? null);
  }

  isKept(index) {
    return !this.kept || Boolean(this.kept[index]);
  }

  // What the model saw before a round.
  showContext(round) {
    const trajectory = this.sample.trajectory();
    if (!trajectory?.rounds.find((other) => other.round === round)?.context) return this.say("the file has no context of this round");
    const view = contextView({ store: this.store, trajectory, round });
    this.sheet.show(`What the model saw before round ${round}`, view.node);
    this.sheet.node.addEventListener("close", view.close, { once: true });
  }

  // Why nothing happened, until the next choice.
  say(text) {
    this.selectionLine.textContent = text;
  }

  // Two attempts at one task.
  showMates() {
    const trajectory = this.sample.trajectory();
    if (!trajectory || (trajectory.mates ?? []).length < 2) return this.say("no other attempt at this task");
    const view = attemptsView({
      store: this.store,
      state: this.state,
      trajectory,
      onPlace: (place) => {
        this.sheet.hide();
        this.goTo(place);
      },
    });
    this.sheet.show(`Attempts of ${visible(String(trajectory.group_id))}${trajectory.task ? `: ${visible(trajectory.task)}` : ""}`, view.node);
    this.sheet.node.addEventListener("close", view.close, { once: true });
  }

  // An empty text removes the note.
  async setNote(place, text) {
    const others = this.state.notes.filter((note) => !isSamePlace(note, place));
    const notes = text ? [...others, { ...place, text }] : others;
    this.state = { ...this.state, notes };
    this.showChoice();
    await this.select({ notes });
    if (this.drawer.open() === "notes") this.drawer.refresh({ keepsPlace: true });
  }

  // The tokens of the marked finding.
  async showMarks(trajectory) {
    const reply = this.store.marks(trajectory, this.state);
    const marks = await this.kernel.latest("marks", reply).catch(ignore);
    if (!marks || marks === this.marked || this.sample.trajectory() !== trajectory) return;
    this.marked = marks;
    this.sample.setMarks(marks);
  }

  // A few at a time.
  async showShots(trajectory) {
    for (const group of shotGroups(this.sample.missingShots())) {
      const reply = this.store.thumbnails(trajectory, group);
      const result = await this.kernel.latest("shots", reply).catch(ignore);
      if (!result || this.sample.trajectory() !== trajectory) return;
      this.sample.addShots(result.shots);
    }
  }

  async showFigure(trajectory) {
    if (trajectory.lacks && !trajectory.tokens.surprise) return this.sample.figure.still();
    const reply = this.store.axes(this.state, this.theme.now());
    const axes = await this.kernel.latest("figure", reply).catch(() => null);
    if (axes === undefined) return; // there is a newer one
    const only = plotsRound(trajectory, this.state) ? this.state.current.round : null;
    const shown = [trajectory, axes, only, this.kept];
    const isDrawn = shown.every((part, at) => part === this.drawn?.[at]);
    if (axes && !isDrawn) {
      this.drawn = shown;
      await this.sample.showFigure(parseJson(axes.figure), only, this.state, this.kept);
    }
    this.sample.figure.still();
  }

  // A report has only some of the samples.
  showMissing({ missing }, place) {
    this.state = { ...this.state, current: { round: 0, token: 0, ...place } };
    this.showChoice();
    this.sample.showMissing(place.sample, missing);
  }

  // A cell of one sample is a place; of several samples, Python finds the worst token.
  async goToCell(samples, round) {
    if (samples.length > 1) return this.select({ cells: { samples, rounds: [round, round] } });
    const [sample] = samples;
    const reply = this.store.trajectory(sample, this.state);
    const trajectory = await this.kernel.latest("sample", reply).catch(ignore);
    if (!trajectory) return undefined;
    if (roundOf(trajectory, round)) return this.goTo({ sample, round });
    return this.say(`sample ${sample} has no round ${round}`);
  }

  // What a click on a cell would show.
  async loadCell(samples, round) {
    if (this.numBusy || (samples.length > 1 && this.kernel.isStored)) return undefined;
    const cells = { samples, rounds: [round, round] };
    const place = samples.length > 1 ? await this.store.worst(cells, this.state).catch(ignore) : { sample: samples[0] };
    return place && this.load(place.sample);
  }

  // Where the place is known before Python answers, it is shown at once.
  async select(changes) {
    this.banner.hide();
    this.flush();
    const move = (this.numMoves += 1);
    const known = changes.cells && !this.numBusy && this.store.knownWorst(changes.cells, this.state);
    const reply = this.kernel.latest("choice", this.sendChoice(changes));
    const ahead = await this.kernel.latest("ahead", known).catch(ignore);
    if (ahead) this.goTo(ahead, { isKnown: true });
    const result = await reply;
    if (!result) return undefined;
    const { current } = this.state;
    [this.state, this.selection] = [result.state, result];
    if (changes.finding !== undefined) this.drawer.reach("findings", changes.finding);
    if (this.drawer.open() === "selection" && "cells" in changes) this.drawer.refresh();
    if (move === this.numMoves) return this.goTo(this.state.current, { isKnown: true });
    this.state = { ...this.state, current }; // superseded by a later request
    return this.showChoice();
  }

  selectLater(changes) {
    this.banner.hide();
    clearTimeout(this.flushTimer);
    this.pending = changes;
    this.flushTimer = setTimeout(() => this.flush(), SELECT_DELAY);
  }

  // Send a delayed selection before any other request.
  flush() {
    clearTimeout(this.flushTimer);
    const changes = this.pending;
    this.pending = null;
    if (changes) this.sendChoice(changes);
  }

  // If Python refuses, show the state that Python has.
  sendChoice(changes) {
    return this.kernel.request("select", { changes }).catch(({ type }) => void (type && this.open()));
  }

  // The samples to step through, in heatmap order; of a report those in the file.
  samples() {
    const all = this.overview.samples();
    return this.inFile ? all.filter((sample) => this.inFile.includes(sample)) : all;
  }

  // Who steps from sample to sample finds the next one there.
  loadAhead(before, sample) {
    const samples = this.samples();
    const at = samples.indexOf(sample);
    const step = at - samples.indexOf(before);
    if (Math.abs(step) === 1 && at + step in samples) this.load(samples[at + step]);
  }

  load(sample) {
    return this.store.trajectory(sample, this.state).catch(ignore);
  }

  close() {
    this.film.stop();
    for (const part of [this.kernel, this.theme, this.steps, this.overview, this.sample, this.snapshot, this.panes, this.drawer]) part.close();
    clearTimeout(this.flushTimer);
    this.markLive(false);
    this.node.remove();
  }
}

// Which pane a narrow explorer shows.
const PANES = { overview: "Overview", sample: "Sample", screenshot: "Screenshot", text: "Text" };

// Complete a place: by default the worst round, and the worst token in it. The last
// round if the sample is shorter.
function completePlace(trajectory, { sample, round, token }) {
  const { rounds } = trajectory;
  const size = (candidate) => candidate.mean_abs_diff ?? -1;
  const worst = rounds.reduce((largest, candidate) => (size(candidate) > size(largest) ? candidate : largest), rounds[0]);
  const asked = roundOf(trajectory, round) ?? rounds.at(-1);
  const result = (round === undefined ? worst : asked)?.round ?? 0;
  return { sample, round: result, token: token ?? worstToken(trajectory, result) };
}

function isSamePlace(place, other) {
  return ["sample", "round", "token"].every((key) => place[key] === other[key]);
}

// The frame that is due has been drawn.
function nextPaint() {
  return new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}

// A new explorer that is in sight in part comes into sight as a whole.
function showWhole(node) {
  const area = node.closest(".jp-WindowedPanel-outer, .jp-Notebook")?.getBoundingClientRect();
  const { top, bottom } = node.getBoundingClientRect();
  if (area && top < area.bottom && bottom > area.top) node.scrollIntoView({ block: "nearest" });
}

// For errors that are shown elsewhere.
function ignore() {
  return undefined;
}

function selectionText({ state, num_rounds: rounds, num_tokens: tokens }) {
  if (!state.cells) return "";
  if (!tokens) return `nothing selected: ${keepsAll(state.filter) ? "these samples have no such rounds" : "the filter keeps no token of these cells"}`;
  return `selected: ${pluralize(rounds, "round")}, ${pluralize(tokens, "token")} · explorer.selection`;
}

function render({ model, el }) {
  const page = new ExplorerPage((listeners) => connectKernel(model, listeners));
  el.append(page.node);
  page.open();
  return () => page.close();
}
