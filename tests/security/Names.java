import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Answers lines of JSON: {"der": HEX} with the name in RFC 2253 form; {"rules": TEXT, "name": TEXT} with the principal. */
public class Names {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = mapper.readTree(line);
            String answer;
            if (asked.has("der")) {
                answer = new X500Principal(HexFormat.of().parseHex(asked.get("der").asText())).getName();
            } else {
                try {
                    SslPrincipalMapper principals = SslPrincipalMapper.fromRules(asked.get("rules").asText());
                    answer = "=" + principals.getName(asked.get("name").asText());
                } catch (IllegalArgumentException refused) {
                    answer = "!";
                } catch (IndexOutOfBoundsException failed) {
                    answer = "-";
                } catch (java.io.IOException unmatched) {
                    answer = "-";
                }
            }
            System.out.println(mapper.writeValueAsString(answer));
        }
    }
}
