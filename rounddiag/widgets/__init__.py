"""The explorer: linked views of a batch, from its rounds to one token.

Five floors, from the top:

- `explorer`: `explore` and `Explorer`, what a user reads, sets and displays. `steps` is
  the line of a run's steps above it. `view` is its widget: script and style of the
  page, messages with it, static preview.
- `requests`: what the page may request, and the payload of each reply. `figures` draws
  the overview, `sample_view` has the tokens of a sample, `images` its screenshots and
  actions.
- `lists`: the rows of the drawer; `in_common`: what some tokens share.
- `session`: the state, with the frames that follow from it. `columns` has a batch's
  columns, `filters` decides which tokens are kept, `pair` compares two batches.
- `state`: every choice as plain data, and the choices that a batch offers.

`page/` has script and style, one file a pane; `view` joins them in order.
"""

from rounddiag.widgets.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]
