"""Find the round, and the token, where two engines disagree about one batch.

The sampling engine and the training engine give the same token different
log-probabilities. Each step of the pipeline is a package that does not import the
later ones:

>>> import rounddiag as rd
>>> batch = rd.load("sample_data/image_window_verl.pkl")  # loaders: file -> Batch
>>> tokens = rd.token_frame(batch)                        # core: Batch -> DataFrame
>>> summary = rd.round_summary(tokens)                    # stats: one row per round
>>> diagnosis = rd.diagnose(batch)                        # findings: noise or a bug
>>> figure = rd.plot_rounds(batch, onset=diagnosis.onset) # figures: plotly
>>> text = rd.token_text(batch, sample=0)                 # the text, coloured

Public names, in the order of work:

====================  ==============================================================
`load`                open a saved batch; the format is detected from the content
`demo`                open a sample batch that is installed with rounddiag
`save`                write a batch as Parquet, without loss
`formats`             list what `load` opens
`Batch`               what one training step saved
`token_frame`         one row per generated token: `sample, round, token, diff`
`round_frame`         one row per sample and round
`sample_frame`        one row per sample
`round_summary`       one row per round, over all samples, with intervals
`compare_outcomes`    one row per task: what was gained and lost between attempts
`metrics`             the mismatch metrics that verl logs, by verl's formulas
`reconcile`           the numbers that a trainer logged against those of the batch
`check`               the invariants of every valid batch
`diagnose`            noise or a bug: which one, where, and what to do next
`places`              where tokens differ more than equally likely tokens elsewhere
`groups`              one row per group: rewards, advantages, gradient weight
`legs`                the ratio of an update: engine gap, staleness, update
`corrections`         what TIS, IcePop, masks and clips do to the update
`prove`               which engine was wrong, by scoring the same tokens again
`preflight`           does a model agree with a server, before a run: `Preflight`
`rescore`             one more set of log-probabilities for the tokens of a batch
`load_proof`          a proof that was made on another machine
`ask`                 what a model would write at a place, and whether it looks
`load_answer`         an answer that was made on another machine
`export_rescore`      token ids and screenshots, for an engine elsewhere to score
`attach`              the log-probabilities that came back, checked token by token
`explore`             the linked views in JupyterLab: an `Explorer`
`report`              the same views as one HTML page, without a kernel
`token_text`          the text of a sample, tokens coloured by diff
`open_run`, `Run`     the step files of a training as one run
`ingest`              the files of a framework to step files
`plot_rounds`         mean of a metric per round, with intervals and counts
`plot_heatmap`        every sample in every round
`plot_trajectory`     one sample, token by token
`plot_probabilities`  each token's probability by both engines
`plot_tail`           share of tokens whose |diff| is at least x
`plot_conditional`    mismatch of equally likely tokens, by round
`plot_positions`      mismatch by position in the round, by images seen, by context
`plot_roles`          mismatch by role: thought, action, coordinates, typed text
`plot_compare`        two batches and their difference
`plot_finding`        the evidence of a finding
`plot_proof`          how near each hypothesis of a proof comes
`plot_sight`          where a model looked, tile by tile
`plot_legs`           the legs of the importance ratio, stacked per round
`plot_corrections`    what each correction keeps of the update
`plot_run`            the mean of each round over the steps of a run
====================  ==============================================================

Arguments that mean the same in all functions:

==========  ========================================================================
`data`      a Batch, its file, or a frame with the columns that the function names
`a`, `b`    the scores to compare, `a` minus `b`: `old`, `rollout`, or others that the
            batch has; a frame keeps the pair that it was made with
`metric`    what is averaged: `abs_diff`, `diff`, `k3`, ... (`help(round_summary)`)
`by`        a column of samples or rounds: results for each of its values
`layers`    parts of a figure to leave out, or to add: `{"counts": False}`
`theme`     "light" or "dark"; left out, the one that `figures.use_theme` set
==========  ========================================================================

A `plot_*` returns a `plotly.graph_objects.Figure` and shows nothing. Bad input raises a
`RounddiagError`, which is a ValueError and says what was expected, what was found and
what to do: `BatchError` (not a batch, or one that lacks a score or column),
`FrameError` (a frame that lacks a column or has another pair, a metric, column, layer
or option that does not exist), `LoadError` (a file).

The packages, of which `capture`, `errors`, `figures`, `findings`, `stats` and `vision`
are public:

================  ==================================================================
`errors`          the exceptions
`wording`         counts and names in messages
`schema`          columns, tables and metrics: labels, units, meaning
`segmentation`    the rounds of a mask
`action_grammar`  the calls in an agent's action, with their places in the text
`text`            token ids -> text; roles of tokens
`vision`          screenshots, image tokens, actions
`batch`           `Batch`: what one training step saved
`core`            frames, divergences, verl's metrics
`checks`          invariants of a valid batch
`loaders`         files of each framework -> `Batch`; our own format
`capture`         save batches from inside a trainer
`stats`           per-round statistics with intervals
`findings`        noise or a bug: causes with evidence
`proof`           the same tokens scored again: which engine was wrong
`runs`            many steps: a folder of step files, its index, queries
`figures`         the `plot_*` functions
`widgets`         the explorer in JupyterLab
`export`          reports as one HTML page
`cli`             the `rounddiag` command
================  ==================================================================

Public names are imported on first use. `import rounddiag` itself imports nothing, so
that a trainer can import `rounddiag.capture` without pandas and plotly.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rounddiag._version import __version__ as __version__

# For type checkers and editors; `_PUBLIC` says the same.
if TYPE_CHECKING:
    from rounddiag import capture as capture
    from rounddiag import errors as errors
    from rounddiag import figures as figures
    from rounddiag import findings as findings
    from rounddiag import stats as stats
    from rounddiag import vision as vision
    from rounddiag.batch import Batch as Batch
    from rounddiag.checks import check as check
    from rounddiag.core import metrics as metrics
    from rounddiag.core import reconcile as reconcile
    from rounddiag.core import round_frame as round_frame
    from rounddiag.core import sample_frame as sample_frame
    from rounddiag.core import token_frame as token_frame
    from rounddiag.core.corrections import corrections as corrections
    from rounddiag.core.groups import groups as groups
    from rounddiag.core.legs import legs as legs
    from rounddiag.export import report as report
    from rounddiag.figures.colored_text import token_text as token_text
    from rounddiag.figures.compare import plot_compare as plot_compare
    from rounddiag.figures.conditional import plot_conditional as plot_conditional
    from rounddiag.figures.corrections import plot_corrections as plot_corrections
    from rounddiag.figures.finding import plot_finding as plot_finding
    from rounddiag.figures.heatmap import plot_heatmap as plot_heatmap
    from rounddiag.figures.legs import plot_legs as plot_legs
    from rounddiag.figures.positions import plot_positions as plot_positions
    from rounddiag.figures.probabilities import plot_probabilities as plot_probabilities
    from rounddiag.figures.proof import plot_proof as plot_proof
    from rounddiag.figures.roles import plot_roles as plot_roles
    from rounddiag.figures.rounds import plot_rounds as plot_rounds
    from rounddiag.figures.run import plot_run as plot_run
    from rounddiag.figures.sight import plot_sight as plot_sight
    from rounddiag.figures.tail import plot_tail as plot_tail
    from rounddiag.figures.trajectory import plot_trajectory as plot_trajectory
    from rounddiag.findings import diagnose as diagnose
    from rounddiag.findings import places as places
    from rounddiag.loaders import attach as attach
    from rounddiag.loaders import demo as demo
    from rounddiag.loaders import export_rescore as export_rescore
    from rounddiag.loaders import formats as formats
    from rounddiag.loaders import load as load
    from rounddiag.loaders import save as save
    from rounddiag.proof import ask as ask
    from rounddiag.proof import load_answer as load_answer
    from rounddiag.proof import load_proof as load_proof
    from rounddiag.proof import prove as prove
    from rounddiag.proof import rescore as rescore
    from rounddiag.proof.preflight import Preflight as Preflight
    from rounddiag.proof.preflight import preflight as preflight
    from rounddiag.runs import Run as Run
    from rounddiag.runs import ingest as ingest
    from rounddiag.runs import open_run as open_run
    from rounddiag.stats import compare_outcomes as compare_outcomes
    from rounddiag.stats import round_summary as round_summary
    from rounddiag.widgets import Explorer as Explorer
    from rounddiag.widgets import explore as explore
else:
    # The public names of each module of the package.
    _PUBLIC = {
        "": "capture errors figures findings stats vision",
        "batch": "Batch",
        "checks": "check",
        "core": "metrics reconcile round_frame sample_frame token_frame",
        "core.corrections": "corrections",
        "core.groups": "groups",
        "core.legs": "legs",
        "export": "report",
        "figures.colored_text": "token_text",
        "figures.compare": "plot_compare",
        "figures.conditional": "plot_conditional",
        "figures.corrections": "plot_corrections",
        "figures.finding": "plot_finding",
        "figures.heatmap": "plot_heatmap",
        "figures.legs": "plot_legs",
        "figures.positions": "plot_positions",
        "figures.probabilities": "plot_probabilities",
        "figures.proof": "plot_proof",
        "figures.roles": "plot_roles",
        "figures.rounds": "plot_rounds",
        "figures.run": "plot_run",
        "figures.sight": "plot_sight",
        "figures.tail": "plot_tail",
        "figures.trajectory": "plot_trajectory",
        "findings": "diagnose places",
        "loaders": "attach demo export_rescore formats load save",
        "proof": "ask load_answer load_proof prove rescore",
        "proof.preflight": "Preflight preflight",
        "runs": "Run ingest open_run",
        "stats": "compare_outcomes round_summary",
        "widgets": "Explorer explore",
    }
    _HOMES = {name: home for home, names in _PUBLIC.items() for name in names.split()}
    __all__ = sorted(_HOMES)  # noqa: PLE0605 they are strings

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES[name]
        if not home:  # a package that is public itself
            value = import_module(f"{__name__}.{name}")
        else:
            value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names."""
        return __all__
