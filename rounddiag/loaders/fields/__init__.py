"""Fields under verl's names, as a Batch: where all formats meet.

=============  ==========================================================
`mapping`      `batch_from_fields`: the one table of names, and the Batch
`columns`      plain values, verl's extra fields, records of rounds
`reader`       fields looked up by name and fitted to the tokens, padding
               removed; whole sequences split into prompt and response
=============  ==========================================================
"""
