import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A KafkaConsumer of any version: it commits what it has consumed after each poll. */
public class ConsumerMember {
    public static void main(String[] args) throws Exception {
        Map<String, String> o = Journal.options(args);
        AtomicBoolean stop = new AtomicBoolean();
        CountDownLatch ended = new CountDownLatch(1);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config(o));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop.set(true);
            try {
                ended.await(20, TimeUnit.SECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        Journal.started("kafka-clients " + Journal.kafkaVersion());
        consumer.subscribe(java.util.List.of(o.get("topic")), new Listener());
        while (!stop.get()) {
            try {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<byte[], byte[]> r : records) Journal.consumed(r.partition(), r.offset());
                if (!records.isEmpty()) {
                    consumer.commitSync();
                    Journal.plain("committed");
                }
            } catch (WakeupException e) {
                break;
            } catch (KafkaException e) {
                Journal.error(e);
                Thread.sleep(100);
            }
        }
        Journal.plain("closing");
        consumer.close(Duration.ofSeconds(10));
        Journal.plain("closed");
        ended.countDown();
    }

    private static Properties config(Map<String, String> o) {
        Properties p = new Properties();
        p.put("bootstrap.servers", o.get("bootstrap"));
        p.put("group.id", o.get("group"));
        p.put("client.id", o.get("name"));
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (o.containsKey("instance")) p.put("group.instance.id", o.get("instance"));
        if (o.get("protocol").equals("consumer")) {
            p.put("group.protocol", "consumer");
        } else {
            String name = o.get("assignor").equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor";
            p.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + name);
            p.put("session.timeout.ms", o.get("session-ms"));
            p.put("heartbeat.interval.ms", o.get("heartbeat-ms"));
        }
        return p;
    }

    private static class Listener implements ConsumerRebalanceListener {
        public void onPartitionsAssigned(Collection<TopicPartition> more) {
            Journal.partitions("assigned", more.stream().mapToInt(TopicPartition::partition));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> gone) {
            Journal.partitions("revoked", gone.stream().mapToInt(TopicPartition::partition));
        }

        public void onPartitionsLost(Collection<TopicPartition> gone) {
            Journal.partitions("lost", gone.stream().mapToInt(TopicPartition::partition));
        }
    }
}
