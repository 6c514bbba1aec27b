"""The decoder out of a zip file: `spark-submit --py-files kohort.zip`."""

import json
import subprocess
import sys
from pathlib import Path

from kohort_lab.history import History
from tests.conftest import watches_calls
from tests.pipeline.zipped import write_zip

# In an isolated interpreter, whose other paths come after the zip file.
CODE = """
import sys
sys.path.insert(0, sys.argv[1])
import json, kohort
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import list_segments
rows = [row for segment in list_segments(sys.argv[2]) for rows in Decoder().decode_file(segment) for row in rows.to_pylist()]
print(json.dumps({"kohort": kohort.__file__, "kinds": sorted({row["kind"] for row in rows})}))
"""


@watches_calls
def test_logs_are_decoded_out_of_a_zip_file(tmp_path: Path) -> None:
    """Records of transactions and members need the schemas, which are data files of the packages."""
    History(3).write(tmp_path / "logs")
    archive = write_zip(tmp_path / "kohort.zip")
    done = subprocess.run(
        [sys.executable, "-I", "-c", CODE, str(archive), str(tmp_path / "logs")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["kohort"] == f"{archive}/kohort/__init__.py"
    assert {"coordinator", "offset_commit", "transaction"} <= set(told["kinds"])
