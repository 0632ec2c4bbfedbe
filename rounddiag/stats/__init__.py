"""What a round's number is worth: frames to frames, no torch and no pictures."""

from rounddiag.stats.cohorts import cohorts, survivors
from rounddiag.stats.comparison import differences
from rounddiag.stats.conditional import conditional
from rounddiag.stats.correlating import correlations
from rounddiag.stats.few import FEW_SAMPLES, few_rows
from rounddiag.stats.paired_cells import paired_cells
from rounddiag.stats.partners import partners
from rounddiag.stats.perplexity import perplexities
from rounddiag.stats.positions import positions
from rounddiag.stats.ranking import worst_cells, worst_samples, worst_tokens
from rounddiag.stats.role_means import role_means
from rounddiag.stats.run_cells import cell_frame
from rounddiag.stats.samples import groups
from rounddiag.stats.standardising import standardised
from rounddiag.stats.summary import round_summary
from rounddiag.stats.tails import tails
from rounddiag.stats.truncation import truncation
from rounddiag.stats.worst import worst_round
from rounddiag.stats.worst_differences import worst_differences

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
