"""Token ids to pieces of text; knows tokenizers, no batches and no pictures."""

from rounddiag.text.actions import tag_actions
from rounddiag.text.joining import pieces
from rounddiag.text.signs import visible
from rounddiag.text.tagging import ROLES, roles
from rounddiag.text.tokenizers import special_tokens

__all__ = ["ROLES", "pieces", "roles", "special_tokens", "tag_actions", "visible"]
