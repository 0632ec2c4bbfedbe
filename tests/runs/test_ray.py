"""On a real Ray cluster of two nodes, everything is as in one process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.runs.engines import map_items
from tests.runs.ray_nodes import node_options
from tests.runs.step_folders import small_dump

ray = pytest.importorskip("ray", reason="Ray is the extra `ray`")
NUM_STEPS = 24

# Ray warns of its own plans, and leaves sockets and threads to the interpreter's end.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head and a second node, each with room for one task."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=node_options())
    cluster.add_node(**node_options())
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def raw_steps(folder: Path) -> Path:
    folder.mkdir()
    for step in range(NUM_STEPS):
        torch.save(small_dump(step), folder / f"global_step_{step}.pt")
    (folder / "global_step_99.pt").write_bytes(b"PK\x03\x04 cut off")
    return folder


def test_a_cluster_that_loses_a_node_gives_the_same_rows(
    tmp_path: Path, cluster: Any
) -> None:
    raw = raw_steps(tmp_path / "raw")
    node = [*cluster.worker_nodes][-1]
    out = tmp_path / "of_ray"

    def kill() -> None:
        while len([*out.glob("*.parquet")]) < 2:
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    done = rd.ingest(raw, out, engine="ray")
    killer.join(60)
    assert not killer.is_alive()
    assert done.written == tuple(range(NUM_STEPS))
    assert [name.rpartition("/")[2] for name in done.failed] == ["global_step_99.pt"]
    assert rd.ingest(raw, out, engine="ray").unchanged == tuple(range(NUM_STEPS))
    rd.ingest(raw, tmp_path / "here")
    here, there = rd.open_run(tmp_path / "here"), rd.open_run(out, engine="ray")
    pd.testing.assert_frame_equal(there.summary(), here.summary())
    for step in (0, NUM_STEPS - 1):
        one, other = here.batch(step), there.batch(step)
        assert torch.equal(one.log_probs("old"), other.log_probs("old"))
        assert torch.equal(one.require_ids(), other.require_ids())


@pytest.mark.usefixtures("cluster")
def test_an_item_that_ends_its_worker_is_an_error_and_the_others_are_done() -> None:
    def halve(number: int) -> float:
        if number == 4:
            os._exit(1)
        return number / 2

    found = dict(
        map_items(halve, [2, 4, 6], engine="ray", num_bytes=int, label="halves")
    )
    assert (found.pop(2), found.pop(6)) == (1, 3)
    assert isinstance(found[4], ray.exceptions.WorkerCrashedError)
