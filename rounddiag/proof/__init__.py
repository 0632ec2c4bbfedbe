"""Which engine was wrong, about what: the same tokens scored again.

`rd.prove(batch, model)` scores some samples as a sound engine would, and under
hypotheses; a hypothesis is proved for an engine if it brings that engine's own numbers
back to the noise, better than every other one.

==============  ==================================================================
`experiment`    `prove`: screens hypotheses, and judges the best on more samples
`screening`     which hypotheses are scored, in which order, with which numbers
`search`        what reproduces an engine: one hypothesis, or two together
`rescoring`     `rescore`: the ids of a batch scored again, as one more score
`hypotheses`    what an engine may have done; `register_hypothesis` for one of your own
`engines`       what scores: transformers, a server, a function
`trajectory`    what an engine reads: ids, pictures, positions, and edits of them
`chat`          the tokenizer of a model, and its chat template
`template`      a chat template, rendered in a child process with limits
`samples`       those with the largest mismatch, and controls
`scorer`        passes of samples under hypotheses, run once each
`weights`       older checkpoints, of all samples or of each; adapters
`columns`       log-probs that were moved, exchanged, rounded or filled
`fitting`       the number of a family, such as a temperature
`scores`        the table of scores of the same tokens, and the scale of their noise
`gate`          whether the scorer is a sound engine of this batch
`base`          the weights that are: those given, or a checkpoint
`judge`         which hypothesis reproduces which engine
`verdict`       from opinions about both engines to one verdict
`proof`         `Proof`, as it is printed
`saving`        a proof, or an answer, in a file
`question`      `ask`: what a model would write at a place, and whether it looks
`alternatives`  the likeliest tokens at each place
`sight`         what is lost without the picture, tile by tile
`answer`        `Answer`, as it is printed and saved
`preflight`     `preflight`: a model and a server, before there is a batch
`flight`        what its lines compare, and what a line says
`readings`      what a server read: text tokens, image tokens, pixels
`comparisons`   log-probs, prefill, cache, batch, sampling, packing, weights
`episodes`      what an environment says before each round
`playing`       episodes that a server has sampled, and the batch of them
`trainer`       a function or a command in the trainer's place
`delivery`      a known change of the weights, synced to a server
`noise`         how far two sound engines may differ
==============  ==================================================================
"""

from rounddiag.proof.answer import Answer, load_answer
from rounddiag.proof.experiment import prove
from rounddiag.proof.hypotheses import register_hypothesis
from rounddiag.proof.proof import Proof, load_proof
from rounddiag.proof.question import ask
from rounddiag.proof.rescoring import open_scorer, rescore, rescore_with
from rounddiag.proof.saving import PROOF, SAVED_ANSWER

__all__ = [
    "PROOF",
    "SAVED_ANSWER",
    "Answer",
    "Proof",
    "ask",
    "load_answer",
    "load_proof",
    "open_scorer",
    "prove",
    "register_hypothesis",
    "rescore",
    "rescore_with",
]
