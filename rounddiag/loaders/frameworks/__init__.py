"""The files of each framework: `Format` objects, which `detection` finds here."""
