import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.IntStream;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** A Kafka Streams application: what it holds are its tasks, one for each partition. Streams commits by itself. */
public class StreamsMember {
    public static void main(String[] args) throws Exception {
        Map<String, String> o = Journal.options(args);
        boolean isStatic = o.containsKey("instance");
        Topology topology = new Topology();
        topology.addSource("in", new ByteArrayDeserializer(), new ByteArrayDeserializer(), o.get("topic"));
        topology.addProcessor("report", Report::new, "in");
        KafkaStreams streams = new KafkaStreams(topology, config(o));
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(e -> {
            Journal.error(e);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            // Tasks that stay are not told of a rebalance, but the application is.
            if (now == KafkaStreams.State.REBALANCING) Journal.partitions("assigned", IntStream.empty());
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(CloseOptions.timeout(Duration.ofSeconds(15)).withGroupMembershipOperation(
                isStatic ? GroupMembershipOperation.REMAIN_IN_GROUP : GroupMembershipOperation.LEAVE_GROUP));
            Journal.plain("closing");
            Journal.plain("closed");
            ended.countDown();
        }));
        Journal.started("Kafka Streams " + Journal.kafkaVersion());
        streams.start();
        ended.await();
    }

    private static Properties config(Map<String, String> o) throws IOException {
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, o.get("group"));
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, o.get("bootstrap"));
        p.put(StreamsConfig.CLIENT_ID_CONFIG, o.get("name"));
        p.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("matrix-streams").toString());
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "500");
        p.put("session.timeout.ms", o.get("session-ms"));
        p.put("heartbeat.interval.ms", o.get("heartbeat-ms"));
        p.put("auto.offset.reset", "earliest");
        if (o.containsKey("instance")) p.put("group.instance.id", o.get("instance"));
        return p;
    }

    private static class Report implements Processor<byte[], byte[], Void, Void> {
        private ProcessorContext<Void, Void> context;

        public void init(ProcessorContext<Void, Void> given) {
            context = given;
            Journal.partitions("assigned", IntStream.of(context.taskId().partition()));
        }

        public void process(Record<byte[], byte[]> record) {
            RecordMetadata at = context.recordMetadata().orElseThrow();
            Journal.consumed(at.partition(), at.offset());
        }

        public void close() {
            Journal.partitions("revoked", IntStream.of(context.taskId().partition()));
        }
    }
}
