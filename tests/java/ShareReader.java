import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a share group: prints the value of each record, which the next poll acknowledges. Arguments are bootstrap,
 *  group, topic, client id. */
public class ShareReader {
    public static void main(String[] args) {
        Properties c = new Properties();
        c.put("bootstrap.servers", args[0]);
        c.put("group.id", args[1]);
        c.put("client.id", args[3]);
        c.put("max.poll.records", "50");
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(c, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            System.out.println("ready");
            while (true) {
                StringBuilder said = new StringBuilder();
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(500)))
                    said.append("record ").append(r.value()).append('\n');
                System.out.print(said);
                System.out.flush();
            }
        }
    }
}
