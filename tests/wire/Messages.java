import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Messages as Apache Kafka writes them. Input: a line each, as record_messages.py writes it: name, version, and the message in
 * Kafka's JSON form, or null for one that has nothing but defaults. Output: its bytes in hexadecimal, in a line.
 */
public class Messages {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = JSON.readTree(line);
            String name = "org.apache.kafka.common.message." + asked.get("message").asText() + "Data";
            short version = asked.get("version").shortValue();
            JsonNode value = asked.get("json");
            Message message = (Message) (value.isNull()
                ? Class.forName(name).getDeclaredConstructor().newInstance()
                : Class.forName(name + "JsonConverter").getMethod("read", JsonNode.class, short.class).invoke(null, value, version));
            ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] copied = new byte[bytes.remaining()];
            bytes.get(copied);
            System.out.println(HexFormat.of().formatHex(copied));
        }
    }
}
