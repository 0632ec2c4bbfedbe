"""Files, rows and rounds put together into one batch; screenshots given their place.

=================  ================================================================
`concatenation`    the files of one step, end to end, without padding and copies
`trajectories`     rows that are steps, as samples: `join_rows`
`step_order`       their order: by a column, or as the prompts prove it
`round_splitting`  rounds by the chat template or stop tokens; holes in the mask
`images`           screenshots, stored or rebuilt from pixels, with their places
=================  ================================================================
"""
