"""One module, or a few, for the files of each framework."""
