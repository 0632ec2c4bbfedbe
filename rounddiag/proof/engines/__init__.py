"""What scores: a model of transformers here, a server, or a function.

==============  ==================================================================
`engine`        what all engines do; `Readout`, from which logits follow
`local`         transformers in this process
==============  ==================================================================
"""

from rounddiag.proof.engines.engine import Engine, Readout

__all__ = ["Engine", "Readout"]
