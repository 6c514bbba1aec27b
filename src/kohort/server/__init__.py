"""The shell: listener, connections, dispatch, and the one module that knows every class (`node`)."""
