"""Train and rollout files of slime, vime and miles, saved with `--dump-details`.

`train_data/{rollout_id}.pt` has the tokens, the mask and both engines'
log-probabilities. `rollout_data/{rollout_id}.pt`, if the dump has it, adds text,
status, weight versions and screenshots.

===============  ==================================================================
`train_files`    the train file as a batch; the formats
`samples`        the columns of a train file, of either layout
`rollout_files`  the columns and screenshots that the rollout file adds
===============  ==================================================================
"""

from rounddiag.loaders.frameworks.slime.train_files import (
    DASHBOARD,
    RANK,
    ROLLOUTS,
    TRAIN_DATA,
)

__all__ = ["DASHBOARD", "RANK", "ROLLOUTS", "TRAIN_DATA"]
