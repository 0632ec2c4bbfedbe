"""JSON text with one record a line, as samples."""
