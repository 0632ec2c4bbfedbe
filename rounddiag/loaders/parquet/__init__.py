"""Our own file: Parquet, one row per sample.

===============  ===========================================================
`writer`         `save`
`reader`         `load_parquet`; `load_columns` and `load_sample` read a part of it
`columns`        tensors, arrays and texts as columns, and back
`metadata`       values for the whole batch
`redaction`      what `redact=True` keeps
`totals`         totals of all samples, in the footer, for `Run.summary`
`screenshots`    pictures, each read from the file on request
===============  ===========================================================

Columns have the names of the fields of a Batch. `score:NAME`, `token:NAME` and
`sample:NAME` hold its `scores`, `token_columns` and `sample_columns`; `round_columns`
is a list of structs. `screenshots` is stored as Hugging Face `datasets` stores a list
of images, with their rounds and positions in a second column of lists. A dtype that
Parquet lacks, or that is wider than the values need, is named in the column's metadata.
What is not per sample is JSON in the file's metadata, under the key `rounddiag`, with
the version of this layout. Older versions can be read.

A column that a reader does not know is optional: the reader leaves it out and names it
in `meta["left_out"]`. The names `contexts` and `digest` are reserved.
"""

from rounddiag.loaders.parquet.reader import load_columns, load_parquet, load_sample
from rounddiag.loaders.parquet.writer import save

__all__ = ["load_columns", "load_parquet", "load_sample", "save"]
