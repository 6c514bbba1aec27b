"""What a test can do with a broker, wherever the broker runs."""

from abc import ABC, abstractmethod


class Kit(ABC):
    """A broker, or a part of one for a single test."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """HOST:PORT for clients; with several brokers the addresses of all of them, separated by commas."""

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """The id of the cluster."""
