import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What Kafka's own authorizers decide. Fields of a line are separated by tabs:
 * W allow-everyone; A type name pattern principal host operation permission; Q principal host
 * operation type name; T principal host operation type. A line of the output answers each Q with
 * the decisions of StandardAuthorizer and AclAuthorizer, and each T with the latter's alone.
 */
public class Decisions {
    private StandardAuthorizer standard;
    private AclAuthorizer acl;
    private Map<ResourcePattern, Set<AclEntry>> entries;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Decisions world = new Decisions();
        for (String line; (line = input.readLine()) != null; ) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "W" -> world.begin(fields[1]);
                case "A" -> world.add(fields);
                case "Q" -> out.println("= " + world.ask(fields));
                default -> out.println("= " + world.askByType(fields));
            }
        }
        System.exit(0);
    }

    private void begin(String allowEveryone) throws Exception {
        standard = new StandardAuthorizer();
        Map<String, Object> configs = new HashMap<>();
        configs.put("allow.everyone.if.no.acl.found", allowEveryone);
        configs.put("node.id", "1");
        standard.configure(configs);
        standard.completeInitialLoad();
        acl = new AclAuthorizer();
        Field field = AclAuthorizer.class.getDeclaredField("shouldAllowEveryoneIfNoAclIsFound");
        field.setAccessible(true);
        field.setBoolean(acl, Boolean.parseBoolean(allowEveryone));
        entries = new HashMap<>();
    }

    private void add(String[] fields) {
        ResourcePattern pattern = new ResourcePattern(
            ResourceType.valueOf(fields[1]), fields[2], PatternType.valueOf(fields[3]));
        AclOperation operation = AclOperation.valueOf(fields[6]);
        AclPermissionType permission = AclPermissionType.valueOf(fields[7]);
        standard.addAcl(Uuid.randomUuid(), new StandardAcl(pattern.resourceType(), pattern.name(),
            pattern.patternType(), fields[4], fields[5], operation, permission));
        Set<AclEntry> some = entries.computeIfAbsent(pattern, key -> new HashSet<>());
        some.add(new AclEntry(new AccessControlEntry(fields[4], fields[5], operation, permission)));
        scala.collection.immutable.Set<AclEntry> all =
            CollectionConverters.asScala(new HashSet<>(some)).toSet();
        acl.updateCache(pattern, new AclAuthorizer.VersionedAcls(all, 0));
    }

    private String ask(String[] fields) throws Exception {
        Action action = new Action(AclOperation.valueOf(fields[3]),
            new ResourcePattern(ResourceType.valueOf(fields[4]), fields[5], PatternType.LITERAL),
            1, false, false);
        Client client = new Client(fields[1], fields[2]);
        return decision(standard, client, action) + " " + decision(acl, client, action);
    }

    private static boolean decision(Authorizer authorizer, Client client, Action action) {
        return authorizer.authorize(client, Collections.singletonList(action)).get(0)
            == AuthorizationResult.ALLOWED;
    }

    private boolean askByType(String[] fields) throws Exception {
        return acl.authorizeByResourceType(new Client(fields[1], fields[2]),
            AclOperation.valueOf(fields[3]), ResourceType.valueOf(fields[4]))
            == AuthorizationResult.ALLOWED;
    }

    private record Client(String who, String host) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public KafkaPrincipal principal() {
            String[] parts = who.split(":", 2);
            return new KafkaPrincipal(parts[0], parts[1]);
        }
        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(host);
            } catch (java.net.UnknownHostException error) {
                throw new IllegalArgumentException(error);
            }
        }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }
}
