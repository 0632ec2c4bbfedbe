"""What scores: a model of transformers in this process, or a function.

==============  ==================================================================
`engine`        what all engines do; `Readout`, from which logits follow
`local`         transformers in this process
`loading`       a model and its image processor, from a folder or a name
`function`      a function from ids to log-probs
`opening`       what a user passes, opened
==============  ==================================================================
"""

from rounddiag.proof.engines.engine import Engine, Readout

__all__ = ["Engine", "Readout"]
