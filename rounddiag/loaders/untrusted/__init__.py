"""`load(..., untrusted=True)`: read a file in a child process with limits.

The child loads the file, decodes every screenshot and the text of every token, and
saves the batch as our own Parquet file, which is all that the parent reads. If a
library crashes, only the child ends, and the parent raises a LoadError.

==========  ======================================================================
`guard`     the parent: start the child, wait for it, end it, read its answer
`child`     the child: its limits, what it loads and saves, and how large it may be
==========  ======================================================================
"""

from rounddiag.loaders.untrusted.child import Limits
from rounddiag.loaders.untrusted.guard import load_untrusted

__all__ = ["Limits", "load_untrusted"]
