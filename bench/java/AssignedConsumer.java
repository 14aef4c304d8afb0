import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic with assigned partitions, without a consumer group.
 *
 * <p>Arguments: bootstrap servers, topic, partitions, records, passes. Prints a line for each pass:
 * records, bytes of values, seconds from the first poll to the last record. Each pass has a consumer
 * of its own, since one that reached the end has a Fetch parked there; the JVM stays and gets warm.
 */
public final class AssignedConsumer {
    private static final Duration POLL = Duration.ofMillis(1000);
    private static final int EMPTY_POLLS_MAX = 30;

    private AssignedConsumer() {}

    public static void main(String[] arguments) {
        String topic = arguments[1];
        long wanted = Long.parseLong(arguments[3]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < Integer.parseInt(arguments[2]); partition++) {
            partitions.add(new TopicPartition(topic, partition));
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        for (int pass = 0; pass < Integer.parseInt(arguments[4]); pass++) {
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(settings, bytes, bytes)) {
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
                readAll(consumer, wanted);
            }
        }
    }

    private static void readAll(KafkaConsumer<byte[], byte[]> consumer, long wanted) {
        long records = 0;
        long size = 0;
        int emptyPolls = 0;
        long started = System.nanoTime();
        while (records < wanted) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(POLL);
            emptyPolls = polled.isEmpty() ? emptyPolls + 1 : 0;
            if (emptyPolls > EMPTY_POLLS_MAX) {
                throw new IllegalStateException("only " + records + " records came");
            }
            for (ConsumerRecord<byte[], byte[]> record : polled) {
                size += record.value().length;
            }
            records += polled.count();
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.println(String.format(Locale.ROOT, "%d %d %.6f", records, size, seconds));
    }
}
