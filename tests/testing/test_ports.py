"""Ports for servers under test."""

from kohort.testing.ports import free_ports


def test_who_asks_again_before_listening_gets_others() -> None:
    ports = [port for _ in range(200) for port in free_ports(4)]
    assert len(set(ports)) == len(ports)
