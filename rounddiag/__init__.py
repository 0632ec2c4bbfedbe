"""Find the round, and the token, where two engines disagree about one batch.

The sampling engine and the training engine give the same token different
log-probabilities. Each step of the pipeline is a package that does not import the
later ones:

>>> import rounddiag as rd
>>> batch = rd.load("sample_data/image_window_verl.pkl")  # loaders: file -> Batch
>>> tokens = rd.token_frame(batch)                        # core: Batch -> DataFrame
>>> summary = rd.round_summary(tokens)                    # stats: one row per round
>>> diagnosis = rd.diagnose(batch)                        # findings: noise or a bug
>>> figure = rd.plot_rounds(batch)                        # figures: plotly
>>> text = rd.token_text(batch, sample=0)                 # the text, coloured

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

# For type checkers and editors; at run time `_HOMES` has the same names.
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
    from rounddiag.export import report as report
    from rounddiag.figures import plot_compare as plot_compare
    from rounddiag.figures import plot_conditional as plot_conditional
    from rounddiag.figures import plot_finding as plot_finding
    from rounddiag.figures import plot_heatmap as plot_heatmap
    from rounddiag.figures import plot_log_ppl as plot_log_ppl
    from rounddiag.figures import plot_positions as plot_positions
    from rounddiag.figures import plot_probabilities as plot_probabilities
    from rounddiag.figures import plot_roles as plot_roles
    from rounddiag.figures import plot_rounds as plot_rounds
    from rounddiag.figures import plot_run as plot_run
    from rounddiag.figures import plot_tail as plot_tail
    from rounddiag.figures import plot_trajectory as plot_trajectory
    from rounddiag.figures import token_text as token_text
    from rounddiag.findings import diagnose as diagnose
    from rounddiag.findings import places as places
    from rounddiag.loaders import attach as attach
    from rounddiag.loaders import export_rescore as export_rescore
    from rounddiag.loaders import formats as formats
    from rounddiag.loaders import load as load
    from rounddiag.loaders import save as save
    from rounddiag.proof import prove as prove
    from rounddiag.proof import rescore as rescore
    from rounddiag.runs import ingest as ingest
    from rounddiag.runs import open_run as open_run
    from rounddiag.stats import round_summary as round_summary
    from rounddiag.widgets import explore as explore

# Each public name and its package; a package that is public itself has its own name.
_HOMES = {
    "Batch": "batch",
    "attach": "loaders",
    "capture": "capture",
    "check": "checks",
    "diagnose": "findings",
    "errors": "errors",
    "explore": "widgets",
    "export_rescore": "loaders",
    "figures": "figures",
    "findings": "findings",
    "formats": "loaders",
    "ingest": "runs",
    "load": "loaders",
    "metrics": "core",
    "open_run": "runs",
    "places": "findings",
    "plot_compare": "figures",
    "plot_conditional": "figures",
    "plot_finding": "figures",
    "plot_heatmap": "figures",
    "plot_log_ppl": "figures",
    "plot_positions": "figures",
    "plot_probabilities": "figures",
    "plot_roles": "figures",
    "plot_rounds": "figures",
    "plot_run": "figures",
    "plot_tail": "figures",
    "plot_trajectory": "figures",
    "prove": "proof",
    "reconcile": "core",
    "report": "export",
    "rescore": "proof",
    "round_frame": "core",
    "round_summary": "stats",
    "sample_frame": "core",
    "save": "loaders",
    "stats": "stats",
    "token_frame": "core",
    "token_text": "figures",
    "vision": "vision",
}

if not TYPE_CHECKING:  # a type checker would let any name through
    __all__ = [*_HOMES]  # noqa: PLE0604 they are strings

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in _HOMES:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        package = import_module(f"{__name__}.{_HOMES[name]}")
        value = package if name == _HOMES[name] else getattr(package, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names."""
        return __all__
