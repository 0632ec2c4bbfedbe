"""Reports: one HTML page that needs neither a kernel nor a network.

===============  ===================================================================
`page`           `report`: writing the page of a batch or a run
`explorer_page`  the HTML of a batch's page: the explorer with its replies in it
`replies`        what that page requests, answered beforehand
`run_sections`   the sections of the page of a run
`html`           their document, figures as HTML, and the security policy of both
===============  ===================================================================

`page.js` draws the figures of a run in the browser, `page.css` is its style. The
explorer's script is in `rounddiag.widgets`; there `stored.js` reads the replies.
"""

from rounddiag.export.page import report

__all__ = ["report"]
