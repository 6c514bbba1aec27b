package kohort.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tests of an application that uses Kafka's Java clients. */
@ExtendWith(KohortExtension.class)
class OrdersTest {
    /** The application: it writes an order. */
    private static void publish(String bootstrap, String topic, String order) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", true);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, order)).get();
        }
    }

    /** The application: it reads orders in a group of the protocol of KIP-848, and commits. */
    private static List<String> work(String bootstrap, String topic, String group, int count) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "group.protocol", "consumer",
            "client.id", "worker-1",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        List<String> orders = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (orders.size() < count) {
                var records = consumer.poll(Duration.ofMillis(100));
                records.forEach(each -> orders.add(each.value()));
                if (!records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
        return orders;
    }

    @Test
    void anOrderIsWrittenOnce(KohortBroker kohort) throws Exception {
        String topic = kohort.topic("orders", 1);
        var lost = kohort.fault(Map.of("api", "Produce", "topic", topic, "disconnect", "after"));
        publish(kohort.bootstrap(), topic, "order 1");
        assertEquals(1, lost.hits());
        assertEquals(List.of("order 1"), kohort.values(topic));
    }

    @Test
    void ordersAreCommitted(KohortBroker kohort) {
        String topic = kohort.topic("orders", 2);
        String group = kohort.unique("workers");
        kohort.write(topic, "order 1", "order 2");
        var hold = kohort.hold(Map.of("api", "OffsetCommit", "group", group));
        var working = CompletableFuture.supplyAsync(() -> work(kohort.bootstrap(), topic, group, 2));
        hold.await(1);
        var state = kohort.waitGroup(group, Map.of("wait", "stable", "members", 1, "topic", topic));
        assertEquals("consumer", state.get("kind").asText());
        hold.release();
        kohort.waitGroup(group, Map.of("topic", topic, "offset", 2));
        assertEquals(List.of("order 1", "order 2"), working.join());
        assertTrue(kohort.requests(Map.of("api", "Produce", "client_id", "worker-1")).isEmpty());
    }

    @Test
    void aMisspelledFieldIsAnError(KohortBroker kohort) {
        var refused = assertThrows(
            KohortBroker.ControlException.class, () -> kohort.fault(Map.of("api", "Produce", "eror", 5)));
        assertEquals("there is no field 'eror'; did you mean error?", refused.getMessage());
        assertEquals(422, refused.status());
    }
}
