"""Per-round statistics with uncertainty: DataFrame in, DataFrame out; no plotting.

- Per round: `summary` and its `metric_columns`, `composition` (survivors, cohorts),
  `weight_truncation`, `comparison` (of batches).
- Per token: `standardisation` (by sampling probability), `token_positions`, `roles`,
  `tail`, `agreement` (one engine against the other).
- Per sample and cell: `perplexity`, `correlation`, `cells`, `heatmap_rows`, `pairing`
  (of two batches), `worst`.
- Shared: `inputs` (batches, frames, partial captures), `grouping` (`by=`), `intervals`
  and `difference_interval` (clustered bootstrap), `screenshots_seen`.
"""

from rounddiag.stats.cells import cell_frame
from rounddiag.stats.comparison import differences
from rounddiag.stats.composition import cohorts, survivors
from rounddiag.stats.correlation import correlations, groups
from rounddiag.stats.intervals import FEW_SAMPLES, few_rows
from rounddiag.stats.pairing import paired_cells, partners, worst_differences
from rounddiag.stats.perplexity import perplexities
from rounddiag.stats.roles import role_means
from rounddiag.stats.standardisation import conditional, standardised
from rounddiag.stats.summary import round_summary
from rounddiag.stats.tail import tails
from rounddiag.stats.token_positions import positions
from rounddiag.stats.weight_truncation import truncation
from rounddiag.stats.worst import worst_cells, worst_round, worst_samples, worst_tokens

__all__ = [
    "FEW_SAMPLES",
    "cell_frame",
    "cohorts",
    "conditional",
    "correlations",
    "differences",
    "few_rows",
    "groups",
    "paired_cells",
    "partners",
    "perplexities",
    "positions",
    "role_means",
    "round_summary",
    "standardised",
    "survivors",
    "tails",
    "truncation",
    "worst_cells",
    "worst_differences",
    "worst_round",
    "worst_samples",
    "worst_tokens",
]
