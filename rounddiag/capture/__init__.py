"""Save batches from inside a training loop, with torch, numpy and pyarrow alone.

==================  ================================================================
`recorder`          `Recorder`: saves every n-th step in the background, and logs why
                    no step was recorded
`options`           the validated options of a `Recorder`, and stale partial files
`facts`             facts of the run, which `facts_from_verl` reads from verl's
                    configuration; `round_record`: those of a round
`weights`           digests of the weights that were sent and received
`trainer_batch`     the fields of a DataProto, TensorDict, mapping or TransferQueue
`snapshot`          the copy of a batch in host memory; several of one step, joined
`sampling`          which samples keep their screenshots, and copies of those
`step_file`         `save_batch`; builds the batch of a step and writes its file
`verdict_worker`    the verdict on recorded steps, from a child process;
                    `verdict_child` is what runs in it
`writer`            the background thread, which never raises into the trainer
==================  ================================================================
"""

from rounddiag.capture.facts import facts_from_verl, round_record
from rounddiag.capture.recorder import Recorder
from rounddiag.capture.step_file import save_batch
from rounddiag.capture.weights import digest_weights

__all__ = [
    "Recorder",
    "digest_weights",
    "facts_from_verl",
    "round_record",
    "save_batch",
]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
