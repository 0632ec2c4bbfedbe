"""Per-round statistics with uncertainty: DataFrame in, DataFrame out; no plotting.

- Per round: `summary`, `composition` (survivors), `comparison` (of batches).
- Per token: `place_means` (position, role, probability), `standardisation` (over the
  probability), `tail`, `agreement` (of both engines), `staleness`.
- Per sample and cell: `cells`, `heatmap_rows`, `worst`.
- Per task: `outcome_comparison`.
- Shared: `inputs` (batches, frames), `grouping` (`by=`), `intervals`
  and `difference_interval` (clustered bootstrap).
"""

from typing import NoReturn

from rounddiag.stats.cells import cell_frame
from rounddiag.stats.comparison import compare_batches
from rounddiag.stats.composition import survivors
from rounddiag.stats.intervals import FEW_SAMPLES, few_rows
from rounddiag.stats.outcome_comparison import compare_outcomes
from rounddiag.stats.place_means import means_by
from rounddiag.stats.staleness import describe_staleness, staleness_share
from rounddiag.stats.standardisation import standardise
from rounddiag.stats.summary import round_summary
from rounddiag.stats.tail import tail_shares
from rounddiag.stats.worst import worst_cells, worst_round, worst_samples, worst_tokens

__all__ = [
    "FEW_SAMPLES",
    "cell_frame",
    "compare_batches",
    "compare_outcomes",
    "describe_staleness",
    "few_rows",
    "means_by",
    "round_summary",
    "staleness_share",
    "standardise",
    "survivors",
    "tail_shares",
    "worst_cells",
    "worst_round",
    "worst_samples",
    "worst_tokens",
]

_OF_TWO = "`compare_batches([before, after])`, or merge both round frames by id"
_REPLACED = {
    "pair_samples": _OF_TWO,
    "paired_cells": _OF_TWO,
    "worst_differences": _OF_TWO,
    "position_means": "`means_by(data, x)`, with x from `token` to `context`",
    "role_means": '`means_by(data, "role")`',
    "conditional_means": '`means_by(data, "probability")`',
}


def __getattr__(name: str) -> NoReturn:
    """Say what replaced a name."""
    if name in _REPLACED:
        raise ImportError(f"0.3.0 removed `{name}`. Use {_REPLACED[name]}.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
