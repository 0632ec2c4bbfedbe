"""`Run.query`: DuckDB over the step files, read-only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from threading import Timer
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from rounddiag.errors import LoadError, RounddiagError, import_extra
from rounddiag.runs.folder import RunFolder, StepFiles
from rounddiag.wording import pluralize

# A row per sample; `first_sample` counts on over the files of a step's ranks.
_ROWS = """
CREATE VIEW rows AS
SELECT step, first_sample + file_row_number AS sample, source.*
FROM read_parquet({files}, filename=true, file_row_number=true, union_by_name=true)
    AS source
JOIN files USING (filename)
"""
_SAMPLES = """
CREATE VIEW samples AS
SELECT step, sample, {ids} len(response_mask) AS num_positions,
    list_sum(response_mask::INTEGER[])::BIGINT AS num_tokens
FROM rows
"""
_TOKENS = """
CREATE VIEW tokens AS
WITH positions AS (
    SELECT step, sample, unnest(range(len(response_mask))) AS position,
        unnest(response_mask)::BOOLEAN AS is_written,
        unnest(rollout_log_probs) AS rollout_log_prob,
        unnest(old_log_probs) AS old_log_prob, {ids} AS part
    FROM rows
),
numbered AS (
    SELECT *, position - row_number() OVER in_order AS run
    FROM positions WHERE is_written
    WINDOW in_order AS (PARTITION BY step, sample, part ORDER BY position)
),
starts AS (
    SELECT *, min(position) OVER (PARTITION BY step, sample, part, run) AS start
    FROM numbered
)
SELECT step, sample,
    dense_rank() OVER (PARTITION BY step, sample ORDER BY start) - 1 AS round,
    position - start AS token, position, rollout_log_prob, old_log_prob,
    old_log_prob - rollout_log_prob AS diff
FROM starts
"""
_ROUNDS = """
CREATE VIEW rounds AS
SELECT step, sample, round, min(position) AS start, count(*) AS num_tokens,
    avg(abs(diff)) FILTER (isfinite(diff)) AS mean_abs_diff,
    avg(diff) FILTER (isfinite(diff)) AS mean_diff,
    max(abs(diff)) FILTER (isfinite(diff)) AS max_abs_diff
FROM tokens GROUP BY step, sample, round
"""
_NAMES = ("sample_id", "group_id", "reward")
# Whether DuckDB would skip rows by the statistics in a footer, such as the largest
# value of a column. We write none; a program that changes a file can leave false ones.
_HAS_STATISTICS = """
SELECT count(*) > 0 FROM parquet_metadata({files})
WHERE coalesce(stats_min_value, stats_min, stats_max_value, stats_max) IS NOT NULL
    OR stats_null_count IS NOT NULL OR bloom_filter_offset IS NOT NULL
