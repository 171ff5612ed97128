package org.apache.kafka.server;

import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.utils.Utils;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Stands on the classpath before the class of this name through which Kafka's request tests reach a broker. It does the
 * same, but connects to the sidecar in front of that broker.
 */
public class IntegrationTestUtils {
    private static final AtomicInteger CORRELATION_ID = new AtomicInteger();

    public static Socket connect(int brokerPort) throws IOException {
        return new Socket("localhost", SidecarsOfTest.inFrontOf(brokerPort));
    }

    public static RequestHeader nextRequestHeader(ApiKeys api, short version) {
        return new RequestHeader(api, version, "client-id", CORRELATION_ID.getAndIncrement());
    }

    public static void sendRequest(Socket socket, byte[] request) throws IOException {
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(request.length);
        out.write(request);
        out.flush();
    }

    @SuppressWarnings("unchecked")
    public static <T extends AbstractResponse> T receive(Socket socket, ApiKeys api, short version) throws IOException {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        ByteBuffer frame = ByteBuffer.wrap(in.readNBytes(in.readInt()));
        ResponseHeader.parse(frame, api.responseHeaderVersion(version));
        return (T) AbstractResponse.parseResponse(api, new ByteBufferAccessor(frame), version);
    }

    public static <T extends AbstractResponse> T sendAndReceive(AbstractRequest request, Socket socket)
            throws IOException {
        RequestHeader header = nextRequestHeader(request.apiKey(), request.version());
        sendRequest(socket, Utils.toArray(request.serializeWithHeader(header)));
        return receive(socket, request.apiKey(), request.version());
    }

    public static <T extends AbstractResponse> T connectAndReceive(AbstractRequest request, int brokerPort)
            throws IOException {
        try (Socket socket = connect(brokerPort)) {
            return sendAndReceive(request, socket);
        }
    }
}
