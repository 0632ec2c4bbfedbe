"""Batch: the aligned, validated tensors of one training step; no I/O.

=====================  =============================================================
`batch`                `Batch`: one flat tensor per field, with offsets of the samples
`contexts`             what an engine read before a round
`context_store`        contexts that were rewritten, as ranges of their samples
`sample_sequence`      prompt and response of a sample, its pictures and chains
`chains`               a batch with one sample per chain, as an engine scores it
`steps`                a table with one row per step -> a batch
`step_table`           the columns of such a table: ids, texts, messages, pictures
`text_contexts`        contexts of messages: what entered each, and where it stands
`messages`             what a message says: its role, its pieces, as text
`content`              content of a message as pieces, in the layouts of all APIs
`trajectories`         `join_rows`: join rows that are steps into samples
`context_joining`      what is new in the context of each row, and what it shares
`step_order`           the order of the steps: from a column, or proved by the prompts
`picture_places`       the position and round of each picture
`left_out`             the names of what a file has and a batch does not
`sequence_difference`  how a context follows another: what both share
`layout`               padded tensors and rows -> flat tensors; selecting samples
`turns`                what each role said; the pieces of a batch without ids
`missing`              what a batch lacks, in one sentence
`validation`           shapes, lengths, dtypes and the mask, checked on construction
`address`              the address of a place in text, written and read
`html`                 the tables that a notebook shows for a batch and its checks
=====================  =============================================================
"""

from rounddiag.batch.batch import Batch, require_batch
from rounddiag.batch.contexts import (
    Context,
    ContextPiece,
    chains,
    context,
    context_engines,
)
from rounddiag.batch.steps import from_steps
from rounddiag.batch.turns import Turn, from_turns

__all__ = ["Batch", "Context", "ContextPiece", "Turn", "require_batch"]

Batch.from_turns = classmethod(from_turns)
Batch.from_steps = staticmethod(from_steps)
Batch.context, Batch.chains = context, chains
Batch.context_engines = property(context_engines)
