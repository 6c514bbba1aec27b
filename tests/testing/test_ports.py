"""Ports for servers under test."""

from kohort.testing.ports import free_port_range, free_ports


def test_who_asks_again_before_listening_gets_others() -> None:
    ports = [port for _ in range(200) for port in free_ports(4)]
    assert len(set(ports)) == len(ports)


def test_virtual_brokers_have_successive_ports() -> None:
    first, second = free_port_range(3), free_port_range(3)
    assert len(first) == len(second) == 3
    assert not set(first) & set(second)
