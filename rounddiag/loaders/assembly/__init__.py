"""Files, rows and rounds put together into one batch; screenshots given their place.

=================  ================================================================
`concatenation`    the files of one step, end to end: `concatenate`
`trajectories`     rows that are steps, as samples: `join_rows`
`interleaving`     the fields of such samples: prompts become observations
`round_splitting`  rounds split after stop tokens; holes in the mask filled
`images`           screenshots rebuilt from pixel values, with position and round
=================  ================================================================
"""
