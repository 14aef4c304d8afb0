import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer as a member of a group: reads a topic, commits after every batch, and prints
 * a line of JSON for everything that happens. What the lines mean is told in
 * tests/support/group_process.py. SIGTERM makes it leave its group.
 *
 * <p>Arguments: the topic, then settings of the consumer as key=value.
 */
public final class GroupMember {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Set<Integer> held = new TreeSet<>();
    private static volatile boolean stopping = false;

    private GroupMember() {}

    public static void main(String[] arguments) {
        String topic = arguments[0];
        Properties settings = new Properties();
        for (int place = 1; place < arguments.length; place++) {
            String[] pair = arguments[place].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(topic), new Listener());
        while (!stopping) {
            Map<Integer, Long> ends = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                if (!held.contains(record.partition()))
                    continue;
                say("record", Set.of(), "\"partition\": " + record.partition()
                    + ", \"offset\": " + record.offset());
                ends.put(record.partition(), record.offset() + 1);
            }
            if (!ends.isEmpty())
                commit(consumer, topic, ends);
        }
        say("closing", Set.of(), null);
        consumer.close();
    }

    private static void commit(
            KafkaConsumer<byte[], byte[]> consumer, String topic, Map<Integer, Long> ends) {
        String offsets = "\"offsets\": [" + ends.entrySet().stream()
            .map(end -> "[" + end.getKey() + ", " + end.getValue() + "]")
            .collect(Collectors.joining(", ")) + "]";
        say("committing", Set.of(), offsets);
        Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
        ends.forEach((partition, offset) ->
            places.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset)));
        try {
            consumer.commitSync(places);
        } catch (KafkaException failure) {
            String text = failure.toString().replaceAll("[^ -!#-\\[\\]-~]", " ");
            say("commit failed", Set.of(), "\"error\": \"" + text + "\"");
            return;
        }
        say("committed", Set.of(), offsets);
    }

    private static void say(String what, Collection<Integer> partitions, String fields) {
        // On Linux nanoTime is the monotonic clock that Python's time.monotonic() reads.
        System.out.println("{\"what\": \"" + what + "\", \"at\": " + System.nanoTime() / 1e9
            + ", \"partitions\": " + partitions + (fields == null ? "" : ", " + fields) + "}");
        System.out.flush();
    }

    private static final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            held.addAll(numbers(partitions));
            say("assigned", numbers(partitions), null);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            held.removeAll(numbers(partitions));
            say("revoked", numbers(partitions), null);
        }

        private static Set<Integer> numbers(Collection<TopicPartition> partitions) {
            return partitions.stream().map(TopicPartition::partition)
                .collect(Collectors.toCollection(TreeSet::new));
        }
    }
}
