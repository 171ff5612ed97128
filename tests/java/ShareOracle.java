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
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's SimpleAssignor. One JSON problem a line, one JSON answer a line: the orders in which Kafka walks members,
 * each member's topics and what it had, and each member's partitions; "failed" where it throws. With "repeat", also
 * thread CPU microseconds of each run.
 */
public class ShareOracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(mapper.writeValueAsString(answer(mapper, mapper.readTree(line))));
        }
    }

    static Set<Integer> numbers(JsonNode list, int from) {
        Set<Integer> set = new HashSet<>();
        for (int i = from; i < list.size(); i++) set.add(list.get(i).asInt());
        return set;
    }

    static ObjectNode answer(ObjectMapper mapper, JsonNode q) {
        List<Uuid> ids = new ArrayList<>();
        Map<Uuid, Integer> index = new HashMap<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        Map<Uuid, Set<Integer>> assignable = new HashMap<>();
        for (JsonNode t : q.get("topics")) {
            String hex = t.get(0).asText();
            Uuid id = new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
            index.put(id, ids.size());
            ids.add(id);
            counts.put(id, t.get(1).asInt());
            assignable.put(id, numbers(t.get(2), 0));
        }
        List<Set<Uuid>> classes = new ArrayList<>();
        for (JsonNode c : q.get("classes")) {
            Set<Uuid> set = new HashSet<>();
            c.forEach(t -> set.add(ids.get(t.asInt())));
            classes.add(set);
        }
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        for (JsonNode m : q.get("members")) {
            Map<Uuid, Set<Integer>> owned = new LinkedHashMap<>();
            for (JsonNode o : m.get("owned")) owned.put(ids.get(o.get(0).asInt()), numbers(o, 1));
            members.put(m.get("id").asText(), new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(),
                classes.get(m.get("class").asInt()), new Assignment(Collections.unmodifiableMap(owned))));
        }
        GroupSpecImpl spec = new GroupSpecImpl(members,
            classes.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, Map.of(), Optional.of(assignable));
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
            public Set<String> racksForPartition(Uuid id, int partition) { return Set.of(); }
        };
        ObjectNode out = mapper.createObjectNode();
        GroupAssignment result = null;
        ArrayNode cpu = out.putArray("cpu_us");
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        SimpleAssignor assignor = new SimpleAssignor();
        try {
            for (int i = 0; i < q.path("repeat").asInt(1); i++) {
                long start = threads.getCurrentThreadCpuTime();
                result = assignor.assign(spec, describer);
                cpu.add((threads.getCurrentThreadCpuTime() - start) / 1000.0);
            }
        } catch (NoSuchElementException e) {
            return out.put("failed", e.toString());
        }
        if (q.path("silent").asBoolean()) return out;
        ArrayNode order = out.putArray("members");
        spec.memberIds().forEach(order::add);
        ObjectNode subscribed = out.putObject("subscribed");
        ObjectNode owned = out.putObject("owned");
        spec.memberIds().forEach(m -> {
            ArrayNode topics = subscribed.putArray(m);
            spec.memberSubscription(m).subscribedTopicIds().forEach(id -> topics.add(index.get(id)));
            ArrayNode had = owned.putArray(m);
            spec.memberAssignment(m).partitions().forEach((id, parts) -> {
                ArrayNode list = had.addArray().add(index.get(id));
                parts.forEach(list::add);
            });
        });
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
