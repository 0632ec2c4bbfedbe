"""Fields under verl's names, as a Batch: where all formats meet.

=============  ==========================================================
`mapping`      `batch_from_fields`: the one table of names, and the Batch
`reader`       fields looked up by name and fitted to the tokens
`padding`      padding removed; whole sequences split into prompt and
               response
=============  ==========================================================
"""
