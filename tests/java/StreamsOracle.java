import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestDataJsonConverter;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.GroupCoordinatorService;
import org.apache.kafka.coordinator.group.GroupMetadataManager;
import org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder;
import org.apache.kafka.coordinator.group.streams.MemberState;
import org.apache.kafka.coordinator.group.streams.StreamsGroup;
import org.apache.kafka.coordinator.group.streams.StreamsGroupMember;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.TasksTuple;
import org.apache.kafka.coordinator.group.streams.TasksTupleWithEpochs;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredTopology;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.apache.kafka.timeline.SnapshotRegistry;
import org.slf4j.helpers.NOPLogger;

/** Kafka's own classes of streams groups. One JSON question a line, one JSON answer a line; "op" says which. */
public class StreamsOracle {
    static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(MAPPER.writeValueAsString(answer(MAPPER.readTree(line))));
        }
    }

    static ObjectNode answer(JsonNode q) {
        try {
            switch (q.get("op").asText()) {
                case "configure": return configure(q);
                case "compare": return MAPPER.createObjectNode().put("same", topology(q.get("a")).equals(topology(q.get("b"))));
                case "reconcile": return reconcile(q);
                case "script": return script(q);
                case "validate": return validate(q);
                case "epoch": return epoch(q);
                default: throw new IllegalArgumentException(q.get("op").asText());
            }
        } catch (Throwable e) {
            Throwable cause = e instanceof InvocationTargetException ? e.getCause() : e;
            return MAPPER.createObjectNode()
                .put("code", Errors.forException(cause).code())
                .put("message", cause.getMessage())
                .put("exception", cause.getClass().getSimpleName());
        }
    }

    static StreamsGroupHeartbeatRequestData request(JsonNode node) {
        return StreamsGroupHeartbeatRequestDataJsonConverter.read(node, (short) 1);
    }

    static StreamsTopology topology(JsonNode request) {
        return StreamsTopology.fromHeartbeatRequest(request(request).topology());
    }

    // ---- topology ---------------------------------------------------------------------------------------

    static CoordinatorMetadataImage image(JsonNode counts) {
        ClassLoader loader = StreamsOracle.class.getClassLoader();
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(loader, new Class<?>[] {CoordinatorMetadataImage.class}, (p, m, args) -> {
            JsonNode count = counts.get((String) args[0]);
            if (count == null) return Optional.empty();
            return Optional.of(Proxy.newProxyInstance(loader, new Class<?>[] {CoordinatorMetadataImage.TopicMetadata.class}, (tp, tm, targs) -> {
                if (tm.getName().equals("partitionCount")) return count.asInt();
                if (tm.getName().equals("name")) return args[0];
                throw new UnsupportedOperationException(tm.getName());
            }));
        });
    }

    static ObjectNode configure(JsonNode q) throws Exception {
        StreamsTopology topology = topology(q.get("request"));
        ConfiguredTopology configured =
            InternalTopicManager.configureTopics(NOPLogger.NOP_LOGGER, "g", "m", 0, topology, image(q.get("image")), Time.SYSTEM);
        ObjectNode a = MAPPER.createObjectNode().put("ready", configured.isReady());
        configured.topicConfigurationException().ifPresent(e -> a.put("status", e.status().code()).put("detail", e.getMessage()));
        ObjectNode subtopologies = a.putObject("subtopologies");
        configured.subtopologies().ifPresent(all -> all.forEach((id, s) -> {
            ObjectNode one = subtopologies.putObject(id).put("tasks", s.numberOfTasks());
            ObjectNode counts = one.putObject("counts");
            s.repartitionSourceTopics().values().forEach(t -> counts.put(t.name(), t.numberOfPartitions()));
            s.stateChangelogTopics().values().forEach(t -> counts.put(t.name(), t.numberOfPartitions()));
        }));
        ArrayNode create = a.putArray("create");
        configured.internalTopicsToBeCreated().values().forEach(t -> {
            ObjectNode configs = create.addObject().put("name", t.name()).put("partitions", t.numPartitions())
                .put("replication", t.replicationFactor()).putObject("configs");
            t.configs().forEach(c -> configs.put(c.name(), c.value()));
        });
        ArrayNode required = a.putArray("required");
        topology.requiredTopics().forEach(required::add);
        ObjectNode byTopic = a.putObject("by_topic");
        topology.sourceTopicMap().forEach((t, s) -> byTopic.put(t, s.subtopologyId()));
        if (configured.isReady()) {
            StreamsGroupHeartbeatRequestData hb = request(q.get("request"));
            Method check = GroupMetadataManager.class.getDeclaredMethod("throwIfRequestContainsInvalidTasks", SortedMap.class, List.class);
            check.setAccessible(true);
            try {
                for (List<?> tasks : new List<?>[] {hb.activeTasks(), hb.standbyTasks(), hb.warmupTasks()})
                    check.invoke(null, configured.subtopologies().get(), tasks);
            } catch (InvocationTargetException e) {
                a.put("tasks", e.getCause().getMessage());
            }
        }
        return a;
    }

    // ---- tasks ------------------------------------------------------------------------------------------

    static Map<String, Set<Integer>> sets(JsonNode node) {
        Map<String, Set<Integer>> out = new HashMap<>();
        node.fields().forEachRemaining(e -> {
            Set<Integer> set = new HashSet<>();
            e.getValue().forEach(p -> set.add(p.asInt()));
            out.put(e.getKey(), set);
        });
        return out;
    }

    static Map<String, Map<Integer, Integer>> epochs(JsonNode node) {
        Map<String, Map<Integer, Integer>> out = new HashMap<>();
        node.fields().forEachRemaining(e -> {
            Map<Integer, Integer> map = new HashMap<>();
            e.getValue().fields().forEachRemaining(p -> map.put(Integer.parseInt(p.getKey()), p.getValue().asInt()));
            out.put(e.getKey(), map);
        });
        return out;
    }

    static TasksTuple tasks(JsonNode node) {
        return new TasksTuple(sets(node.get(0)), sets(node.get(1)), sets(node.get(2)));
    }

    static TasksTupleWithEpochs assigned(JsonNode node) {
        return new TasksTupleWithEpochs(epochs(node.get(0)), sets(node.get(1)), sets(node.get(2)));
    }

    static StreamsGroupMember member(JsonNode m) {
        return StreamsGroupMember.Builder.withDefaults(m.get("id").asText())
            .setProcessId(m.get("process").asText())
            .setMemberEpoch(m.get("epoch").asInt())
            .setPreviousMemberEpoch(m.get("previous").asInt())
            .setState(MemberState.valueOf(m.get("state").asText()))
            .setAssignedTasks(assigned(m.get("assigned")))
            .setTasksPendingRevocation(assigned(m.get("pending")))
            .build();
    }

    static ObjectNode told(StreamsGroupMember m) {
        ObjectNode a = MAPPER.createObjectNode().put("epoch", m.memberEpoch()).put("previous", m.previousMemberEpoch()).put("state", m.state().toString());
        told(a.putArray("assigned"), m.assignedTasks());
        told(a.putArray("pending"), m.tasksPendingRevocation());
        return a;
    }

    static void told(ArrayNode into, TasksTupleWithEpochs t) {
        ObjectNode active = into.addObject();
        t.activeTasksWithEpochs().forEach((s, ps) -> {
            ObjectNode one = active.putObject(s);
            new TreeMap<>(ps).forEach((p, e) -> one.put(p.toString(), e));
        });
        told(into.addObject(), t.standbyTasks());
        told(into.addObject(), t.warmupTasks());
    }

    static void told(ObjectNode into, Map<String, Set<Integer>> tasks) {
        tasks.forEach((s, ps) -> {
            ArrayNode one = into.putArray(s);
            new TreeSet<>(ps).forEach(one::add);
        });
    }

    static ObjectNode reconcile(JsonNode q) {
        Map<String, Map<Integer, Set<String>>> standby = processes(q.get("standby")), warmup = processes(q.get("warmup"));
        Map<String, Map<Integer, Set<String>>> active = processes(q.get("active"));
        CurrentAssignmentBuilder builder = new CurrentAssignmentBuilder(member(q.get("member")))
            .withTargetAssignment(q.get("epoch").asInt(), tasks(q.get("target")))
            .withCurrentActiveTaskProcessId((s, p) -> active.getOrDefault(s, Map.of()).getOrDefault(p, Set.of()).stream().findFirst().orElse(null))
            .withCurrentStandbyTaskProcessIds((s, p) -> standby.getOrDefault(s, Map.of()).getOrDefault(p, Set.of()))
            .withCurrentWarmupTaskProcessIds((s, p) -> warmup.getOrDefault(s, Map.of()).getOrDefault(p, Set.of()));
        if (!q.get("owned").isNull()) builder.withOwnedAssignment(tasks(q.get("owned")));
        return told(builder.build());
    }

    static Map<String, Map<Integer, Set<String>>> processes(JsonNode node) {
        Map<String, Map<Integer, Set<String>>> out = new HashMap<>();
        node.forEach(row -> {
            Set<String> ids = out.computeIfAbsent(row.get(0).asText(), k -> new HashMap<>()).computeIfAbsent(row.get(1).asInt(), k -> new HashSet<>());
            row.get(2).forEach(id -> ids.add(id.asText()));
        });
        return out;
    }

    /** A whole group over many steps: [epoch, targets] or [member, owned], and what became of the member and the group. */
    static ObjectNode script(JsonNode q) {
        StreamsGroup group = new StreamsGroup(new LogContext(), new SnapshotRegistry(new LogContext()), "g");
        group.setTopology(new StreamsTopology(q.get("topology_epoch").asInt(), Map.of()));
        ObjectNode a = MAPPER.createObjectNode();
        ArrayNode out = a.putArray("steps");
        Map<String, TasksTuple> targets = new HashMap<>();
        for (JsonNode step : q.get("steps")) {
            ObjectNode one = out.addObject();
            switch (step.get("do").asText()) {
                case "bump":
                    group.setGroupEpoch(step.get("epoch").asInt());
                    group.setValidatedTopologyEpoch(step.get("validated").asInt());
                    break;
                case "target":
                    group.setTargetAssignmentMetadata(step.get("epoch").asInt(), 0);
                    targets.clear();
                    step.get("tasks").fields().forEachRemaining(e -> targets.put(e.getKey(), tasks(e.getValue())));
                    break;
                case "join":
                    group.updateMember(StreamsGroupMember.Builder.withDefaults(step.get("id").asText()).setProcessId(step.get("process").asText()).build());
                    break;
                case "leave":
                    group.removeMember(step.get("id").asText());
                    break;
                case "beat":
                    String id = step.get("id").asText();
                    StreamsGroupMember m = group.getMemberOrThrow(id);
                    if (!m.isReconciledTo(group.assignmentEpoch())) {
                        CurrentAssignmentBuilder builder = new CurrentAssignmentBuilder(m)
                            .withTargetAssignment(group.assignmentEpoch(), targets.getOrDefault(id, TasksTuple.EMPTY))
                            .withCurrentActiveTaskProcessId(group::currentActiveTaskProcessId)
                            .withCurrentStandbyTaskProcessIds(group::currentStandbyTaskProcessIds)
                            .withCurrentWarmupTaskProcessIds(group::currentWarmupTaskProcessIds);
                        if (!step.get("owned").isNull()) builder.withOwnedAssignment(tasks(step.get("owned")));
                        group.updateMember(builder.build());
                    }
                    one.set("member", told(group.getMemberOrThrow(id)));
                    break;
                default: throw new IllegalArgumentException(step.toString());
            }
            one.put("state", group.stateAsString());
        }
        return a;
    }

    // ---- requests ---------------------------------------------------------------------------------------

    static ObjectNode validate(JsonNode q) throws Exception {
        StreamsGroupHeartbeatRequestData hb = request(q.get("request"));
        for (String name : List.of("throwIfStreamsGroupHeartbeatRequestIsUsingUnsupportedFeatures", "throwIfStreamsGroupHeartbeatRequestIsInvalid")) {
            Method check = GroupCoordinatorService.class.getDeclaredMethod(name, StreamsGroupHeartbeatRequestData.class);
            check.setAccessible(true);
            check.invoke(null, hb);
        }
        return MAPPER.createObjectNode().put("code", 0);
    }

    static ObjectNode epoch(JsonNode q) throws Exception {
        StreamsGroupHeartbeatRequestData hb = request(q.get("request"));
        Method check = GroupMetadataManager.class.getDeclaredMethod(
            "throwIfStreamsGroupMemberEpochIsInvalid", StreamsGroupMember.class, int.class, List.class, List.class, List.class);
        check.setAccessible(true);
        check.invoke(null, member(q.get("member")), hb.memberEpoch(), hb.activeTasks(), hb.standbyTasks(), hb.warmupTasks());
        return MAPPER.createObjectNode().put("code", 0);
    }
}
