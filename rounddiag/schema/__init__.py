"""Columns, tables and metrics: the only place that describes them.

- `columns`: `ColumnSchema`, the columns that several tables or figures share, and
  `Pair`, the two scores that are compared, whose names labels contain.
- `corrections`: `CORRECTIONS`, what trainers do with the importance ratio.
- `metrics`: `METRICS`, the one list of metrics, and their names.
- `tables`: `TableSchema`, and one table for each kind of frame.
"""

from __future__ import annotations

from rounddiag.schema.columns import ABS_DIFF as ABS_DIFF
from rounddiag.schema.columns import CONTEXT_COLUMNS as CONTEXT_COLUMNS
from rounddiag.schema.columns import COST as COST
from rounddiag.schema.columns import DIFF as DIFF
from rounddiag.schema.columns import ERROR as ERROR
from rounddiag.schema.columns import IS_REWRITTEN as IS_REWRITTEN
from rounddiag.schema.columns import LENGTH_UNIT as LENGTH_UNIT
from rounddiag.schema.columns import NUM_GENERATED as NUM_GENERATED
from rounddiag.schema.columns import NUM_NONFINITE as NUM_NONFINITE
from rounddiag.schema.columns import NUM_TOKENS as NUM_TOKENS
from rounddiag.schema.columns import OLD_PROB as OLD_PROB
from rounddiag.schema.columns import OPENED_WITH as OPENED_WITH
from rounddiag.schema.columns import ORIGINAL_SAMPLE as ORIGINAL_SAMPLE
from rounddiag.schema.columns import OUTCOME as OUTCOME
from rounddiag.schema.columns import PLACES as PLACES
from rounddiag.schema.columns import POSITION as POSITION
from rounddiag.schema.columns import ROLLOUT_PROB as ROLLOUT_PROB
from rounddiag.schema.columns import ROUND as ROUND
from rounddiag.schema.columns import SAMPLE as SAMPLE
from rounddiag.schema.columns import SECONDS as SECONDS
from rounddiag.schema.columns import SHARE as SHARE
from rounddiag.schema.columns import STATUS as STATUS
from rounddiag.schema.columns import STEP as STEP
from rounddiag.schema.columns import ColumnSchema as ColumnSchema
from rounddiag.schema.columns import Pair as Pair
from rounddiag.schema.corrections import CORRECTIONS as CORRECTIONS
from rounddiag.schema.corrections import Correction as Correction
from rounddiag.schema.corrections import Edges as Edges
from rounddiag.schema.corrections import Mask as Mask
from rounddiag.schema.corrections import RatioName as RatioName
from rounddiag.schema.corrections import Weight as Weight
from rounddiag.schema.corrections import find_correction as find_correction
from rounddiag.schema.corrections import weight_column as weight_column
from rounddiag.schema.metrics import MEAN_COLUMNS as MEAN_COLUMNS
from rounddiag.schema.metrics import METRICS as METRICS
from rounddiag.schema.metrics import Metric as Metric
from rounddiag.schema.metrics import mean_column as mean_column
from rounddiag.schema.metrics import metric_name as metric_name
from rounddiag.schema.tables import ALTERNATIVES as ALTERNATIVES
from rounddiag.schema.tables import CELLS as CELLS
from rounddiag.schema.tables import CHANGES as CHANGES
from rounddiag.schema.tables import CORRECTION_ROWS as CORRECTION_ROWS
from rounddiag.schema.tables import GROUP_ROWS as GROUP_ROWS
from rounddiag.schema.tables import LEGS as LEGS
from rounddiag.schema.tables import LISTED as LISTED
from rounddiag.schema.tables import PLACE_MEANS as PLACE_MEANS
from rounddiag.schema.tables import ROUNDS as ROUNDS
from rounddiag.schema.tables import RUN as RUN
from rounddiag.schema.tables import SAMPLES as SAMPLES
from rounddiag.schema.tables import SIGHT as SIGHT
from rounddiag.schema.tables import STEPS as STEPS
from rounddiag.schema.tables import SUMMARY as SUMMARY
from rounddiag.schema.tables import TILES as TILES
from rounddiag.schema.tables import TOKENS as TOKENS
from rounddiag.schema.tables import TableSchema as TableSchema
