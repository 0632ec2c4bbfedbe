"""A model of transformers and its image processor, from a folder or a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rounddiag.errors import LoadError, import_extra
from rounddiag.loaders.source import inside
from rounddiag.wording import join_names

_MIN_VERSION = 5


def load_model(
    name: str,
    *,
    device: str,
    dtype: str,
    trust_remote_code: bool,
    attention: str | None,
) -> tuple[Any, Any]:
    """Load a model, and its image processor if it sees."""
    transformers = import_extra("transformers", "prove", "to run the model")
    if int(transformers.__version__.split(".")[0]) < _MIN_VERSION:
        raise LoadError.build(
            expected=f"transformers {_MIN_VERSION} or newer",
            found=transformers.__version__,
            advice="Run `pip install 'rounddiag[prove]'`.",
        )
    known: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if _is_path(name):
        _require_folder(name)
        known["local_files_only"] = True
    place = _device(device)
    logs = transformers.utils.logging
    bars, level = logs.is_progress_bar_enabled(), logs.get_verbosity()
    logs.disable_progress_bar()
    logs.set_verbosity_error()  # its report of weights: they are checked below
    try:
        config = transformers.AutoConfig.from_pretrained(name, **known)
        sees = hasattr(config, "vision_config")
        auto = (
            transformers.AutoModelForImageTextToText
            if sees
            else transformers.AutoModelForCausalLM
        )
        # Never `.to(bfloat16)`: that rounds the rotary frequencies too.
        model, report = auto.from_pretrained(
            name,
            dtype=_dtype(dtype, name, place),
            attn_implementation=attention,
            output_loading_info=True,
            **known,
        )
        processor = (
            transformers.AutoImageProcessor.from_pretrained(name, **known)
            if sees
            else None
        )
        model = model.to(place).eval().requires_grad_(False)  # noqa: FBT003 torch's own
    except Exception as error:
        raise _loading_error(name, error) from error
    finally:
        logs.set_verbosity(level)
        if bars:
            logs.enable_progress_bar()
    _refuse_partial(name, report)
    return model, processor


def _is_path(name: str) -> bool:
    """Return whether a name is of a folder: a model's is `name` or `owner/name`."""
    return (
        Path(name).exists() or name.count("/") > 1 or name.startswith((".", "~", "/"))
    )


# What transformers opens of a folder, by its ending.
_OPENED = (".json", ".safetensors", ".bin", ".jinja", ".model", ".txt", ".py")


def _require_folder(name: str) -> None:
    path = Path(name)
    if (path / "config.json").is_file():
        for file in path.iterdir():
            if file.suffix in _OPENED:
                inside(path, file.name)
    else:
        content = "a folder without one" if path.is_dir() else "a file"
        raise LoadError.build(
            file=name,
            expected="a folder with `config.json`, as `save_pretrained` writes it",
            found=content if path.exists() else "no such folder",
            advice="Pass the folder of the checkpoint of this step.",
        )


def _refuse_partial(name: str, report: dict[str, Any]) -> None:
    """Refuse weights that are not there: transformers fills them at random."""
    missing = sorted(map(str, report.get("missing_keys") or ()))
    other = sorted(str(name) for name, *_ in report.get("mismatched_keys") or ())
    for names, lack in ((missing, "lacks"), (other, "has in other shapes")):
        if names:
            raise LoadError.build(
                file=name,
                expected="all weights of the model",
                found=f"a checkpoint that {lack} {join_names(names)}",
                advice="Pass a complete checkpoint, as `save_pretrained` writes it.",
            )


def _device(device: str) -> torch.device:
    if device != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _dtype(dtype: str, name: str, device: torch.device) -> torch.dtype:
    """Return a dtype; float32 for `auto` where twice the weights fit the device."""
    if dtype != "auto":
        return getattr(torch, dtype)
    folder = Path(name)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return torch.float32 if 0 < 4 * size < free else torch.bfloat16
    return torch.float32


def _loading_error(name: str, error: Exception) -> LoadError:
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:
        return LoadError.build(
            file=name,
            expected="a model of an architecture that transformers has",
            found="one that brings code of its own",
            advice="Read that code, then pass `trust_remote_code=True`.",
        )
    return LoadError.build(
        file=name,
        expected="a model that transformers opens: a folder as `save_pretrained`"
        " writes it, or a name",
        found=f"{type(error).__name__}: {text:.300}".rstrip(" .:"),
        advice="Pass the folder of the checkpoint of this step.",
    )
