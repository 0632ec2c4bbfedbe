"""The explorer: linked views of a batch, from its rounds to one token.

Five floors, from the top:

- `explorer`: `explore` and `Explorer`, what a user reads, sets and displays. `steps` is
  the line of a run's steps above it. `view` is its widget: messages with the page,
  static preview. `assets` has the page's script and style, `serialization` the form of
  payloads, `opening` the batches of what it is given.
- `requests`: what the page may request, and the payload of each reply. `figures` draws
  the overview, `sample_view` has the tokens of a sample, `episode` its task, end and
  observations, `outcomes` how it ended in a word, `contexts` what the model saw,
  `answers` what a model would have written, `images` its screenshots and actions.
- `lists`: the rows of the drawer; `trajectory_columns` has what those of samples say.
- `session`: the state, with the frames that follow from it. `columns` has a batch's
  columns, `filters` decides which tokens are kept, `corrections` says what one
  drops; `value_means` has the mean |diff| of each value of a column.
- `state`: every choice as plain data, and the choices that a batch offers.

`page/` has script and style, one file a pane; `view` joins them in order.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag.widgets.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]

if not TYPE_CHECKING:  # reports need the rest of this package, and no widgets

    def __getattr__(name: str) -> object:
        """Import the explorer, and with it the packages of the extra `lab`."""
        if name not in __all__:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name
            )
        try:
            from rounddiag.widgets import explorer
        except ModuleNotFoundError as error:
            if error.name not in {"anywidget", "ipywidgets"}:
                raise
            raise ModuleNotFoundError(
                f"expected the package {error.name}, which the explorer needs; found"
                " none. Run `pip install 'rounddiag[lab]'`.",
                name=error.name,
            ) from error
        return getattr(explorer, name)
