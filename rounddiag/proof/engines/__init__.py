"""What scores: a model of transformers in this process, a server, or a function.

==============  ==================================================================
`engine`        what all engines do; `Readout`, from which logits follow
`local`         transformers in this process
`eyes`          its pictures: pixels, image tokens, features; positions
`loading`       a model and its image processor, from a folder or a name
`settings`      what a model computes otherwise for one pass
`prefix`        passes that are kept: the next one computes what differs only
`adapters`      a LoRA adapter, which peft adds to a model
`server`        a running vLLM or SGLang: ids sent, answers checked
`dialects`      how each is asked, and how it answers
`client`        requests to the one host that was named
`pictures`      the pictures of a sample: their tokens, their pixels
`opening`       what a user passes, opened; a function from ids to log-probs
==============  ==================================================================
"""

from rounddiag.proof.engines.engine import Engine, Readout

__all__ = ["Engine", "Readout"]
