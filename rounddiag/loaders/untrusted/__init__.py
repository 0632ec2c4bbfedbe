"""`load(..., untrusted=True)`: read a file in a child process with limits.

The child reads the file, checks the batch, decodes every screenshot and the text of
every token, and writes the batch as our own Parquet file, which is all that the parent
reads. If a library crashes, only the child ends, and the parent raises a LoadError.

==========  ======================================================================
`guard`     `load_untrusted`: request, child and answer, from the parent's side
`limits`    memory, time, file sizes and signals of the child
`folder`    the temporary folder that both share, and what dead processes left there
`process`   the child process: start it, wait, end it
`child`     what runs in the child
`answer`    the files that the child writes, how large they may be, reading them
`weight`    how much memory a batch takes
==========  ======================================================================
"""

from rounddiag.loaders.untrusted.guard import load_untrusted
from rounddiag.loaders.untrusted.limits import Limits

__all__ = ["Limits", "load_untrusted"]
