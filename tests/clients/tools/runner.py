"""
Main classes of Java tools, run one after the other in one virtual machine.

A start of Java for each call would take most of the time. The streams of the virtual machine are replaced by buffers. Kafka's
`Exit` raises an error instead of ending the process, and its shutdown hooks run when the tool ends.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError

from tests.clients.jvm import Jvm
from tests.clients.waiting import wait_until

_ENDED = "the tool has ended"
"""The message of the error. Some tools catch it, and print it."""


class Outcome(NamedTuple):
    """What a tool did: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


class ToolRunner:
    """Runs main classes in a virtual machine, which it takes over: `System.in`, `System.out`, `System.err` and exits."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        java = jvm.classes.java
        self._out, self._err = java.io.ByteArrayOutputStream(), java.io.ByteArrayOutputStream()
        java.lang.System.setOut(java.io.PrintStream(self._out, True, "UTF-8"))
        java.lang.System.setErr(java.io.PrintStream(self._err, True, "UTF-8"))
        self._codes = java.io.ByteArrayOutputStream()
        kafka_exit = jvm.classes.org.apache.kafka.common.utils.internals.Exit
        self._hooks = java.util.concurrent.ConcurrentLinkedQueue()
        procedure = self._exit_procedure()
        kafka_exit.setExitProcedure(procedure)
        kafka_exit.setHaltProcedure(procedure)
        kafka_exit.setShutdownHookAdder(self._hook_adder())

    def run(self, main_class: str, arguments: Sequence[str], stdin: str = "", until: str = "") -> Outcome:
        """
        Run a tool to its end. A tool that returns has exit code 0; one that raises an exception has 1.

        Args:
            until: text in stdout to wait for, if threads of the tool still write when its main method has returned.
        """
        java: Any = self._jvm.classes.java
        java.lang.System.setIn(java.io.ByteArrayInputStream(stdin.encode()))
        for buffer in (self._out, self._err, self._codes):
            buffer.reset()
        raised = ""
        try:
            self._main(main_class).invoke(None, self._jvm.array("java.lang.Object", self._jvm.strings(*arguments)))
        except Py4JJavaError as exc:
            raised = f"{exc.java_exception.getCause()}\n"
        wait_until(lambda: until in str(self._out.toString("UTF-8")), what=f"{main_class} writes {until}")
        while (hook := self._hooks.poll()) is not None:
            hook.run()
        codes = bytes(self._codes.toByteArray())
        out, err = (_without_end(buffer.toString("UTF-8")) for buffer in (self._out, self._err))
        if codes:
            return Outcome(codes[0], out, err)
        return Outcome(1 if raised else 0, out, err + raised)

    def _main(self, name: str) -> Any:
        found = self._jvm.class_object(name)
        return found.getMethod(
            "main", self._jvm.array("java.lang.Class", self._jvm.class_object("[Ljava.lang.String;"))
        )

    def _exit_procedure(self) -> Any:
        """An `Exit.Procedure` that notes the code and raises an error: `(int code, String message) -> {write(code); throw}`."""
        java: Any = self._jvm.classes.java
        handles, kind = java.lang.invoke.MethodHandles, java.lang.invoke.MethodType
        void, number = java.lang.Void.TYPE, java.lang.Integer.TYPE
        error, text = self._jvm.class_object("java.lang.Error"), self._jvm.class_object("java.lang.String")
        write = handles.publicLookup().findVirtual(
            self._jvm.class_object("java.io.ByteArrayOutputStream"), "write", kind.methodType(void, number)
        )
        note = write.bindTo(self._codes)
        fail = handles.throwException(void, error).bindTo(java.lang.Error(_ENDED))
        with_arguments = handles.dropArguments(fail, 0, [number, text])
        procedure = handles.foldArguments(with_arguments, handles.dropArguments(note, 1, [text]))
        interface = self._jvm.class_object("org.apache.kafka.common.utils.internals.Exit$Procedure")
        return java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, procedure)

    def _hook_adder(self) -> Any:
        """An `Exit.ShutdownHookAdder` that keeps the hooks, which run when the tool ends."""
        java: Any = self._jvm.classes.java
        kind, text = java.lang.invoke.MethodType, self._jvm.class_object("java.lang.String")
        add = java.lang.invoke.MethodHandles.publicLookup().findVirtual(
            self._jvm.class_object("java.util.concurrent.ConcurrentLinkedQueue"),
            "add",
            kind.methodType(java.lang.Boolean.TYPE, self._jvm.class_object("java.lang.Object")),
        )
        runnable = self._jvm.class_object("java.lang.Runnable")
        keep = add.bindTo(self._hooks).asType(kind.methodType(java.lang.Void.TYPE, runnable))
        adder = java.lang.invoke.MethodHandles.dropArguments(keep, 0, [text])
        interface = self._jvm.class_object("org.apache.kafka.common.utils.internals.Exit$ShutdownHookAdder")
        return java.lang.invoke.MethodHandleProxies.asInterfaceInstance(interface, adder)


def _without_end(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if _ENDED not in line)
