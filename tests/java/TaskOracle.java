import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.api.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;

/**
 * Kafka 4.4.0's StickyTaskAssignor. One JSON problem a line, one JSON answer a line: the order in which Kafka walks
 * members, and each member's tasks. With "repeat", also thread CPU microseconds of each run.
 */
public class TaskOracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(mapper.writeValueAsString(answer(mapper, mapper.readTree(line))));
        }
    }

    static Map<String, Set<Integer>> tasks(JsonNode given) {
        Map<String, Set<Integer>> tasks = new HashMap<>();
        given.fields().forEachRemaining(e -> {
            Set<Integer> set = tasks.computeIfAbsent(e.getKey(), k -> new HashSet<>());
            e.getValue().forEach(p -> set.add(p.asInt()));
        });
        return tasks;
    }

    static Map<String, Map<Integer, Long>> offsets(JsonNode given) {
        Map<String, Map<Integer, Long>> offsets = new HashMap<>();
        given.fields().forEachRemaining(e -> {
            Map<Integer, Long> sums = offsets.computeIfAbsent(e.getKey(), k -> new HashMap<>());
            e.getValue().fields().forEachRemaining(o -> sums.put(Integer.valueOf(o.getKey()), o.getValue().asLong()));
        });
        return offsets;
    }

    static void put(ObjectNode out, Map<String, Set<Integer>> tasks) {
        tasks.forEach((subtopology, partitions) -> {
            if (partitions.isEmpty()) return;
            ArrayNode list = out.putArray(subtopology);
            new TreeSet<>(partitions).forEach(list::add);
        });
    }

    static ObjectNode answer(ObjectMapper mapper, JsonNode q) {
        Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();
        for (JsonNode m : q.get("members")) {
            Map<String, String> tags = new HashMap<>();
            m.path("tags").fields().forEachRemaining(e -> tags.put(e.getKey(), e.getValue().asText()));
            members.put(m.get("id").asText(), new MemberMetadataAndStateImpl(Optional.empty(), Optional.ofNullable(m.path("rack").textValue()),
                m.get("process").asText(), tags, tasks(m.get("active")), tasks(m.get("standby")), tasks(m.get("warmup")),
                offsets(m.get("offsets")), Map.of()));
        }
        List<String> subtopologies = new ArrayList<>();
        Map<String, Integer> counts = new HashMap<>();
        Set<String> stateful = new HashSet<>();
        for (JsonNode s : q.get("subtopologies")) {
            String id = s.get(0).asText();
            subtopologies.add(id);
            counts.put(id, s.get(1).asInt());
            if (s.get(2).asBoolean()) stateful.add(id);
        }
        TopologyDescriber topology = new TopologyDescriber() {
            public List<String> subtopologies() { return subtopologies; }
            public int maxNumInputPartitions(String id) { return counts.get(id); }
            public boolean isStateful(String id) { return stateful.contains(id); }
        };
        List<String> tags = new ArrayList<>();
        q.path("rack_tags").forEach(t -> tags.add(t.asText()));
        GroupSpecImpl spec = new GroupSpecImpl(members, new AssignmentConfigsImpl(q.get("standbys").asInt(), tags));
        ObjectNode out = mapper.createObjectNode();
        GroupAssignment result = null;
        ArrayNode cpu = out.putArray("cpu_us");
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        StickyTaskAssignor assignor = new StickyTaskAssignor();
        for (int i = 0; i < q.path("repeat").asInt(1); i++) {
            long start = threads.getCurrentThreadCpuTime();
            result = assignor.assign(spec, topology);
            cpu.add((threads.getCurrentThreadCpuTime() - start) / 1000.0);
        }
        if (q.path("silent").asBoolean()) return out;
        ArrayNode order = out.putArray("members");
        spec.memberIds().forEach(order::add);
        ObjectNode assigned = out.putObject("result");
        result.members().forEach((member, a) -> {
            ObjectNode mine = assigned.putObject(member);
            put(mine.putObject("active"), a.activeTasks());
            put(mine.putObject("standby"), a.standbyTasks());
        });
        return out;
    }
}
