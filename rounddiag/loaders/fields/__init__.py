"""Build a Batch from fields under verl's names; every format ends here.

=============  ==========================================================
`mapping`      `batch_from_fields`: the one table of names, and the Batch
`columns`      plain values, verl's extra fields, records of rounds
`reader`       looks up fields by name, checks their shapes, removes padding;
               splits whole sequences into prompt and response
=============  ==========================================================
"""
