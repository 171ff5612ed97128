import java.nio.file.Files;
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

/** An instance of an application that counts the values of a topic, with a repartition topic and a store, as a member of
 *  a streams group (KIP-1071). Arguments are bootstrap, application id, source topic, sink topic, client id, processing
 *  guarantee. */
public class WordCount {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.<String, String>as("words").withKeySerde(Serdes.String())
                .withValueSerde(Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));
        Properties c = new Properties();
        c.put("bootstrap.servers", args[0]);
        c.put("application.id", args[1]);
        c.put("client.id", args[4]);
        c.put("processing.guarantee", args[5]);
        c.put("group.protocol", "streams");
        c.put("commit.interval.ms", "200");
        c.put("auto.offset.reset", "earliest");
        c.put("state.dir", Files.createTempDirectory("word-count").toString());
        c.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        KafkaStreams streams = new KafkaStreams(builder.build(), c);
        streams.setUncaughtExceptionHandler(e -> {
            System.out.println("died of " + e);
            e.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) ended.countDown();
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(15))));
        streams.start();
        ended.await();
    }
}
