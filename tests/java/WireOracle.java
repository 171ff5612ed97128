import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Kafka's own message classes as an oracle. One request a line: NAME VERSION JSON -> hex; NAME VERSION hex:BYTES -> hex JSON. */
public class WireOracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split(" ", 3);
            short version = Short.parseShort(parts[1]);
            try {
                Class<?> data = Class.forName("org.apache.kafka.common.message." + parts[0] + "Data");
                Class<?> json = Class.forName("org.apache.kafka.common.message." + parts[0] + "DataJsonConverter");
                if (parts[2].startsWith("hex:")) {
                    Message m = (Message) data.getDeclaredConstructor().newInstance();
                    m.read(new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(parts[2].substring(4)))), version);
                    ObjectSerializationCache cache = new ObjectSerializationCache();
                    ByteBuffer buf = ByteBuffer.allocate(m.size(cache, version));
                    m.write(new ByteBufferAccessor(buf), cache, version);
                    System.out.println(HexFormat.of().formatHex(buf.array()) + " "
                        + json.getMethod("write", data, short.class).invoke(null, m, version));
                } else {
                    Message m = (Message) json.getMethod("read", JsonNode.class, short.class)
                        .invoke(null, mapper.readTree(parts[2]), version);
                    ObjectSerializationCache cache = new ObjectSerializationCache();
                    ByteBuffer buf = ByteBuffer.allocate(m.size(cache, version));
                    m.write(new ByteBufferAccessor(buf), cache, version);
                    System.out.println(HexFormat.of().formatHex(buf.array()));
                }
            } catch (InvocationTargetException e) {
                System.out.println("error " + e.getCause());
            } catch (Exception e) {
                System.out.println("error " + e);
            }
        }
    }
}
