"""Token ids to pieces of text; knows tokenizers, no batches and no pictures."""

from rounddiag.text.joining import pieces
from rounddiag.text.signs import visible
from rounddiag.text.tokenizers import special_tokens

__all__ = ["pieces", "special_tokens", "visible"]
