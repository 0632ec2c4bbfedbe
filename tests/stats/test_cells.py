"""Means of cells."""

from __future__ import annotations

import numpy as np

from rounddiag.stats.cells import cell_means


def test_cells_of_few_clusters_are_marked() -> None:
    sample = np.r_[np.arange(20), np.arange(4)]
    cell = np.repeat([0, 1], [20, 4])
    values = np.arange(24.0)
    own = np.arange(20)
    for cluster, is_few in ((own, [False, True]), (own // 5, [True, True])):
        cells = cell_means(values, cell, sample, cluster)
        assert cells["is_few"].tolist() == is_few
