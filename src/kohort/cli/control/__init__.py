"""Commands for tests of clients, over the control port of `kohort serve --control-port`."""
