"""The decoder out of a zip file, in a Python that lacks Kohort and its requirements: `spark-submit --py-files kohort.zip`."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import list_segments
from kohort_lab.history import History
from tests.conftest import watches_calls
from tests.pipeline.logbytes import batch, offset_key, offset_value
from tests.pipeline.platforms import bare_python
from tests.pipeline.zipped import write_zip

CODE = """
import sys
from importlib.util import find_spec
lacking = ("kohort", "msgspec", "crc32c", "cramjam", "kio", "aiokafka", "typer", "uvloop", "duckdb")
there = [name for name in lacking if find_spec(name)]
sys.path.insert(0, sys.argv[1])
import json, kohort
import kohort.pipeline.sources.coordinator_log
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import list_segments
rows = [row for segment in list_segments(sys.argv[2]) for rows in Decoder().decode_file(segment) for row in rows.to_pylist()]
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
try:
    refused = tasks_of(SourceOptions.parse({"path": "postgresql://nowhere/logs"}))
except Exception as exc:
    refused = f"{type(exc).__name__}: {exc}"
print(json.dumps({"there": there, "kohort": kohort.__file__, "rows": rows, "refused": refused}, default=str))
"""


def decoded(logs: Path) -> list[dict[str, Any]]:
    """What this Python decodes, with native code."""
    found = (rows for segment in list_segments(logs) for rows in Decoder().decode_file(segment))
    rows: list[dict[str, Any]] = json.loads(
        json.dumps([row for part in found for row in part.to_pylist()], default=str)
    )
    return rows


@watches_calls
def test_logs_are_decoded_out_of_a_zip_file_by_a_python_of_a_platform(tmp_path: Path) -> None:
    """Records of transactions and members need the schemas, which are data files; batches have all codecs, and damage."""
    logs = tmp_path / "logs"
    History(3).write(logs)
    packed = logs / "__consumer_offsets-9"
    packed.mkdir()
    records = [(offset_key("g", "orders", 0), offset_value(at)) for at in range(90)]
    log = b"".join(batch(90 * codec, records, codec=codec) for codec in range(5))
    (packed / f"{0:020}.log").write_bytes(log[:60] + b"?" + log[61:])
    archive, platform = write_zip(tmp_path / "kohort.zip"), bare_python(tmp_path / "bare")
    done = subprocess.run(
        [platform.python, "-I", "-c", CODE, str(archive), str(logs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["there"] == []
    assert told["kohort"] == f"{archive}/kohort/__init__.py"
    assert re.fullmatch(r"ConfigError: .* pip install 'kohort\[postgres\]'", told["refused"])
    expected = decoded(logs)
    kinds = [row["kind"] for row in expected]
    assert {"coordinator", "offset_commit", "transaction", "damage"} <= set(kinds)
    assert kinds.count("offset_commit") > 4 * 90
    assert told["rows"] == expected
