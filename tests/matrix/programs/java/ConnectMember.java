import java.net.HttpURLConnection;
import java.net.ServerSocket;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.cli.ConnectDistributed;

/**
 * A distributed worker of Kafka Connect. It makes sure that there is one sink connector with four tasks; what the worker
 * holds are the partitions of its tasks. So a worker is a member of the group of workers, by the protocol "connect", and
 * its tasks are members of a consumer group, whose name is that of the first with ".sink".
 */
public class ConnectMember {
    public static void main(String[] args) throws Exception {
        Map<String, String> o = Journal.options(args);
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try { // Connect has a hook of its own, which stops the worker.
                ended.await(20, TimeUnit.SECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        var connect = new ConnectDistributed().startConnect(config(o, port));
        Journal.started("Kafka Connect " + Journal.kafkaVersion());
        Thread creator = new Thread(() -> create(o, port));
        creator.setDaemon(true);
        creator.start();
        connect.awaitStop();
        Journal.plain("closing");
        Journal.plain("closed");
        ended.countDown();
    }

    private static Map<String, String> config(Map<String, String> o, int port) {
        Map<String, String> p = new HashMap<>();
        p.put("bootstrap.servers", o.get("bootstrap"));
        p.put("group.id", o.get("group"));
        p.put("client.id", o.get("name"));
        p.put("listeners", "http://127.0.0.1:" + port);
        p.put("rest.advertised.host.name", "127.0.0.1");
        p.put("key.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
        p.put("value.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
        p.put("session.timeout.ms", o.get("session-ms"));
        p.put("heartbeat.interval.ms", o.get("heartbeat-ms"));
        p.put("offset.flush.interval.ms", "500");
        p.put("scheduled.rebalance.max.delay.ms", "0"); // by default the tasks of a worker that left wait for five minutes
        p.put("plugin.discovery", "service_load");
        for (String kind : new String[] {"config", "offset", "status"}) {
            p.put(kind + ".storage.topic", o.get("group") + "." + kind);
            p.put(kind + ".storage.replication.factor", "3");
            if (!kind.equals("config")) p.put(kind + ".storage.partitions", "1");
        }
        return p;
    }

    private static void create(Map<String, String> o, int port) {
        String url = "http://127.0.0.1:" + port + "/connectors/sink";
        String body = "{\"connector.class\":\"JournalSink\",\"tasks.max\":\"4\",\"topics\":\"" + o.get("topic") + "\","
            + "\"consumer.override.group.id\":\"" + o.get("group") + ".sink\","
            + "\"consumer.override.client.id\":\"" + o.get("name") + "-sink\","
            + "\"consumer.override.session.timeout.ms\":\"" + o.get("session-ms") + "\","
            + "\"consumer.override.heartbeat.interval.ms\":\"" + o.get("heartbeat-ms") + "\","
            + "\"consumer.override.auto.offset.reset\":\"earliest\"}";
        while (true) {
            try {
                int found = call("GET", url, null);
                if (found == 200) return;
                if (found == 404) call("PUT", url + "/config", body);
                Thread.sleep(200);
            } catch (InterruptedException e) {
                return;
            } catch (Exception e) {
                Journal.error(e);
            }
        }
    }

    private static int call(String method, String url, String body) throws Exception {
        HttpURLConnection c = (HttpURLConnection) new URL(url).openConnection();
        c.setRequestMethod(method);
        c.setReadTimeout(10_000);
        if (body != null) {
            c.setDoOutput(true);
            c.setRequestProperty("Content-Type", "application/json");
            c.getOutputStream().write(body.getBytes(StandardCharsets.UTF_8));
        }
        return c.getResponseCode();
    }
}
