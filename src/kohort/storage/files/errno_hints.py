"""Advice for the operator after an I/O error."""

import errno

_HINTS = {
    errno.ENOSPC: "make room on that file system",
    errno.EDQUOT: "make room on that file system, or raise the quota",
    errno.EFBIG: "raise the largest size of a file (ulimit -f)",
    errno.EROFS: "make that file system writable; a failing disk turns read-only by itself",
    errno.EACCES: "give the process the right to write there",
    errno.EPERM: "give the process the right to write there",
    errno.ENOENT: "files were removed: only Kohort may change that directory",
    errno.EISDIR: "move that directory away",
    errno.ENOTDIR: "move away what is there instead of a directory",
    errno.EMFILE: "raise the number of files that the process may open (ulimit -n)",
    errno.ENFILE: "raise the number of files that the system may open",
    errno.EIO: "look after the disk, whose errors are in the system's log",
}

_PASSING = (errno.EIO, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.ESTALE, errno.ENOMEM)


def is_out_of_files(error: OSError) -> bool:
    """Whether the process or the system has no file descriptor left: an error that goes away."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def may_pass(error: OSError) -> bool:
    """Whether a read that failed so changes nothing, and may succeed the next time."""
    return error.errno in _PASSING


def errno_hint(error: Exception) -> str:
    """The end of a sentence for the operator: the remedy, and a restart."""
    if not isinstance(error, OSError):
        return "look at what the log says of it, at memory and at the number of threads, and start again"
    return _HINTS.get(error.errno or 0, "look after the disk") + ", and start again"
