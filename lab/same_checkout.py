"""The dependency of the distribution: Kohort of the same checkout, so that `pip install ./lab` installs both."""

from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class SameCheckout(MetadataHookInterface):
    """Name the parent directory as the source of the dependency `kohort`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the dependencies."""
        metadata["dependencies"] = [f"kohort @ {Path(self.root).parent.as_uri()}"]
