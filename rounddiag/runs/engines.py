"""One function over many items: in this process, or on the workers of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

from rounddiag.errors import import_extra, require_one_of

RunEngine: TypeAlias = Literal["local", "ray"]
Item = TypeVar("Item")
Result = TypeVar("Result")

_MAX_TASKS = 256  # submitted at once; waiting for one of them looks at all


def check_engine(engine: str) -> None:
    """Raise a RounddiagError for an unknown engine, or where Ray is missing."""
    advice = "Leave it out to use this process."
    require_one_of(engine, ("local", "ray"), key="engine", advice=advice)
    if engine == "ray":
        import_extra("ray", "ray", "which runs the work on several machines")


def map_items(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    engine: RunEngine,
    num_bytes: Callable[[Item], int],
    label: str,
    num_threads: int = 1,
) -> Iterator[tuple[Item, Result | Exception]]:
    """Yield each item with the function's result, or with the error that it raised.

    A progress bar counts items and bytes.
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
    from threadpoolctl import threadpool_limits

    # The idle threads of BLAS spin after each product, and take the cores from ours.
    # Left early, the generator drops the items that no thread has begun.
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(num_threads) as threads:
        yield from enumerate(threads.map(call, items))


def _run_on_ray(
    function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[int, Result | Exception]]:
    """Run a task for each item. Ray repeats those that a lost worker had.

    Not by Ray Data: its executor starts tasks of a fraction of a second too slowly. Two
    workers were 1.2 times as fast as one by it, and are twice as fast by tasks.
    """
    ray = import_extra("ray", "ray", "which runs the work on several machines")
    if not items:
        return
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    call, shared = ray.remote(_try), ray.put(function)
    rest = iter(enumerate(items))
    pending: dict[Any, int] = {}
    try:
        while True:
            for index, item in islice(rest, _MAX_TASKS - len(pending)):
                pending[call.remote(shared, item)] = index
            if not pending:
                return
            for task in ray.wait([*pending])[0]:
                try:
                    result = ray.get(task)
                except ray.exceptions.RayError as error:  # a worker that always dies
                    result = error
                yield pending.pop(task), result
    finally:  # left early, too
        for task in pending:
            ray.cancel(task)


def _try(function: Callable[[Item], Result], item: Item) -> Result | Exception:
    try:
        return function(item)
    except Exception as error:  # noqa: BLE001 a bad file must not stop the others
        return error
