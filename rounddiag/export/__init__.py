"""Reports: one HTML page that needs neither a kernel nor a network.

==========  ========================================================================
`page`      `report`: the page of a batch, which is the explorer, or of a run
`replies`   what the page of a batch requests, answered beforehand
`html`      the document of both, sections and figures of the page of a run
==========  ========================================================================

`page.js` draws the figures of a run in the browser, `page.css` is its style. The
explorer's script is in `rounddiag.widgets`; there `report.js` reads the replies.
"""

from rounddiag.export.page import report

__all__ = ["report"]
