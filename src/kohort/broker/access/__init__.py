"""
Who may call which API: one row an API in `table.py`, and the wrapper of the handlers that asks the authorizer.

Without an authorizer no handler is wrapped. Source: Kafka AuthHelper, and the checks of KafkaApis and ControllerApis.
"""
