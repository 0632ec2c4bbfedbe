"""Scores of another engine: write tokens for it, and read its log-probs back.

=================  ================================================================
`rescore_request`  `export_rescore`: exact token ids and screenshots
`attach_scores`    `attach`: adds the scores, after checking every token id
`score_files`      the scores of a file or table, one entry per token
=================  ================================================================
"""

from rounddiag.loaders.rescoring.attach_scores import attach
from rounddiag.loaders.rescoring.rescore_request import export_rescore

__all__ = ["attach", "export_rescore"]
