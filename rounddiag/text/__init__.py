"""Token ids to text, and the role of each token; no batches, no screenshots.

===============  ==================================================================
`tokenizers`     ids to pieces of text, with any tokenizer; special tokens
`chat_template`  headers and ends of turns; which tokens the model wrote
`token_table`    the texts of a batch's tokens, in place of its tokenizer
`role_tagging`   the role of each token: thought, parts of an action, syntax, ...
`json_text`      JSON that others wrote: bounds and a shape
===============  ==================================================================
"""

from rounddiag.text.role_tagging import ROLES, roles, tag_actions
from rounddiag.text.tokenizers import pieces, special_tokens, visible

__all__ = ["ROLES", "pieces", "roles", "special_tokens", "tag_actions", "visible"]
