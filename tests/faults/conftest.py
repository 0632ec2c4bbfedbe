"""Modules that make the batches need transformers or vLLM; the tests do not."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = ["vllm_make.py", "vllm_sampler.py"]
if find_spec("transformers") is None:
    collect_ignore += [
        "context_faults.py",
        "engine.py",
        "episodes.py",
        "healthy.py",
        "heads.py",
        "injections.py",
        "make.py",
        "models.py",
        "pages.py",
        "pools.py",
        "sampler.py",
        "weight_faults.py",
    ]
