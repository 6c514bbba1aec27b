"""Log formats: one line for each event on stderr, as key=value text or JSON."""

import json
import logging
import sys
import time


class KeyValueFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO kohort.storage log.recovered partition=a-0 bytes=12`."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.default_msec_format = "%s.%03dZ"
        self.default_time_format = "%Y-%m-%dT%H:%M:%S"
        self.datefmt = None


class JsonFormatter(logging.Formatter):
    """One JSON object for each line: time, level, logger, event, and the fields of the event by name."""

    def format(self, record: logging.LogRecord) -> str:
        event, *pairs = record.getMessage().split(" ")
        fields: dict[str, object] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "event": event,
        }
        last = None
        for pair in pairs:
            name, separator, value = pair.partition("=")
            if separator and name.isidentifier():
                fields[name] = value
                last = name
            elif last is not None:
                # A value with spaces ends at the next name.
                fields[last] = f"{fields[last]} {pair}"
            else:
                fields["event"] = f"{fields['event']} {pair}"
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure_logs(level: str, form: str) -> None:
    """Log to stderr. `form` is "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else KeyValueFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # asyncio's own messages concern the implementation, not the operator.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
