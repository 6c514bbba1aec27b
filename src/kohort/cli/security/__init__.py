"""The commands for who may connect and who may do what: `kohort acls`, `kohort users` and `kohort tokens`."""
