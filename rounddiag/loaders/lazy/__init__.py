"""Tensors and arrays that stay in the file until they are read.

==============  =========================================================
`torch_file`    files of `torch.save`, and where their storages are
`tensors`       tensors, nested tensors and TensorDicts
`arrays`        numpy arrays and scalars; rows of different lengths
==============  =========================================================
"""
