"""
The word count of Kafka Streams, assembled from Python in a virtual machine of Java.

The functions of the topology are method handles of Java's own methods, so records do not cross into Python.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.clients.jvm import Jvm

CLOSE_S = 60


class WordCount:
    """
    Reads lines from a topic, and writes each word's count so far to another one, with `exactly_once_v2`.

    As a context manager it is closed at the end.
    """

    def __init__(self, jvm: Jvm, bootstrap: str, source: str, sink: str, state: Path) -> None:
        """
        Args:
            state: directory of the state stores; also of the process id, from which the transactional id is made.
        """
        self._jvm = jvm
        self._handles = jvm.classes.java.lang.invoke.MethodHandles
        self._object = jvm.classes.java.lang.Class.forName("java.lang.Object")
        string = "org.apache.kafka.common.serialization.Serdes$StringSerde"
        properties = jvm.properties(
            bootstrap_servers=bootstrap,
            application_id="word-count",
            state_dir=str(state),
            processing_guarantee="exactly_once_v2",
            auto_offset_reset="earliest",
            default_key_serde=string,
            default_value_serde=string,
            replication_factor="1",
            commit_interval_ms="50",
            statestore_cache_max_bytes="0",
            # A killed application is missed soon.
            session_timeout_ms="6000",
            heartbeat_interval_ms="500",
        )
        streams: Any = jvm.classes.org.apache.kafka.streams
        self._streams = streams.KafkaStreams(self._topology(streams, source, sink), properties)
        self._streams.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._streams.close(self._jvm.classes.java.time.Duration.ofSeconds(CLOSE_S))

    @property
    def state(self) -> str:
        """RUNNING, REBALANCING, ERROR or another state of `KafkaStreams.State`."""
        return str(self._streams.state())

    def _topology(self, streams: Any, source: str, sink: str) -> Any:
        serdes = self._jvm.classes.org.apache.kafka.common.serialization.Serdes
        builder = streams.StreamsBuilder()
        words = builder.stream(source).flatMapValues(self._function("ValueMapper", self._words()))
        by_word = words.groupBy(self._function("KeyValueMapper", self._second()))
        produced = getattr(streams.kstream.Produced, "with")(serdes.String(), serdes.Long())
        by_word.count().toStream().to(sink, produced)
        return builder.build()

    def _words(self) -> Any:
        """A function from a line to the list of its words: `List.of(line.split(" "))`."""
        kind = self._jvm.classes.java.lang.invoke.MethodType
        text = self._class("java.lang.String")
        lookup = self._handles.publicLookup()
        split = lookup.findVirtual(text, "split", kind.methodType(self._class("[Ljava.lang.String;"), text))
        on_spaces = self._handles.insertArguments(split, 1, self._array(" "))
        objects = self._class("[Ljava.lang.Object;")
        listed = lookup.findStatic(
            self._class("java.util.Arrays"), "asList", kind.methodType(self._class("java.util.List"), objects)
        )
        as_list = listed.asFixedArity().asType(
            kind.methodType(self._class("java.util.List"), self._class("[Ljava.lang.String;"))
        )
        return self._handles.filterReturnValue(on_spaces, as_list)

    def _second(self) -> Any:
        """A function from key and value to the value."""
        return self._handles.dropArguments(self._handles.identity(self._object), 0, [self._object])

    def _function(self, interface: str, handle: Any) -> Any:
        proxies = self._jvm.classes.java.lang.invoke.MethodHandleProxies
        return proxies.asInterfaceInstance(self._class(f"org.apache.kafka.streams.kstream.{interface}"), handle)

    def _class(self, name: str) -> Any:
        return self._jvm.classes.java.lang.Class.forName(name)

    def _array(self, *values: str) -> Any:
        array = self._jvm.classes.java.lang.reflect.Array.newInstance(self._object, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array
