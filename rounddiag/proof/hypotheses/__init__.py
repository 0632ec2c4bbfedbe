"""What an engine may have done: hypotheses, each with its cause.

==============  ==================================================================
`hypothesis`    `Hypothesis`; `Family`, of one number; `register_hypothesis`
`processor`     a step of a sampler, from logits to other logits
`pictures`      images not seen, blank, exchanged, of other sizes; the last k only
`positions`     positions of the rotary embedding
`context`       text not read, read twice, or read of neighbours
`history`       earlier rounds as other ids than those that were written
`contexts`      of samples joined from steps: contexts built from those of other rounds
`sampling`      temperature, truncation, penalties, bias: from logits alone
`choices`       structured output by a fixed list of texts, where it is recorded
`numerics`      8 bits, other experts, rounded frequencies, tokens decoded one by one
==============  ==================================================================
"""

from rounddiag.proof.hypotheses import context as context
from rounddiag.proof.hypotheses import contexts as contexts
from rounddiag.proof.hypotheses import history as history
from rounddiag.proof.hypotheses import numerics as numerics
from rounddiag.proof.hypotheses import pictures as pictures
from rounddiag.proof.hypotheses import positions as positions
from rounddiag.proof.hypotheses.hypothesis import (
    Hypothesis,
    all_registered,
    register_hypothesis,
    registered_names,
    select_hypotheses,
    unregister_hypothesis,
)

__all__ = [
    "Hypothesis",
    "all_registered",
    "register_hypothesis",
    "registered_names",
    "select_hypotheses",
    "unregister_hypothesis",
]
