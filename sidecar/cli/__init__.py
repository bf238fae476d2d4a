"""The command `tokenwitness`: one module per command, all clients of the sidecar's services.

A command asks `client` (which alone speaks protobuf), gets plain documents, and prints them
with `output`: for people, or with `--json` for programs. `exit_codes` has the one table of
what a command's end means.
"""
