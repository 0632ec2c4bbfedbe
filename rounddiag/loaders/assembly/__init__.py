"""Assemble a batch: join files and rows, split rounds, place screenshots.

=================  ================================================================
`concatenation`    join the files of one step; drop padding rows and copies
`turns`            trajectories in files of agents: turns, calls, pictures
`trajectories`     `join_rows`: join rows that are steps into samples
`context_joining`  what is new in the context of each row, and what it shares
`step_order`       the order of the steps: from a column, or proved by the prompts
`round_splitting`  rounds from the chat template or stop tokens; holes in the mask
`images`           screenshots, stored or rebuilt from pixels, with their positions
=================  ================================================================
"""
