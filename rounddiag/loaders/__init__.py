"""Files become batches: `load` detects the format, `save` writes rounddiag's own.

==================  =================================================================
`open`              `load`: files, or a table in memory, as one batch
`sample_batches`    `demo`: the batches that are installed
`paths`             the files of a path, folder or glob; a file inside a folder
`untrusted`         loading in a child process with limits on memory and time
`signatures`        what a file is by its first bytes, without torch
`containers`        the content of a file: torch, pickle, npz, safetensors, and others
`detection`         the list of formats, and the one that a file has
`column_mapping`    the `columns` argument: names of the user's own
`format`            `Format`: names, file patterns, keys, reader
`source`            a file from which parts are read on request
`output`            what is written: whole, and over nothing of another kind
`stored`            tensors and arrays that stay in the file until they are read
`torch_file`        files of `torch.save`
`pickle`            a pickle interpreter that builds plain data and calls nothing
`arrow`             tables of Arrow: foreign Parquet, and Arrow files
`json_lines`        records of JSON: lines, a document, or in memory
`outcome`           status, seconds, tokens, cost, error under names of their own
`packed`            files packed by gzip or zstd
`tables`            rows of any of these as columns; to a Batch
`memory`            data in memory as a table: columns, rows, frames and data sets
`fields`            the list of what a table can have for a Batch, with its names
`field_reader`      fields by name: shapes, padding, whole sequences
`field_batch`       fields become a Batch
`plain_columns`     one value per sample from any values; records of rounds
`frameworks`        the files of each framework, and their `Format`
`assembly`          joining files and rows, splitting rounds, placing screenshots
`parquet`           rounddiag's own file
`rescoring`         scores of another engine: samples written for it, `attach`
`score_files`       the scores in a file or table, one entry per token
`unopened`          what to say of content that is no batch: where its messages are
`trajectory_files`  screenshots and actions in files of agent frameworks
==================  =================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag.loaders.detection import formats
    from rounddiag.loaders.open import load
    from rounddiag.loaders.parquet import save
    from rounddiag.loaders.rescoring import attach, export_rescore
    from rounddiag.loaders.sample_batches import demo

__all__ = ["attach", "demo", "export_rescore", "formats", "load", "save"]

# Imported on first use, because they import torch, pyarrow or pandas.
_LAZY = {
    "attach": "rescoring",
    "demo": "sample_batches",
    "export_rescore": "rescoring",
    "formats": "detection",
    "load": "open",
    "save": "parquet",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
