"""
Access rules: values, an index of them, decisions, filters, and the text of the audit log.

Source: Kafka StandardAcl, StandardAuthorizerData, AclAuthorizer; KIP-11, KIP-290, KIP-679, KIP-1276.
"""
