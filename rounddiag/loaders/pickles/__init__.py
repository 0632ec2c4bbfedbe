"""Pickles, read by an interpreter that makes plain data and runs nothing."""
