package org.apache.kafka.common.test;

import org.apache.kafka.common.test.api.TestKitDefaults;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.ServerSocketFactory;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.util.HashMap;
import java.util.Map;

/**
 * Stands on the classpath before the class of this name, by which Kafka's test kit opens the sockets of its nodes. It
 * does the same, but binds a broker's listener to another loopback address. The sidecar has the listener's port on
 * localhost, which is what the broker advertises and the kit gives to clients.
 */
public class PreboundSocketFactoryManager implements AutoCloseable {
    private final Map<String, ServerSocketChannel> sockets = new HashMap<>();

    public ServerSocketFactory getOrCreateSocketFactory(int nodeId) {
        return (listener, address, backlog, bufferSize) -> {
            ServerSocketChannel socket = socket(nodeId, listener);
            if (socket != null && socket.isOpen()) {
                if (isBrokers(listener)) {
                    Sidecars.start(nodeId, socket.socket().getLocalPort());
                }
                return socket;
            }
            // A node that starts again has its former port.
            InetSocketAddress bound = socket == null ? address : address(listener, socket.socket().getLocalPort());
            return ServerSocketFactory.INSTANCE.openServerSocket(listener, bound, backlog, bufferSize);
        };
    }

    public synchronized int getOrCreatePortForListener(int nodeId, String listener) throws IOException {
        ServerSocketChannel socket = socket(nodeId, listener);
        if (socket == null) {
            socket = ServerSocketFactory.INSTANCE.openServerSocket(listener, address(listener, 0), -1, -1);
            sockets.put(nodeId + listener, socket);
        }
        return socket.socket().getLocalPort();
    }

    @Override
    public synchronized void close() throws IOException {
        Sidecars.stop();
        sockets.values().forEach(socket -> Utils.closeQuietly(socket, "socket"));
    }

    private synchronized ServerSocketChannel socket(int nodeId, String listener) {
        return sockets.get(nodeId + listener);
    }

    private static boolean isBrokers(String listener) {
        return !listener.equals(TestKitDefaults.DEFAULT_CONTROLLER_LISTENER_NAME);
    }

    private static InetSocketAddress address(String listener, int port) {
        return isBrokers(listener) ? new InetSocketAddress(Sidecars.BROKERS_HOST, port) : new InetSocketAddress(port);
    }
}
