package org.apache.kafka.server;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.net.Socket;
import java.util.HashMap;
import java.util.Map;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Asks the runner (tests/upstream/run.py) for a sidecar in front of a broker's port, and tells it when a test has ended:
 * each test has a cluster of its own.
 */
public class SidecarsOfTest implements TestExecutionListener {
    private static final int RUNNER = Integer.getInteger("runner.port");
    private static final Map<Integer, Integer> PORTS = new HashMap<>();

    static synchronized int inFrontOf(int brokerPort) throws IOException {
        Integer port = PORTS.get(brokerPort);
        if (port == null) {
            port = Integer.parseInt(ask("start " + brokerPort));
            PORTS.put(brokerPort, port);
        }
        return port;
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (test.isTest()) {
            synchronized (SidecarsOfTest.class) {
                PORTS.clear();
                try {
                    ask("stop");
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }
        }
    }

    /** Waits for the runner's answer. A failure there is an answer that begins with "failed". */
    private static String ask(String question) throws IOException {
        try (Socket socket = new Socket("localhost", RUNNER)) {
            Writer out = new OutputStreamWriter(socket.getOutputStream(), UTF_8);
            out.write(question + "\n");
            out.flush();
            String answer = new BufferedReader(new InputStreamReader(socket.getInputStream(), UTF_8)).readLine();
            if (answer == null || answer.startsWith("failed")) {
                throw new IOException("the runner of sidecars: " + answer);
            }
            return answer;
        }
    }
}
