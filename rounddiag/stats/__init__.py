"""Per-round statistics with uncertainty: DataFrame in, DataFrame out; no plotting.

- Per round: `summary`, `composition` (survivors), `comparison` (of batches).
- Per token: `standardisation` (by sampling probability), `token_positions`, `roles`,
  `tail`, `agreement` (one engine against the other), `staleness` (against the engine).
- Per sample and cell: `cells`, `heatmap_rows`, `pairing` (of two
  batches), `worst`.
- Per task: `outcome_comparison`.
- Shared: `inputs` (batches, frames), `grouping` (`by=`), `intervals`
  and `difference_interval` (clustered bootstrap).
"""

from rounddiag.stats.cells import cell_frame
from rounddiag.stats.comparison import compare_batches
from rounddiag.stats.composition import survivors
from rounddiag.stats.intervals import FEW_SAMPLES, few_rows
from rounddiag.stats.outcome_comparison import compare_outcomes
from rounddiag.stats.pairing import pair_samples, paired_cells
from rounddiag.stats.roles import role_means
from rounddiag.stats.staleness import describe_staleness, staleness_share
from rounddiag.stats.standardisation import conditional_means, standardise
from rounddiag.stats.summary import round_summary
from rounddiag.stats.tail import tail_shares
from rounddiag.stats.token_positions import position_means
from rounddiag.stats.worst import worst_cells, worst_round, worst_samples, worst_tokens

__all__ = [
    "FEW_SAMPLES",
    "cell_frame",
    "compare_batches",
    "compare_outcomes",
    "conditional_means",
    "describe_staleness",
    "few_rows",
    "pair_samples",
    "paired_cells",
    "position_means",
    "role_means",
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


def __getattr__(name: str) -> object:
    """Say what replaces a name of an older version."""
    is_known = name == "worst_differences"
    instead = " Sort `paired_cells` by `difference`." if is_known else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{instead}")


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
