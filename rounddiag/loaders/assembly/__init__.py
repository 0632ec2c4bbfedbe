"""Assemble a batch: join files, split rounds, place screenshots.

==================  ===============================================================
`concatenation`     join the files of one step; drop padding rows and copies
`turns`             trajectories in files of agents: turns, calls, pictures
`trajectory_batch`  these as a batch
`join_hint`         what a batch says of rows that are steps and were not joined
`round_splitting`   rounds from the chat template or stop tokens; holes in the mask
`images`            screenshots, stored or rebuilt from pixels
==================  ===============================================================
"""
