"""Token ids to pieces of text; knows tokenizers, no batches and no pictures."""

from rounddiag.text.action_spans import tag_actions
from rounddiag.text.roles import ROLES, roles
from rounddiag.text.tokenizers import pieces, special_tokens, visible

__all__ = ["ROLES", "pieces", "roles", "special_tokens", "tag_actions", "visible"]
