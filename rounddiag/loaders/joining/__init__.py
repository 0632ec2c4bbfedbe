"""Batches and rows joined, and rounds divided."""
