"""What a command prints of some rows, made row by row with the functions of the cells."""

import json
from typing import Any

from kohort.cli.pipeline.columns import columns_of
from kohort.model.text import printable


def printed(rows: list[dict[str, Any]], name: str, *, as_json: bool = False) -> str:
    if as_json:
        return json.dumps(rows, default=bytes.hex) + "\n"
    if not rows:
        return f"no {name.replace('_', ' ')}\n"
    columns = columns_of(name)
    cells = [[title for title, _, _ in columns], *([printable(cell(row)) for _, _, cell in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pads = [str.rjust if align == "right" else str.ljust for _, align, _ in columns]
    lines = [[pad(text, width) for pad, text, width in zip(pads, line, widths, strict=True)] for line in cells]
    return "".join("  ".join(line).rstrip() + "\n" for line in lines)
