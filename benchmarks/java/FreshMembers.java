import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members that tell when they are assigned as many partitions as they wait for. Each line of the input starts one:
 * bootstrap, group, protocol, "name" or "pattern", what it subscribes to, partitions. It ends after args[0] seconds.
 * args[1]: milliseconds between heartbeats of the classic protocol.
 */
public class FreshMembers {
    public static void main(String[] args) throws Exception {
        long limitMs = (long) (1000 * Double.parseDouble(args[0]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            new Thread(() -> play(words, limitMs, args[1])).start();
        }
    }

    static void play(String[] words, long limitMs, String heartbeatMs) {
        String protocol = words[2];
        Properties p = new Properties();
        p.put("bootstrap.servers", words[0]);
        p.put("group.id", words[1]);
        p.put("group.protocol", protocol);
        p.put("auto.offset.reset", "earliest");
        p.put("metadata.max.age.ms", "500");
        if (protocol.equals("classic")) p.put("heartbeat.interval.ms", heartbeatMs);
        long end = System.currentTimeMillis() + limitMs;
        try (var consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (words[3].equals("name")) consumer.subscribe(List.of(words[4]));
            else if (protocol.equals("classic")) consumer.subscribe(Pattern.compile(words[4]));
            else consumer.subscribe(new SubscriptionPattern(words[4]));
            int wanted = Integer.parseInt(words[5]);
            while (consumer.assignment().size() != wanted && System.currentTimeMillis() < end) {
                consumer.poll(Duration.ofMillis(20));
            }
            tell(words[1], consumer.assignment().size() == wanted);
        } catch (RuntimeException e) {
            e.printStackTrace();
            tell(words[1], false);
        }
    }

    static synchronized void tell(String group, boolean assigned) {
        System.out.println("member " + group + " " + assigned);
        System.out.flush();
    }
}
