"""Tables: batches as named columns, in files and in memory.

=============  ==========================================================
`table`        `Table`: columns per token, per sample and for all; to a Batch
`arrow`        foreign Parquet, and Arrow files
`json_lines`   JSON text with one record per line
`in_memory`    mappings, lists of rows, frames and data sets
`arrays`       `.npz`, safetensors, and dictionaries of tensors
=============  ==========================================================
"""
