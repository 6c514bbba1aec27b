"""
Who may connect, and who may do what: pure rules without sockets, clocks or disks.

The server asks them for every connection, the broker for every request. Source: Kafka StandardAuthorizer,
SaslServerAuthenticator; KIP-43, KIP-84, KIP-255, KIP-290, KIP-368.
"""
