"""Tables: a batch as columns by name, in files and in memory.

=============  ==========================================================
`table`        columns per token, per sample and for all, and the Batch
`arrow`        foreign Parquet, and Arrow files
`json_lines`   JSON text with one record per line
`in_memory`    mappings, lists of rows, frames and data sets
`arrays`       `.npz`, safetensors, and dictionaries of tensors
=============  ==========================================================
"""
