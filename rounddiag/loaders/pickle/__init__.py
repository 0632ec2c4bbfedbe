"""Pickles as plain data: no name of the stream is looked up and nothing is called.

================  =====================================================================
`unpickler`       the stack machine: one method per opcode, and the dispatch table
`opcodes`         arguments of opcodes, with lengths checked against the file's size;
                  long lists of numbers, read at once
`placeholders`    what stands for a global, a call or an object; the calls that may
                  stand in a stream
================  =====================================================================
"""
