package org.apache.kafka.common.test;

import org.junit.jupiter.api.extension.BeforeTestExecutionCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.lang.reflect.Method;
import java.net.Socket;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Asks the runner (tests/upstream/run.py) for a sidecar in front of each broker. A test, and what prepares it, begins
 * when all sidecars are ready.
 */
public class Sidecars implements BeforeTestExecutionCallback, InvocationInterceptor {
    static final String BROKERS_HOST = System.getProperty("brokers.host");
    private static final int RUNNER = Integer.getInteger("runner.port");

    /** The sidecar waits for its broker, which may not serve yet. */
    static void start(int nodeId, int port) throws IOException {
        ask("start " + nodeId + " " + port);
    }

    static void stop() throws IOException {
        ask("stop");
    }

    @Override
    public void interceptBeforeEachMethod(
        Invocation<Void> method, ReflectiveInvocationContext<Method> invocation, ExtensionContext context
    ) throws Throwable {
        ask("ready");
        method.proceed();
    }

    @Override
    public void beforeTestExecution(ExtensionContext context) throws IOException {
        ask("ready");
    }

    /** Waits for the runner's answer. A failure there is an answer that begins with "failed". */
    private static void ask(String question) throws IOException {
        try (Socket socket = new Socket("localhost", RUNNER)) {
            Writer out = new OutputStreamWriter(socket.getOutputStream(), UTF_8);
            out.write(question + "\n");
            out.flush();
            String answer = new BufferedReader(new InputStreamReader(socket.getInputStream(), UTF_8)).readLine();
            if (answer == null || answer.startsWith("failed")) {
                throw new IOException("the runner of sidecars: " + answer);
            }
        }
    }
}
