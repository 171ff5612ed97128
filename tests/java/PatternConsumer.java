import java.time.Duration;
import java.util.Collection;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** An unmodified Java consumer: bootstrap, group, regular expression, then NAME=VALUE settings. Prints what it has. */
public class PatternConsumer {
    public static void main(String[] args) {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("group.id", args[1]);
        p.put("group.protocol", "consumer");
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int i = 3; i < args.length; i++) p.put(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p);
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::wakeup));
        consumer.subscribe(new SubscriptionPattern(args[2]), new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> gone) { }
            public void onPartitionsAssigned(Collection<TopicPartition> more) {
                TreeSet<String> all = new TreeSet<>();
                consumer.assignment().forEach(t -> all.add(t.toString()));
                System.out.println("ASSIGNED " + String.join(" ", all));
            }
        });
        while (true) consumer.poll(Duration.ofMillis(200));
    }
}
