"""The version of this package, which files that it writes carry."""

__version__ = "0.2.0"
