"""What a handler is told of a request beside its body."""

import msgspec


class RequestContext(msgspec.Struct, frozen=True):
    """
    Attributes:
        api_version: the version the client speaks; a few rules depend on it.
        client_id: from the request header; "" when there was none.
        client_host: in Java's form, "/127.0.0.1".
    """

    api_version: int
    client_id: str = ""
    client_host: str = ""
