import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reads one topic and writes another, exactly once: arguments are bootstrap, group, topics, transactional id, protocol. */
public class Copier {
    public static void main(String[] args) {
        String bootstrap = args[0], group = args[1], in = args[2], out = args[3], id = args[4], protocol = args[5];
        Properties c = new Properties();
        c.put("bootstrap.servers", bootstrap);
        c.put("group.id", group);
        c.put("client.id", id);
        c.put("auto.offset.reset", "earliest");
        c.put("enable.auto.commit", "false");
        c.put("isolation.level", "read_committed");
        c.put("max.poll.records", "100");
        c.put("group.protocol", protocol.equals("consumer") ? "consumer" : "classic");
        if (!protocol.equals("consumer")) {
            c.put("session.timeout.ms", "6000");
            c.put("heartbeat.interval.ms", "500");
        }
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("transactional.id", id);
        p.put("transaction.timeout.ms", "10000");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(c, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(in));
            while (true) {
                try (KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
                    producer.initTransactions();
                    System.out.println("ready");
                    while (true) copy(consumer, producer, out);
                } catch (ProducerFencedException e) {
                    System.out.println("fenced");
                    return;
                } catch (WakeupException e) {
                    return;
                } catch (KafkaException e) {
                    System.out.println("again: " + e);  // a new producer, from what is committed
                    reset(consumer);
                }
            }
        }
    }

    static void copy(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, String out) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        if (records.isEmpty()) return;
        hold();
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<String, String> r : records) {
                producer.send(new ProducerRecord<>(out, r.key(), r.value()));
                ends.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            producer.commitTransaction();
        } catch (ProducerFencedException e) {
            throw e;
        } catch (KafkaException e) {
            System.out.println("aborted: " + e);
            producer.abortTransaction();
            reset(consumer);
        }
    }

    /** While this file is there, the batch is kept in hand. */
    static void hold() {
        String file = System.getProperty("hold");
        if (file == null || !Files.exists(Path.of(file))) return;
        System.out.println("holding");
        try {
            while (Files.exists(Path.of(file))) Thread.sleep(20);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Goes back to what is committed. */
    static void reset(KafkaConsumer<String, String> consumer) {
        try {
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            for (TopicPartition tp : consumer.assignment()) {
                OffsetAndMetadata at = committed.get(tp);
                if (at == null) consumer.seekToBeginning(List.of(tp));
                else consumer.seek(tp, at);
            }
        } catch (KafkaException e) {
            System.out.println("no position: " + e);
        }
    }
}
