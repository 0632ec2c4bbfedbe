"""Our own file: Parquet, one row a sample.

Columns are named as the fields of a Batch; `score:NAME` and `sample:NAME` hold its
`scores` and `sample_columns`, `round_columns` is a list of structs, and `screenshots`
is stored as Hugging Face `datasets` stores a list of images. What is not per sample
stands as JSON in the file's metadata, under the key `rounddiag`.
"""

from rounddiag.loaders.parquet.reading import load_parquet
from rounddiag.loaders.parquet.writing import save

__all__ = ["load_parquet", "save"]
