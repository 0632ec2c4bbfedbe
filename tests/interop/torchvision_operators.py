"""Define the operators that a torchvision without its compiled part asks for.

vLLM's wheel for CPUs brings the torchvision that is built for CUDA. Image processors
use nothing compiled, but its import fails unless two operators are known by name.
`./vllm` puts this file into the environment, where a `.pth` file imports it in every
Python.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class Finder(MetaPathFinder):
    """Defines the operators when torchvision is imported, and finds nothing."""

    operators: Any = None

    def find_spec(self, name: str, *_: object) -> None:
        """Look out for torchvision."""
        if name == "torchvision":
            import torch

            sys.meta_path.remove(self)
            Finder.operators = torch.library.Library("torchvision", "DEF")
            for one in ("nms", "qnms"):
                arguments = "Tensor dets, Tensor scores, float iou_threshold"
                Finder.operators.define(f"{one}({arguments}) -> Tensor")


sys.meta_path.insert(0, Finder())
