"""What figures share.

`data` turns the arguments of a figure into a frame and validated options, `canvas` has
themes and empty figures, `display` shows figures in notebooks, `labels` has the text of
numbers and names. `axes`, `lines` and `means` draw means; `clouds`
draws clouds of points in panels; `heatmap_cells` and `scales` draw heatmaps;
`panels` puts panels over one x axis.
"""
