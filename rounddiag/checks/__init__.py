"""Invariants of a batch, checked without statistics.

============  ====================================================================
`suite`       `check`: the list of contracts, and which are fast
`contracts`   contracts, their results, and places in messages
`tokens`      token ids of both engines; prompts
`log_probs`   log-probabilities that no engine computes
`fills`       fixed values in place of log-probs
`grammar`     structured output: its record, and the tokens it forces
`mask`        tokens under the mask that the model did not write
`written`     the generated tokens as arrays
`rounds`      headers, ends and holes of rounds
`rows`        copies, padding, empty rows, mixed weight versions
`provable`    what a proof can use: the checkpoint, prompts of rounds
`weights`     whether weights arrived, and were newer than the trainer's
`advantages`  what an update learns: advantages and groups
`estimators`  the formulas of trainers for advantages, and known slips
`update`      separators of turns, resumed turns, rows joined into samples
`coordinates` the frame of the points of actions
`images`      image tokens and M-RoPE position ids
============  ====================================================================
"""

from rounddiag.checks.contracts import Check, Checks
from rounddiag.checks.suite import check

__all__ = ["Check", "Checks", "check"]
