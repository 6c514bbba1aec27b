package kohort.testing;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;

/**
 * A Kohort broker, or the part of one that a test has: what the test made there ends with {@link #close}.
 *
 * <p>Fields of faults, holds, groups and events have the names of docs/testing.md.
 */
public final class KohortBroker implements AutoCloseable {
    /** How long a wait takes at most. */
    public static final Duration TIMEOUT = Duration.ofSeconds(10);

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private final String bootstrap;
    private final String control;
    private final Process process;
    private final String unique = UUID.randomUUID().toString().substring(0, 8);
    private final String scope;

    private KohortBroker(String bootstrap, String control, Process process, String name) {
        this.bootstrap = bootstrap;
        this.control = control;
        this.process = process;
        this.scope = name + "-" + unique;
    }

    /**
     * Starts a broker, which ends with {@link #close} or with this virtual machine. The command is that of the environment variable
     * KOHORT_COMMAND, or {@code kohort}.
     *
     * @param options of {@code kohort serve}
     */
    public static KohortBroker start(String... options) {
        String command = System.getenv().getOrDefault("KOHORT_COMMAND", "kohort");
        List<String> line = new ArrayList<>(List.of(command.split(" ")));
        line.addAll(List.of("serve", "--for-tests", "--json", "--exit-with-parent", "--log-level", "error"));
        line.addAll(List.of(options));
        try {
            Process process = new ProcessBuilder(line).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            String ready = process.inputReader().readLine();
            if (ready == null) {
                throw new IllegalStateException("kohort serve does not become ready: " + String.join(" ", line));
            }
            JsonNode values = JSON.readTree(ready);
            if (!values.has("control")) {
                process.destroy();
                throw new IllegalStateException("kohort serve has no control port: pip install 'kohort[testing]'");
            }
            String control = values.get("control").asText();
            KohortBroker broker = new KohortBroker(values.get("bootstrap").asText(), control, process, "broker");
            broker.send("PUT", "/journal", Map.of(), Map.of("is_on", true));
            return broker;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Uses a broker that runs already, beside other tests. */
    public static KohortBroker connect(String bootstrap, String control) {
        return new KohortBroker(bootstrap, control, null, "test");
    }

    /** The part of this broker for one test. */
    public KohortBroker scope(String name) {
        return new KohortBroker(bootstrap, control, null, name);
    }

    /** HOST:PORT for clients. */
    public String bootstrap() {
        return bootstrap;
    }

    /** HOST:PORT of the control port. */
    public String control() {
        return control;
    }

    /** A name that no other test has. */
    public String unique(String name) {
        return name + "-" + unique;
    }

    /** Creates a topic with a new name, and returns the name. */
    public String topic(String name, int partitions) {
        String created = unique(name);
        send("POST", "/topics", Map.of(), Map.of("name", created, "partitions", partitions, "scope", scope));
        return created;
    }

    /** Writes values to partition 0 of a topic. */
    public void write(String topic, String... values) {
        var records = Arrays.stream(values).map(value -> Map.of("value", value)).toList();
        send("POST", "/topics/" + quoted(topic) + "/records", Map.of(), Map.of("records", records));
    }

    /** The values of the first 100 records of partition 0 that are committed. */
    public List<String> values(String topic) {
        Map<String, ?> query = Map.of("isolation", "read_committed");
        List<String> values = new ArrayList<>();
        send("GET", "/topics/" + quoted(topic) + "/records", query, null)
            .get("records").forEach(each -> values.add(each.path("value").asText()));
        return values;
    }

    /** Lets requests fail: filters, a trigger, and one effect. */
    public Handle fault(Map<String, ?> fields) {
        return add("/faults", fields);
    }

    /** Holds requests, their answers, or a point inside the broker. */
    public Handle hold(Map<String, ?> fields) {
        return add("/holds", fields);
    }

    private Handle add(String path, Map<String, ?> fields) {
        Map<String, Object> body = new HashMap<>(fields);
        body.put("scope", scope);
        String id = send("POST", path, Map.of(), body).get("id").asText();
        return new Handle(id, path + "/" + id);
    }

    /** Waits until a group is as the fields say: wait (a state), members, topic, partition, member, offset, lag. */
    public JsonNode waitGroup(String group, Map<String, ?> wanted) {
        Map<String, Object> query = new HashMap<>(wanted);
        query.putIfAbsent("timeout", TIMEOUT.toSeconds());
        return send("GET", "/groups/" + quoted(group), query, null);
    }

    /** Waits for a state of a transactional id, such as complete_commit. */
    public JsonNode waitTransaction(String transactionalId, String state) {
        Map<String, ?> query = Map.of("wait", state, "timeout", TIMEOUT.toSeconds());
        return send("GET", "/transactions/" + quoted(transactionalId), query, null);
    }

    /** Lets something happen, such as expire_member. */
    public JsonNode event(String name, Map<String, ?> fields) {
        return send("POST", "/events/" + name, Map.of(), fields);
    }

    /** The last requests of clients that match the filters. */
    public List<JsonNode> requests(Map<String, ?> filters) {
        List<JsonNode> found = new ArrayList<>();
        send("GET", "/requests", filters, null).get("requests").forEach(found::add);
        return found;
    }

    /**
     * A request to the control port that has no method here.
     *
     * @throws ControlException if the port refuses, or a wait ends without success
     */
    public JsonNode send(String method, String path, Map<String, ?> query, Map<String, ?> body) {
        String given = query.entrySet().stream()
            .map(each -> quoted(each.getKey()) + "=" + quoted(String.valueOf(each.getValue())))
            .collect(Collectors.joining("&"));
        try {
            var content = body == null
                ? HttpRequest.BodyPublishers.noBody()
                : HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body));
            var request = HttpRequest.newBuilder(URI.create("http://" + control + path + "?" + given))
                .method(method, content)
                .header("Content-Type", "application/json");
            String token = System.getenv("KOHORT_CONTROL_TOKEN");
            if (token != null) {
                request.header("Authorization", "Bearer " + token);
            }
            HttpResponse<byte[]> answer = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
            JsonNode value = JSON.readTree(answer.body());
            if (answer.statusCode() >= 400) {
                throw new ControlException(answer.statusCode(), value.path("detail").asText());
            }
            return value;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(error);
        }
    }

