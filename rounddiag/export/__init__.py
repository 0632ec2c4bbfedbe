"""Reports: one HTML page that needs neither a kernel nor a network.

============  ======================================================================
`page`        `report`: the sections of the page, and writing it
`html`        the HTML document and its security policy; figures as HTML
============  ======================================================================

`page.js` draws the figures in the browser, `page.css` is the style.
"""

from rounddiag.export.page import report

__all__ = ["report"]