"""
# Optimizers of DuckDB that read no statistics, and are needed to skip columns.
_WITHOUT_STATISTICS = ("unused_columns", "column_lifetime", "unnest_rewriter")


def run_query(
    sql: str,
    folder: RunFolder,
    steps: Sequence[StepFiles],
    step_table: pd.DataFrame,
    time_limit: float,
) -> pd.DataFrame:
    """Return the result of one SELECT statement; see `Run.query`."""
    duckdb = import_extra("duckdb", "query", "which runs the query")
    paths = [str(folder.fetch(file)) for step in steps for file in step.files]
    with duckdb.connect(":memory:") as connection:
        _check_statement(duckdb, sql)
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("files", _files(folder, steps))
        connection.register("steps", step_table)
        columns = {*pq.read_schema(paths[0]).names}
        known = "".join(f"{name}, " for name in _NAMES if name in columns)
        part = "unnest(round_ids)" if "round_ids" in columns else "0"
        patterns = [_without_glob(path) for path in paths]
        try:
            connection.execute(_ROWS.format(files=_literal(patterns)))
            connection.execute(_SAMPLES.format(ids=known))
            connection.execute(_TOKENS.format(ids=part))
            connection.execute(_ROUNDS)
            _believe_no_statistics(connection, _literal(patterns))
        except duckdb.Error as error:
            folder.check(steps)
            raise LoadError.build(
                file=folder.address,
                expected="files that DuckDB can read",
                found=str(error).strip().splitlines()[0],
                advice="Write them again with `rounddiag.save`.",
            ) from error
        # From here on a statement can read these files and nothing else.
        connection.execute(f"SET allowed_paths = {_literal([*paths, *patterns])}")
        connection.execute("SET enable_external_access = false")
        deadline = Timer(time_limit, connection.interrupt)
        deadline.start()
        try:
            frame: pd.DataFrame = connection.execute(sql).df()
        except duckdb.InterruptException as error:
            raise RounddiagError.build(
                key="sql",
                expected=f"a query that ends within {time_limit:g} s",
                found="one that was still running",
                advice="Name fewer steps in WHERE, or pass a larger `time_limit`.",
            ) from error
        except duckdb.Error as error:
            folder.check(steps)
            raise RounddiagError.build(
                key="sql",
                expected="a query of the views tokens, rounds, samples and steps",
                found=str(error).strip().splitlines()[0],
                advice="`DESCRIBE tokens` lists the columns of a view.",
            ) from error
        finally:
            deadline.cancel()
    folder.check(steps)  # it may have read what the table `steps` is not of
    return frame


def _believe_no_statistics(connection: Any, files: str) -> None:  # noqa: ANN401 as below
    """Let DuckDB decode all rows of files whose footers say what is in them."""
    if connection.execute(_HAS_STATISTICS.format(files=files)).fetchone() == (True,):
        names = connection.execute("FROM duckdb_optimizers()").fetchall()
        disabled = {name for name, *_ in names} - {*_WITHOUT_STATISTICS}
        connection.execute(f"SET disabled_optimizers = '{','.join(disabled)}'")


def _without_glob(path: str) -> str:
    """Return a pattern of DuckDB that matches this path alone.

    Examples
    --------
    >>> _without_glob("run[1]/step_1.parquet")
    'run[[]1]/step_1.parquet'
    """
    return re.sub(r"([\[*?])", r"[\1]", path)


def _literal(texts: Sequence[str]) -> str:
    """Return a list of strings as DuckDB writes it.

    Examples
    --------
    >>> _literal(["it's", "run"])
    "['it''s', 'run']"
    """
    quoted = ("'" + text.replace("'", "''") + "'" for text in texts)
    return f"[{', '.join(quoted)}]"


def _files(folder: RunFolder, steps: Sequence[StepFiles]) -> pd.DataFrame:
    """Return the step of each file, and the number of its first sample."""
    rows = []
    for step in steps:
        first = 0
        for file in step.files:
            path = str(folder.fetch(file))
            rows.append((path, step.step, first))
            first += pq.read_metadata(path).num_rows if len(step.files) > 1 else 0
    return pd.DataFrame(rows, columns=["filename", "step", "first_sample"])


def _check_statement(duckdb: Any, sql: object) -> None:  # noqa: ANN401 DuckDB need not be installed
    """Refuse all but one statement that only reads."""
    if not isinstance(sql, str):
        raise _statement_error(repr(sql)[:80])
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        fault = str(error).strip().splitlines()[0]
        statements = []
    else:
        kinds = [str(statement.type).rpartition(".")[2] for statement in statements]
        if kinds in (["SELECT"], ["EXPLAIN"], ["SELECT_STATEMENT"]):
            return
        fault = f"{pluralize(len(kinds), 'statement')} of kind {', '.join(kinds)}"
    raise _statement_error(fault)


def _statement_error(content: str) -> RounddiagError:
    return RounddiagError.build(
        key="sql",
        expected="one SELECT statement",
        found=content,
        advice="Nothing can be changed here; select, and save the frame elsewhere.",
    )
