"""A run: many training steps, as a folder of step files.

====================  ==============================================================
`run`                 `open_run` and `Run`: steps, summaries, batches, samples
`folder`              the files of a run, and the step of each
`index`               tables derived from the files, in the user's cache folder
`step_tables`         the rows of one step, and of all steps
`change_points`       steps at which a round changes, growth over steps, and breaks:
                      steps at which several rounds change together
`growth`              whether the mismatch follows the updates, or the recorded lag
`serial_correlation`  the correlation of the means of neighbouring steps
`diagnosis`           a verdict per step, and what changed between steps
`ingestion`           `ingest`: files of a framework become step files
`engines`             one function over many files: in this process, or on Ray
====================  ==============================================================
"""

from rounddiag.runs.change_points import find_breaks, find_changes
from rounddiag.runs.ingestion import Ingestion, ingest
from rounddiag.runs.run import Run, open_run, run_in

__all__ = [
    "Ingestion",
    "Run",
    "find_breaks",
    "find_changes",
    "ingest",
    "open_run",
    "run_in",
]
