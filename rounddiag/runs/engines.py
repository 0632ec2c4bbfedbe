"""One function over many items: in this process, or on the workers of Ray."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


Engine: TypeAlias = Literal["local", "ray"]
Item = TypeVar("Item")
Result = TypeVar("Result")


def check_engine(engine: str) -> None:
    """Raise a RounddiagError for an unknown engine, or where Ray is missing."""
    if engine not in ("local", "ray"):
        raise RounddiagError.build(
            key="engine",
            expected='"local" or "ray"',
            found=repr(engine),
            advice="Leave it out to use this process.",
        )
    if engine == "ray":
        _import_ray()


def map_items(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    engine: Engine,
    num_bytes: Callable[[Item], int],
    label: str,
    num_threads: int = 1,
) -> Iterator[tuple[Item, Result | Exception]]:
    """Yield each item with the function's result, or with the error that it raised.

    A progress bar counts items and bytes.

    Parameters
    ----------
    function : callable
        Ray pickles it, and its results.
    items : sequence
    engine : {"local", "ray"}
    num_bytes : callable
        The size of an item, for the progress bar.
    label : str
        Of the progress bar.
    num_threads : int
        Threads of this process, where it is not Ray that runs the function.
    """
    from tqdm.auto import tqdm

    here = partial(_run_here, num_threads=num_threads)
    run = _run_on_ray if engine == "ray" else here
    done = 0
    with tqdm(total=len(items), desc=label, unit="file", delay=1) as bar:
        for index, result in run(function, items):
            done += num_bytes(items[index])
            bar.set_postfix_str(f"{done / 1e6:.0f} MB", refresh=False)
            bar.update()
            yield items[index], result


def _run_here(
    function: Callable[[Item], Result], items: Sequence[Item], *, num_threads: int
) -> Iterator[tuple[int, Result | Exception]]:
    call = partial(_try, function)
    if num_threads == 1:
        yield from enumerate(map(call, items))
        return
    # Left early, the generator drops the items that no thread has begun.
    with ThreadPoolExecutor(num_threads) as threads:
        yield from enumerate(threads.map(call, items))


def _run_on_ray(
    function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[int, Result | Exception]]:
    """Map the items with Ray Data, which repeats what a lost worker was given."""
    ray = _import_ray()
    if not items:
        return
    cloudpickle = ray.cloudpickle
    if not ray.is_initialized():
        ray.init(log_to_driver=False)

    def call(row: dict[str, Any]) -> dict[str, Any]:
        result = _try(function, cloudpickle.loads(row["item"]))
        return {"index": row["index"], "result": cloudpickle.dumps(result)}

    # A task is sent its own item; in the function, all would travel with each.
    packed = [
        {"index": index, "item": cloudpickle.dumps(item)}
        for index, item in enumerate(items)
    ]
    rows = ray.data.from_items(packed, override_num_blocks=len(items))
    for row in rows.map(call).iter_rows():
        yield row["index"], cloudpickle.loads(row["result"])


def _try(function: Callable[[Item], Result], item: Item) -> Result | Exception:
    try:
        return function(item)
    except Exception as error:  # noqa: BLE001 a bad file must not stop the others
        return error


def _import_ray() -> Any:  # noqa: ANN401 Ray need not be installed
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise RounddiagError.build(
            key="engine",
            expected="Ray, which runs the work on several machines",
            found=str(error),
            advice="Run `pip install 'rounddiag[ray]'`, or leave `engine` out.",
        ) from error
    return ray
