"""Token ids to text, and what each token is for; knows no batches and no pictures.

==============  ==================================================================
`tokenizers`    ids to pieces of text, with any tokenizer; special tokens
`action_spans`  the thought and the parts of the actions in a round's text
`roles`         the role of each token: thought, action, coordinates, ...
==============  ==================================================================
"""

from rounddiag.text.action_spans import tag_actions
from rounddiag.text.roles import ROLES, roles
from rounddiag.text.tokenizers import pieces, special_tokens, visible

__all__ = ["ROLES", "pieces", "roles", "special_tokens", "tag_actions", "visible"]
