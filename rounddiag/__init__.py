"""Find the round, and the token, where two engines disagree about one batch.

The engine that samples and the engine that trains give the same token different
log-probabilities. A saved batch goes through five steps, each a layer of this
package that knows nothing of the later ones:

>>> import rounddiag as rd
>>> batch = rd.load("sample_data/image_window_verl.pkl")  # loaders: a file
>>> tokens = rd.token_frame(batch)                        # core: tidy frames
>>> summary = rd.round_summary(tokens)                    # stats: per round
>>> figure = rd.plot_rounds(batch)                        # figures: pictures
>>> text = rd.token_text(batch, sample=0)                 # and the text itself

Every public name is found on first use, so that `import rounddiag` costs nothing
and a trainer can import `rounddiag.capture` without pandas or plotly.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag import capture, errors, figures, findings, stats, vision
    from rounddiag.batch import Batch
    from rounddiag.checks import check
    from rounddiag.core import (
        metrics,
        reconcile,
        round_frame,
        sample_frame,
        token_frame,
    )
    from rounddiag.export import report
    from rounddiag.figures import (
        plot_compare,
        plot_conditional,
        plot_finding,
        plot_heatmap,
        plot_log_ppl,
        plot_positions,
        plot_probabilities,
        plot_roles,
        plot_rounds,
        plot_tail,
        plot_trajectory,
        token_text,
    )
    from rounddiag.findings import diagnose
    from rounddiag.loaders import attach, export_rescore, formats, load, save
    from rounddiag.stats import round_summary
    from rounddiag.widgets import explore

__all__ = [
    "Batch",
    "attach",
    "capture",
    "check",
    "diagnose",
    "errors",
    "explore",
    "export_rescore",
    "figures",
    "findings",
    "formats",
    "load",
    "metrics",
    "plot_compare",
    "plot_conditional",
    "plot_finding",
    "plot_heatmap",
    "plot_log_ppl",
    "plot_positions",
    "plot_probabilities",
    "plot_roles",
    "plot_rounds",
    "plot_tail",
    "plot_trajectory",
    "reconcile",
    "report",
    "round_frame",
    "round_summary",
    "sample_frame",
    "save",
    "stats",
    "token_frame",
    "token_text",
    "vision",
]

_SUBMODULES = frozenset({"capture", "errors", "figures", "findings", "stats", "vision"})
_HOMES = {
    "loaders": ("attach", "export_rescore", "formats", "load", "save"),
    "batch": ("Batch",),
    "checks": ("check",),
    "core": ("metrics", "reconcile", "round_frame", "sample_frame", "token_frame"),
    "export": ("report",),
    "findings": ("diagnose",),
    "stats": ("round_summary",),
    "widgets": ("explore",),
    "figures": (
        "plot_compare",
        "plot_conditional",
        "plot_finding",
        "plot_heatmap",
        "plot_log_ppl",
        "plot_positions",
        "plot_probabilities",
        "plot_roles",
        "plot_rounds",
        "plot_tail",
        "plot_trajectory",
        "token_text",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import what `name` stands for and remember it."""
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
