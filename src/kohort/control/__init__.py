"""
The control API of the testing kit: faults, holds, waits and events over HTTP, for tests in any language.

Values and rules are in modules without sockets; `web` and `operations` serve them, and `kit.py` puts them to a node.
"""
