package kohort.testing;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives tests a {@link KohortBroker} as a parameter: a part of one broker that all tests of the run share.
 *
 * <p>{@code @ExtendWith(KohortExtension.class) class OrdersTest { @Test void test(KohortBroker kohort) ...}}
 */
public final class KohortExtension implements ParameterResolver {
    private static final Namespace NAMESPACE = Namespace.create(KohortExtension.class);

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == KohortBroker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Closing shared = context.getRoot().getStore(NAMESPACE)
            .getOrComputeIfAbsent("broker", key -> new Closing(KohortBroker.start()), Closing.class);
        return context.getStore(NAMESPACE)
            .getOrComputeIfAbsent("scope", key -> new Closing(shared.broker.scope(context.getDisplayName())), Closing.class)
            .broker;
    }

    /** JUnit closes what its stores hold: a scope with its test, the broker with the run. */
    private record Closing(KohortBroker broker) implements AutoCloseable {
        @Override
        public void close() {
            broker.close();
        }
    }
}
