import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * What Kafka's own assignors make of groups. Each line of the input is a group as JSON: assignor,
 * partitions (the racks of each partition, by topic), members (member_id, group_instance_id and the
 * subscription in base64, as JoinGroup has them). Each line of the output is the partitions by
 * member, or the error.
 */
public class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine())
            answers.println(answer(JSON.readTree(line)));
        answers.flush();
    }

    private static JsonNode answer(JsonNode group) {
        ObjectNode answer = JSON.createObjectNode();
        Map<String, Assignment> assignments;
        try {
            assignments = named(group.get("assignor").asText())
                .assign(cluster(group.get("partitions")), subscriptions(group.get("members")))
                .groupAssignment();
        } catch (RuntimeException failure) {
            return answer.put("error", failure.toString());
        }
        ObjectNode members = answer.putObject("assignment");
        assignments.forEach((member, assignment) -> {
            ArrayNode partitions = members.putArray(member);
            for (TopicPartition partition : assignment.partitions())
                partitions.addArray().add(partition.topic()).add(partition.partition());
        });
        return answer;
    }

    private static ConsumerPartitionAssignor named(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        Node nowhere = new Node(0, "localhost", 9092);
        topics.fields().forEachRemaining(topic -> {
            for (int partition = 0; partition < topic.getValue().size(); partition++) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : topic.getValue().get(partition))
                    replicas.add(nodes.computeIfAbsent(rack.asText(),
                        name -> new Node(nodes.size() + 1, "localhost", 9092, name)));
                if (replicas.isEmpty())
                    replicas.add(nowhere);
                Node[] array = replicas.toArray(new Node[0]);
                partitions.add(
                    new PartitionInfo(topic.getKey(), partition, array[0], array, array));
            }
        });
        List<Node> all = new ArrayList<>(nodes.values());
        all.add(nowhere);
        return new Cluster("cluster", all, partitions, new HashSet<>(), new HashSet<>());
    }

    private static GroupSubscription subscriptions(JsonNode members) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : members) {
            byte[] metadata = Base64.getDecoder().decode(member.get("metadata").asText());
            Subscription subscription =
                ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(metadata));
            JsonNode instance = member.get("group_instance_id");
            subscription.setGroupInstanceId(
                instance.isNull() ? Optional.empty() : Optional.of(instance.asText()));
            subscriptions.put(member.get("member_id").asText(), subscription);
        }
        return new GroupSubscription(subscriptions);
    }
}
