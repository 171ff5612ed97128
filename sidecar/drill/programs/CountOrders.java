import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** A Kafka Streams application that counts records by bucket, exactly once, with a repartition topic and a store. It is a
 *  member of a streams group (KIP-1071). Each count that it writes names the instance. It prints one JSON event per line.
 *  Arguments: bootstrap, application id, source topic, sink topic, name, buckets, folder of its stores. */
public class CountOrders {
    public static void main(String[] args) throws Exception {
        String name = args[4];
        int buckets = Integer.parseInt(args[5]);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, order) -> "bucket-" + Math.floorMod(order.hashCode(), buckets),
                Grouped.<String, String>as("buckets").withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> count + " " + name)
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        Properties c = new Properties();
        c.put("bootstrap.servers", args[0]);
        c.put("application.id", args[1]);
        c.put("client.id", name);
        c.put("group.protocol", "streams");
        c.put("processing.guarantee", "exactly_once_v2");
        c.put("auto.offset.reset", "earliest");
        c.put("state.dir", Files.createDirectories(Path.of(args[6])).toString());
        c.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        KafkaStreams streams = new KafkaStreams(builder.build(), c);
        streams.setUncaughtExceptionHandler(e -> {
            say("consumer_error", "text", String.valueOf(e));
            e.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            say("state", "state", now.toString());
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) ended.countDown();
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(10));
            say("shutdown_complete", "state", streams.state().toString());
        }));
        streams.start();
        ended.await();
    }

    private static synchronized void say(String event, String field, String value) {
        String plain = value.replace('\\', '/').replace('"', '\'').replaceAll("\\s+", " ");
        System.out.printf("{\"timestamp\":%d,\"name\":\"%s\",\"%s\":\"%s\"}%n",
            System.currentTimeMillis(), event, field, plain);
        System.out.flush();
    }
}
