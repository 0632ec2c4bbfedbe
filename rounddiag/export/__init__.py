"""Reports: one HTML page that needs neither a kernel nor a network.

============  ======================================================================
`page`        `report`: the sections of the page, and writing it
`run_sections`  the sections of the page of a run
`html`        the HTML document and its security policy; figures as HTML
============  ======================================================================

`page.js` draws the figures in the browser, `page.css` is the style.
"""

from rounddiag.export.page import report

__all__ = ["report"]
