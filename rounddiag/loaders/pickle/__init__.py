"""Pickles as plain data: no name in the stream is looked up, nothing is called.

================  =====================================================================
`unpickler`       the stack machine: one method per opcode, and the dispatch table
`opcodes`         arguments of opcodes, with lengths checked against the file's size;
                  long lists of numbers, read at once
`placeholders`    `Name` and `Node` in place of globals, calls and objects; the calls
                  that a stream may contain
================  =====================================================================
"""
