import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

/** Targets of the assignors of Apache Kafka. Input: a story a line, as record_targets.py writes it. Output: its targets, in a line. */
public class Targets {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(targets(JSON.readTree(line))));
        }
    }

    static List<Map<String, Map<String, List<Integer>>>> targets(JsonNode story) {
        PartitionAssignor assignor = story.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, Assignment> before = new HashMap<>();
        List<Map<String, Map<String, List<Integer>>>> found = new ArrayList<>();
        for (JsonNode step : story.get("steps")) {
            JsonNode counts = step.get("topics");
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
            Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
            Set<Set<String>> subscriptions = new HashSet<>();
            step.get("members").properties().forEach(entry -> {
                String id = entry.getKey();
                Set<Uuid> topics = new LinkedHashSet<>();
                Set<String> names = new HashSet<>();
                for (JsonNode topic : entry.getValue().get("topics")) {
                    topics.add(uuid(topic.asText()));
                    names.add(topic.asText());
                }
                subscriptions.add(names);
                Optional<String> instance = Optional.ofNullable(entry.getValue().get("instance")).map(JsonNode::asText);
                Assignment assignment = before.getOrDefault(id, Assignment.EMPTY);
                assignment.partitions().forEach((topic, partitions) ->
                    partitions.forEach(it -> owners.computeIfAbsent(topic, __ -> new HashMap<>()).put(it, id)));
                members.put(id, new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, topics, assignment));
            });
            SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
                public int numPartitions(Uuid topic) {
                    JsonNode count = counts.get(hex(topic));
                    return count == null ? -1 : count.asInt();
                }

                public Set<String> racksForPartition(Uuid topic, int partition) {
                    return Set.of();
                }
            };
            SubscriptionType type = subscriptions.size() < 2 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            GroupAssignment target = assignor.assign(new GroupSpecImpl(members, type, owners), describer);
            Map<String, Assignment> after = new HashMap<>();
            Map<String, Map<String, List<Integer>>> shown = new TreeMap<>();
            for (String id : members.keySet()) {
                MemberAssignment one = target.members().get(id);
                Map<Uuid, Set<Integer>> replayed = new HashMap<>();
                Map<String, List<Integer>> sorted = new TreeMap<>();
                if (one != null) {
                    one.partitions().forEach((topic, partitions) -> {
                        List<Integer> record = new ArrayList<>(partitions);
                        replayed.put(topic, Collections.unmodifiableSet(new HashSet<>(record)));
                        sorted.put(hex(topic), new ArrayList<>(new TreeSet<>(record)));
                    });
                }
                after.put(id, new Assignment(Collections.unmodifiableMap(replayed)));
                shown.put(id, sorted);
            }
            before.clear();
            before.putAll(after);
            found.add(shown);
        }
        return found;
    }

    static Uuid uuid(String hex) {
        return new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    static String hex(Uuid uuid) {
        return String.format("%016x%016x", uuid.getMostSignificantBits(), uuid.getLeastSignificantBits());
    }
}
