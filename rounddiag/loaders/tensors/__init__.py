"""Tensors and arrays that are still in a file, and how to copy them out."""
