"""
ACLs in the catalog, their APIs, and the authorizer that decides by them.

Source: Kafka StandardAuthorizer, AclControlManager, AclApis; KIP-11, KIP-140, KIP-290, KIP-801.
"""
