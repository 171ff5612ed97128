import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own assignors. One JSON problem a line, one JSON answer a line: the order in which Kafka walked members and
 * topics, and each member's partitions; with "repeat", thread CPU microseconds of each run instead.
 */
public class AssignorOracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(mapper.writeValueAsString(answer(mapper, mapper.readTree(line))));
        }
    }

    static ObjectNode answer(ObjectMapper mapper, JsonNode q) {
        List<Uuid> ids = new ArrayList<>();
        Map<Uuid, Integer> index = new HashMap<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        for (JsonNode t : q.get("topics")) {
            String hex = t.get(0).asText();
            Uuid id = new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
            index.put(id, ids.size());
            ids.add(id);
            counts.put(id, t.get(1).asInt());
        }
        List<Set<Uuid>> classes = new ArrayList<>();
        for (JsonNode c : q.get("classes")) {
            Set<Uuid> set = new HashSet<>();
            c.forEach(t -> set.add(ids.get(t.asInt())));
            classes.add(set);
        }
        List<Uuid> topicOrder = new ArrayList<>(new HashSet<>(counts.keySet()));
        if (classes.size() == 1) topicOrder = new ArrayList<>(new HashSet<>(classes.get(0)));

        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        for (JsonNode m : q.get("members")) {
            String memberId = m.get("id").asText();
            Map<Uuid, Set<Integer>> given = new HashMap<>();
            for (JsonNode o : m.get("owned")) {
                Uuid id = ids.get(o.get(0).asInt());
                Set<Integer> parts = given.computeIfAbsent(id, k -> new TreeSet<>());
                for (int i = 1; i < o.size(); i++) {
                    parts.add(o.get(i).asInt());
                    inverted.computeIfAbsent(id, k -> new HashMap<>()).put(o.get(i).asInt(), memberId);
                }
            }
            Map<Uuid, Set<Integer>> owned = new LinkedHashMap<>();
            for (Uuid id : topicOrder) if (given.containsKey(id)) owned.put(id, given.remove(id));
            owned.putAll(given);
            members.put(memberId, new MemberSubscriptionAndAssignmentImpl(
                Optional.ofNullable(m.get("rack").textValue()), Optional.ofNullable(m.get("instance").textValue()),
                classes.get(m.get("class").asInt()), new Assignment(Collections.unmodifiableMap(owned))));
        }
        GroupSpecImpl spec = new GroupSpecImpl(members,
            classes.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, inverted);
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
            public Set<String> racksForPartition(Uuid id, int partition) { return Set.of(); }
        };
        ConsumerGroupPartitionAssignor assignor = q.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        ObjectNode out = mapper.createObjectNode();
        GroupAssignment result = null;
        ArrayNode cpu = out.putArray("cpu_us");
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        int repeat = q.path("repeat").asInt(1);
        for (int i = 0; i < repeat; i++) {
            long start = threads.getCurrentThreadCpuTime();
            result = assignor.assign(spec, describer);
            cpu.add((threads.getCurrentThreadCpuTime() - start) / 1000.0);
        }
        if (q.path("silent").asBoolean()) return out;
        ArrayNode order = out.putArray("members");
        spec.memberIds().forEach(order::add);
        ArrayNode topics = out.putArray("topics");
        topicOrder.forEach(id -> topics.add(index.get(id)));
        ObjectNode assigned = out.putObject("result");
        result.members().forEach((member, a) -> {
            ObjectNode mine = assigned.putObject(member);
            a.partitions().forEach((id, parts) -> {
                if (parts.isEmpty()) return;
                ArrayNode list = mine.putArray(String.valueOf(index.get(id)));
                new TreeSet<>(parts).forEach(list::add);
            });
        });
        return out;
    }
}
