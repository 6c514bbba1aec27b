import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.Errors;

/** What Apache Kafka's classes define, as JSON: configurations by kind, then by name; numbers of error codes by name. */
public class Definitions {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("broker", keys("org.apache.kafka.server.config.AbstractKafkaConfig"));
        found.put("topic", keys("org.apache.kafka.storage.internals.log.LogConfig"));
        found.put("group", keys("org.apache.kafka.coordinator.group.GroupConfig"));
        found.put("client metrics", keys("org.apache.kafka.server.metrics.ClientMetricsConfigs"));
        Map<String, Object> errors = new LinkedHashMap<>();
        for (Errors error : Errors.values()) errors.put(error.name(), error.code());
        found.put("errors", errors);
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }

    static Map<String, Object> keys(String className) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (ConfigDef.ConfigKey key : definition(Class.forName(className)).configKeys().values()) {
            List<Object> row = new ArrayList<>();
            row.add(key.type.name());
            row.add(key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "<required>");
            row.add(key.validator == null ? null : key.validator.toString());
            row.add(key.importance.name());
            row.add(key.internalConfig);
            found.put(key.name, row);
        }
        return found;
    }

    /** The class has a method or a constant; which, and how it is called, changes between releases. */
    static ConfigDef definition(Class<?> type) throws Exception {
        for (String method : new String[] {"configDef", "configDefCopy"}) {
            try {
                return (ConfigDef) type.getMethod(method).invoke(null);
            } catch (NoSuchMethodException e) {
                continue;
            }
        }
        return (ConfigDef) type.getField("CONFIG_DEF").get(null);
    }
}
