"""Our own file: Parquet, one row a sample.

Columns are named as the fields of a Batch; `score:NAME` and `sample:NAME` hold its
`scores` and `sample_columns`, `round_columns` is a list of structs, and `screenshots`
is stored as Hugging Face `datasets` stores a list of images, with their rounds and
positions in lists beside it. A dtype that Parquet lacks, or that would be wider than
the values need, is named in the column's metadata (`dtypes`). What is not per sample
stands as JSON in the file's metadata, under the key `rounddiag`, with the version of
this layout; older versions open too.
"""

from rounddiag.loaders.parquet.reader import load_parquet
from rounddiag.loaders.parquet.writer import save

__all__ = ["load_parquet", "save"]
