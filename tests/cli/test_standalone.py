"""The archive with a Python in it serves where there is none: in a root directory that has a shell and nothing else."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.conftest import LONG

ROOT = Path(__file__).parents[2]
PROGRAMS = ("sh", "readlink")
SECONDS_MAX = 30
START = "mount --bind /dev {root}/dev && mount -t proc none {root}/proc && exec chroot {root} /bin/sh -c '{command}'"
COMMAND = (
    'for each in python python3; do if command -v "$each"; then exit 9; fi; done; '
    '/kohort/bin/python3 -c "import subprocess, sys; subprocess.run([sys.executable, \\"-V\\"], check=True)" && '
    "exec /kohort/bin/kohort serve --for-tests --json --host 127.0.0.1 --control-port 0"
)
"""The broker starts Python again, to clean logs."""

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not LONG, reason="make test-long: the archive takes half a minute"),
]


def bare_root(directory: Path) -> None:
    """A root directory with the programs that a start script needs, and their libraries."""
    for name in ("bin", "dev", "proc", "tmp", "kohort"):
        (directory / name).mkdir(parents=True)
    for program in PROGRAMS:
        found = shutil.which(program)
        assert found is not None
        shutil.copy(os.path.realpath(found), directory / "bin" / program)
        told = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", told):
            place = directory / library[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)


def test_a_machine_without_python_has_a_broker(tmp_path: Path) -> None:
    probe = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"no file system can be mounted here: {probe.stderr.strip()}")
    subprocess.run([sys.executable, str(ROOT / "tools/standalone.py")], cwd=ROOT, check=True)
    (archive,) = (ROOT / "dist").glob("kohort-*.tar.gz")
    root = tmp_path / "root"
    bare_root(root)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="tar")
    (root / "kohort").rmdir()
    (tmp_path / archive.name.removesuffix(".tar.gz")).rename(root / "kohort")
    script = START.format(root=root, command=COMMAND)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            version, line = process.stdout.readline(), process.stdout.readline()
            assert version.startswith("Python 3."), version + line
            ready = json.loads(line)
            producer = Producer({"bootstrap.servers": ready["bootstrap"], "compression.type": "zstd"})
            producer.produce("t", "x")
            assert producer.flush(SECONDS_MAX) == 0
            consumer = Consumer(
                {"bootstrap.servers": ready["bootstrap"], "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["t"])
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.value() == b"x"
            consumer.close()
        finally:
            process.send_signal(signal.SIGKILL)
