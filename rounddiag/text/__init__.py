"""Token ids to text, and what each token is for; knows no batches and no pictures.

===============  ==================================================================
`tokenizers`     ids to pieces of text, with any tokenizer; special tokens
`chat_template`  headers and ends of turns; the turns of the model by them
`token_table`    the texts of a batch's tokens, in place of its tokenizer
`action_spans`   the thought and the parts of the actions in a round's text
`role_tagging`   the role of each token: thought, action, coordinates, ...
===============  ==================================================================
"""

from rounddiag.text.action_spans import tag_actions
from rounddiag.text.role_tagging import ROLES, roles
from rounddiag.text.tokenizers import pieces, special_tokens, visible

__all__ = ["ROLES", "pieces", "roles", "special_tokens", "tag_actions", "visible"]
