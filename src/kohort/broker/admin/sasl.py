"""
SaslHandshake (17), versions 0 and 1, and SaslAuthenticate (36), versions 0 to 2: refused, because no listener uses SASL.

Source: KIP-43, KIP-152; Kafka KafkaApis.handleSaslHandshakeRequest, handleSaslAuthenticateRequest.
"""

from typing import Final

from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

_AUTHENTICATED: Final = "SaslAuthenticate request received after successful authentication"


def sasl_handshake(
    _request: m.SaslHandshakeRequest, _context: Context, _reply: Reply[m.SaslHandshakeResponse]
) -> m.SaslHandshakeResponse:
    return m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(
    _request: m.SaslAuthenticateRequest, _context: Context, _reply: Reply[m.SaslAuthenticateResponse]
) -> m.SaslAuthenticateResponse:
    return m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_AUTHENTICATED)
