"""
The broker's side of SASL: one state machine of a connection, and a module for each mechanism.

Source: KIP-43, KIP-152, KIP-255, KIP-368; Kafka SaslServerAuthenticator.
"""
