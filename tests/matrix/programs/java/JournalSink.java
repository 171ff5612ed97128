import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** A sink connector whose tasks report what they get and keep nothing. */
public class JournalSink extends SinkConnector {
    public String version() {
        return "1";
    }

    public void start(Map<String, String> props) { }

    public void stop() { }

    public ConfigDef config() {
        return new ConfigDef();
    }

    public Class<? extends Task> taskClass() {
        return JournalTask.class;
    }

    public List<Map<String, String>> taskConfigs(int most) {
        List<Map<String, String>> all = new ArrayList<>();
        for (int i = 0; i < most; i++) all.add(Map.of());
        return all;
    }

    public static class JournalTask extends SinkTask {
        public String version() {
            return "1";
        }

        public void start(Map<String, String> props) { }

        public void stop() { }

        public void open(Collection<TopicPartition> more) {
            Journal.partitions("assigned", more.stream().mapToInt(TopicPartition::partition));
        }

        public void close(Collection<TopicPartition> gone) {
            Journal.partitions("revoked", gone.stream().mapToInt(TopicPartition::partition));
        }

        public void put(Collection<SinkRecord> records) {
            for (SinkRecord r : records) Journal.consumed(r.kafkaPartition(), r.kafkaOffset());
        }
    }
}