    /** Ends what the test made, and the broker if this object has started it. */
    @Override
    public void close() {
        send("DELETE", "/scopes/" + quoted(scope), Map.of(), null);
        if (process != null) {
            process.destroy();
        }
    }

    private static String quoted(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** The control port refused a request. */
    public static final class ControlException extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final int status;

        ControlException(int status, String detail) {
            super(detail);
            this.status = status;
        }

        /** Of HTTP; 409 if a wait ended without success. */
        public int status() {
            return status;
        }
    }

    /** A fault or a hold. In a try statement it ends with the block. */
    public final class Handle implements AutoCloseable {
        private final String id;
        private final String path;

        private Handle(String id, String path) {
            this.id = id;
            this.path = path;
        }

        public String id() {
            return id;
        }

        /** How many requests it has hit, or held. */
        public int hits() {
            return send("GET", path, Map.of(), null).get("hits").asInt();
        }

        /** Waits until a fault has so many hits, or a hold holds so many. */
        public void await(int count) {
            send("GET", path, Map.of("wait", count, "timeout", TIMEOUT.toSeconds()), null);
        }

        /** Lets all go that a hold holds, and ends it. */
        public void release() {
            send("POST", path + "/release", Map.of(), Map.of());
        }

        /** Lets the first ones go. */
        public void release(int count) {
            send("POST", path + "/release", Map.of(), Map.of("count", count));
        }

        @Override
        public void close() {
            send("DELETE", path, Map.of(), null);
        }
    }
}
