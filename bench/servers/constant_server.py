"""
A server that answers every frame with the same bytes and the frame's correlation id.

It shows the limit of the load generator on this machine (`python -m bench --ceiling`). A measure near that limit says more
about the generator than about the server.

Run as a process: `python -m bench.servers.constant_server BYTES_OF_BODY_IN_HEX`. Prints its port when it is ready.
"""

import select
import socket
import sys


def serve(body: bytes) -> None:
    """Answer until killed. Each frame must arrive whole, as the load generator sends it."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(f"constant ready port={listener.getsockname()[1]}", flush=True)
    epoll = select.epoll()
    epoll.register(listener.fileno(), select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    size = (4 + len(body)).to_bytes(4, "big")
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                opened, _ = listener.accept()
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[opened.fileno()] = opened
                epoll.register(opened.fileno(), select.EPOLLIN)
                continue
            connection = connections[descriptor]
            data = connection.recv(65_536)
            if data:
                # Size, API key and version come before the correlation id.
                connection.send(size + data[8:12] + body)
            else:
                epoll.unregister(descriptor)
                connections.pop(descriptor).close()


if __name__ == "__main__":
    serve(bytes.fromhex(sys.argv[1]))
