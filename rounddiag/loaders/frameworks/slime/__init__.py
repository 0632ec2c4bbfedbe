"""What slime, vime and miles save with `--dump-details`: train and rollout files.

`train_data/{rollout_id}.pt` has the tokens, the mask and both engines'
log-probabilities; `rollout_data/{rollout_id}.pt`, where it lies beside, adds text,
status, weight versions and screenshots.
"""

from rounddiag.loaders.frameworks.slime.train_files import (
    RANK_COLUMNS,
    ROLLOUTS,
    SAMPLES,
    read_columns,
)

__all__ = ["RANK_COLUMNS", "ROLLOUTS", "SAMPLES", "read_columns"]
