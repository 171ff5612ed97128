import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;

/** Settled consumer groups as Kafka's own records: bootstrap, groups, members, partitions, epoch, member suffix, topic. */
public class NativeGroups {
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    static KafkaProducer<byte[], byte[]> producer;
    static long count;

    public static void main(String[] args) {
        int groups = Integer.parseInt(args[1]), members = Integer.parseInt(args[2]);
        int partitions = Integer.parseInt(args[3]), epoch = Integer.parseInt(args[4]);
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("client.id", "__admin_client"); // the only one that may write to an internal topic
        p.put("linger.ms", "20");
        producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
        for (int g = 0; g < groups; g++) {
            write(String.format("large-%05d", g), share(members, groups, g), share(partitions, groups, g), epoch, args[5], args[6]);
        }
        producer.close();
        System.out.println(count);
    }

    static int share(int of, int among, int index) {
        return of / among + (index < of % among ? 1 : 0);
    }

    static void write(String group, int members, int partitions, int epoch, String suffix, String topic) {
        Uuid id = new Uuid(7, 7);
        send(group, GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord(group, epoch, 0L));
        for (int m = 0; m < members; m++) {
            Set<Integer> target = new HashSet<>();
            Map<Integer, Integer> held = new HashMap<>();
            for (int i = m; i < partitions; i += members) {
                target.add(i);
                held.put(i, epoch);
            }
            ConsumerGroupMember member = new ConsumerGroupMember.Builder(String.format("consumer-%06d%s", m, suffix))
                .setMemberEpoch(epoch)
                .setPreviousMemberEpoch(epoch - 1)
                .setClientId("bench")
                .setClientHost("/10.1.2.3")
                .setRebalanceTimeoutMs(300000)
                .setSubscribedTopicNames(List.of(topic))
                .setState(MemberState.STABLE)
                .setAssignedPartitions(held.isEmpty() ? Map.of() : Map.of(id, held))
                .build();
            send(group, GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord(group, member));
            Map<Uuid, Set<Integer>> given = target.isEmpty() ? Map.of() : Map.of(id, target);
            send(group, GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentRecord(group, member.memberId(), given));
            send(group, GroupCoordinatorRecordHelpers.newConsumerGroupCurrentAssignmentRecord(group, member));
        }
        long now = System.currentTimeMillis();
        send(group, GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentMetadataRecord(group, epoch, now));
    }

    static void send(String group, CoordinatorRecord r) {
        int partition = (group.hashCode() & 0x7fffffff) % 50;
        byte[] value = SERDE.serializeValue(r);
        producer.send(new ProducerRecord<>("__consumer_offsets", partition, SERDE.serializeKey(r), value), (done, exc) -> {
            if (exc != null) {
                exc.printStackTrace();
                System.exit(1);
            }
        });
        count++;
    }
}
