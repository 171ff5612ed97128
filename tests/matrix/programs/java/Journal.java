import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The options that every member takes, and the JSON lines that every member prints. */
final class Journal {
    private Journal() { }

    static Map<String, String> options(String[] args) {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) options.put(args[i].substring(2), args[i + 1]);
        return options;
    }

    /** Of the clients on the class path. Kafka's own class for that moved in 4.4. */
    static String kafkaVersion() {
        try (java.io.InputStream in = Journal.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            java.util.Properties found = new java.util.Properties();
            found.load(in);
            return found.getProperty("version").trim();
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    static void started(String version) {
        emit("\"e\":\"started\",\"version\":\"" + version + "\"");
    }

    static void partitions(String event, IntStream partitions) {
        String list = partitions.sorted().mapToObj(Integer::toString).collect(Collectors.joining(","));
        emit("\"e\":\"" + event + "\",\"partitions\":[" + list + "]");
    }

    static void consumed(int partition, long offset) {
        emit("\"e\":\"consumed\",\"partition\":" + partition + ",\"offset\":" + offset);
    }

    static void plain(String event) {
        emit("\"e\":\"" + event + "\"");
    }

    static void error(Throwable t) {
        String text = (t.getClass().getSimpleName() + ": " + t.getMessage()).replaceAll("[\\\\\"\\p{Cntrl}]", " ");
        emit("\"e\":\"error\",\"text\":\"" + text + "\"");
        System.err.println(t + " " + Arrays.toString(t.getStackTrace()));
    }

    private static synchronized void emit(String fields) {
        System.out.println("{\"t\":" + System.currentTimeMillis() + "," + fields + "}");
        System.out.flush();
    }
}
