"""A pickled TrainingInputBatch of SkyRL: its tensors, still in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError
from rounddiag.loaders.pickles.inert import Node, TextBytes
from rounddiag.loaders.source import Span
from rounddiag.loaders.tensors.numpy_nodes import scalar_value
from rounddiag.loaders.tensors.stored import DTYPES, StoredTensor, contiguous
from rounddiag.loaders.tensors.tensor_nodes import as_span, integers, stored_tensor
from rounddiag.loaders.tensors.torch_file import read_torch
from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.loaders.source import Source


@dataclass(frozen=True, kw_only=True)
class TrainingInput:
    """What one step trained on, without the rows that only pad it.

    Attributes
    ----------
    tensors : dict of str to StoredTensor
        Fields of one tensor.
    lists : dict of str to list of StoredTensor
        Fields of one tensor a row: pixel values and grids.
    metadata : dict of str to object
        What SkyRL notes of the batch; its metrics are on the same level.
    source : Source
    """

    tensors: dict[str, StoredTensor]
    lists: dict[str, list[StoredTensor]]
    metadata: dict[str, object]
    source: Source

    @property
    def num_rows(self) -> int:
        """Number of rows, padding included."""
        return self.tensors["sequences"].shape[0]

    @property
    def num_padding(self) -> int:
        """Number of rows at the end that pad the batch."""
        found = self.metadata.get("pad_size", 0)
        if isinstance(found, int) and 0 <= found <= self.num_rows:
            return found
        raise self.misfit(
            key="pad_size",
            expected=f"0 to {self.num_rows}, the rows that pad the batch",
            found=f"{found!r:.40}",
        )

    def read(self, name: str) -> Tensor:
        """Copy a field out of the file, without padding rows."""
        return self.tensors[name].rows(0, self.num_rows - self.num_padding).read()

    def misfit(
        self,
        *,
        key: str,
        expected: str,
        found: str,
        advice: str = "Dump it again: it is damaged, or was changed.",
    ) -> LoadError:
        """Build the LoadError of a field that is not as it must be."""
        return LoadError.build(
            file=self.source.path,
            key=key,
            expected=expected,
            found=found,
            advice=advice,
        )

    def require(self, name: str, advice: str) -> None:
        """Raise a LoadError where a field is missing or None."""
        if name not in self.tensors:
            raise self.misfit(
                key=name,
                expected="a tensor",
                found=f"only {shown(self.tensors)}",
                advice=advice,
            )


def training_input(node: Node, source: Source) -> TrainingInput:
    """Return the parts of a pickled TrainingInputBatch, in either of its layouts."""
    match node:
        case Node(args=(_, {"batch_dict": dict(held), **facts})):
            pass
        case Node(state={"batch_dict": dict(held), **facts}):
            pass
        case _:
            raise source.damaged(found="a TrainingInputBatch without its tensors")
    fields = {str(key): _field(v, source) for key, v in held.items() if v is not None}
    return TrainingInput(
        tensors={k: v for k, v in fields.items() if isinstance(v, StoredTensor)},
        lists={k: v for k, v in fields.items() if isinstance(v, list)},
        metadata=_metadata(facts.get("metadata")),
        source=source,
    )


def _field(value: object, source: Source) -> StoredTensor | list[StoredTensor]:
    match value:
        case {"format": "tensor_list", "items": list(items)}:
            return [_tensor(item, source) for item in items]
    return _tensor(value, source)


def _tensor(value: object, source: Source) -> StoredTensor:
    """Return a tensor: its bytes, or a file of torch where numpy lacks the dtype."""
    match value:
        case {"format": "torch", "data": Span() | bytes() | TextBytes() as data}:
            return stored_tensor(read_torch(as_span(data, source)), source)
        case {
            "data": Span() | bytes() | TextBytes() as data,
            "shape": tuple(shape),
            "dtype": str(dtype),
        } if dtype in DTYPES:
            sizes = integers(shape, source)
            return contiguous(as_span(data, source), DTYPES[dtype], sizes)
    raise source.damaged(found="a tensor in none of SkyRL's formats")


def _metadata(noted: object) -> dict[str, object]:
    metadata = noted if isinstance(noted, dict) else {}
    metrics = metadata.get("metrics")
    everything = {**metadata, **(metrics if isinstance(metrics, dict) else {})}
    return {str(key): scalar_value(value) for key, value in everything.items()}
